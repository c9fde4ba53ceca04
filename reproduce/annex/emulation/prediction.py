"""Predicts an emulation with the simulator: on the named cluster, but with the emulated links as they were measured.

Exchanges and collectives between nodes really run in an emulation, on gloo and shaped links. Their latency and rate,
measured before the run, replace the cluster's. All other times are the cluster's, as virtual accelerators take these.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ptdp_core.layout import stage_passes
from ptdp_core.schedules import MESSAGES_AT_ONCE, definition
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.network import Group, group_of
from reproduce.annex.emulation.plan import SHRINK, EmulationPlan
from reproduce.annex.emulation.rank_report import MeasuredLinks, Timing


@dataclass(frozen=True)
class LinkRate:
    """The rates of a class of links between nodes, in B/s of the cluster: the measured rate times the shrink factor."""

    asked: float
    achieved: float


@dataclass(frozen=True)
class Links:
    """What was measured before the run: rates by class, seconds of an exchange of one element, and the description of
    the emulated machine that follows from them."""

    rates: Mapping[str, LinkRate]
    exchange_latency: float | None
    cluster: Cluster


def describe(plan: EmulationPlan, cluster: Cluster, measured: Sequence[MeasuredLinks]) -> Links:
    """The emulated machine; `cluster` is the named one, with nodes of the emulated size."""
    changes = _exchanges(plan, measured) | _collectives(plan, measured)
    rates = {
        use: LinkRate(cluster.hca_bandwidth, changes[field])
        for use, field in (("one message", "p2p_bandwidth"), ("two messages", "hca_bandwidth"))
        if field in changes
    }
    for use, group in _groups(plan).items():
        if timings := _of(measured, use):
            rates[use] = LinkRate(cluster.hca_bandwidth, _link_rate(use, timings, group))
    machine = replace(cluster, name=f"{cluster.name}, emulated", **changes)  # type: ignore[arg-type]
    return Links(rates, changes.get("exchange_host_time"), machine)


def _groups(plan: EmulationPlan) -> dict[str, Group]:
    names = {"data": "dp", "expert data": "edp", "tensor": "tp", "experts": "ep"}
    ranks = {use: plan.config.parallel.groups[name] for use, name in names.items()}
    return {use: group_of(each.number, plan.gpus_per_node, each.apart) for use, each in ranks.items()}


def _of(measured: Sequence[MeasuredLinks], use: str) -> list[Timing]:
    return [m.collectives[use] for m in measured if use in m.collectives]


def _rate(timings: Sequence[Timing]) -> float:
    return SHRINK * statistics.median(timing.rate for timing in timings)


def _latency(timings: Sequence[Timing]) -> float:
    return statistics.median(timing.latency for timing in timings)


def _exchanges(plan: EmulationPlan, measured: Sequence[MeasuredLinks]) -> dict[str, float]:
    """The rates of one and of two messages at a time, and the time of an exchange with this schedule's pattern."""
    changes = {}
    for field, pattern, crosses in (
        ("nvlink_p2p_bandwidth", "pair", False),
        ("p2p_bandwidth", "pair", True),
        ("hca_bandwidth", "both", True),
    ):
        if timings := [timing for m in measured for timing in m.exchanges.get((pattern, crosses), ())]:
            changes[field] = _rate(timings)
    exchanges = definition(plan.config.parallel.schedule).exchanges
    usual = "both" if MESSAGES_AT_ONCE[exchanges] > 2 else "pair"
    as_scheduled = [
        timing for m in measured for (name, _), timings in m.exchanges.items() if name == usual for timing in timings
    ]
    if as_scheduled:
        changes["exchange_host_time"] = _latency(as_scheduled)
    if gathers := _of(measured, "gather"):  # of what an exchange received, between nodes
        changes["exchange_host_time"] += _latency(gathers)
    return changes


def _collectives(plan: EmulationPlan, measured: Sequence[MeasuredLinks]) -> dict[str, float]:
    """The rates of collectives per HCA: in the simulator a ring uses all HCAs of its group on a node, gloo's uses one.

    All of a pass's tensor-parallel all-reduces are one here, so that each has only its share of the latency. Only one
    of tensor parallelism and experts goes between nodes (`run._check`).
    """
    changes, groups = {}, _groups(plan)
    if timings := [timing for m in measured for timing in m.exchanges.get(("pair", True), ())]:
        changes["allreduce_hca_bandwidth"] = _rate(timings)  # the tied embedding's
    if timings := _of(measured, "data"):
        changes["allreduce_hca_bandwidth"] = _reduction_rate(plan, measured, groups)
        changes["network_latency"] = _latency(timings) / (2 * groups["data"].nodes)
    if timings := _of(measured, "tensor"):
        group, calls = groups["tensor"], sum(call.rounds for call in stage_passes(plan.config, 0).backward) / 2
        changes["tensor_hca_bandwidth"] = _link_rate("tensor", timings, group) / group.per_node
        changes["network_latency"] = _latency(timings) / (2 * group.nodes * calls)
    if timings := _of(measured, "experts"):
        changes["tensor_hca_bandwidth"] = _link_rate("experts", timings, groups["experts"])
        changes["network_latency"] = 0.0  # in the rate at their size; the reductions' is once an iteration
    return changes


def _reduction_rate(plan: EmulationPlan, measured: Sequence[MeasuredLinks], groups: Mapping[str, Group]) -> float:
    """The rate per HCA with which the reductions of experts' gradients and of all others take as long as measured."""
    pieces = [piece for rank in plan.ranks for chunk in rank.pieces for piece in chunk]
    elements = {
        "data": sum(piece.elements for piece in pieces if not piece.of_experts) + sum(rank.tied for rank in plan.ranks),
        "expert data": sum(piece.elements for piece in pieces if piece.of_experts),
    }
    modelled = seconds = 0.0
    for use, size in elements.items():
        if timings := _of(measured, use):
            sent = 2 * (groups[use].size - 1) / groups[use].size * size
            modelled += sent / groups[use].per_node
            seconds += sent / _link_rate(use, timings, groups[use])
    return modelled / seconds


def _link_rate(use: str, timings: Sequence[Timing], group: Group) -> float:
    """The rate of a collective on each link between nodes, B/s of the cluster.

    A ring's all-reduce moves 2(k-1)/k of the tensor over each link, an all-to-all what is for GPUs on other nodes.
    """
    sent = group.size - group.per_node if use == "experts" else 2 * (group.size - 1)
    return sent / group.size * _rate(timings)
