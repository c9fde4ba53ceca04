"""Pipeline schedules side by side: idle time, memory and messages of the executed tables, and what they simulate to."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.schedules import Schedule, Time, build, definition, exists, names, summary
from ptdp_core.schedules.execution import vocabulary_time
from ptdp_core.simulator import Cluster, simulate
from reproduce.experiment import quantities as q
from reproduce.experiment.sweep import KEYS
from reproduce.output.columns import Column, Table
from reproduce.output.tables import metric
from reproduce.running.simulated import simulated_metrics
from results.records import Metric
from results.records.errors import UsageError, did_you_mean

# Of the model that schedules are simulated with, unless the command line says otherwise: layers as wide as GPT-3's.
MODEL = {"hidden": 12288, "heads": 96, "t": 8, "b": 1}
LAYERS = 96
SIMULATED = (q.ITERATION, q.MODEL_THROUGHPUT, q.MFU, q.THROUGHPUT, q.PEAK_MEMORY)


class Member(NamedTuple):
    """One schedule of a comparison; `name` is as the simulator knows it. `fits`: into memory, if it was simulated."""

    name: str
    title: str
    v: int
    metrics: Mapping[str, Metric]
    fits: bool = True


def family(
    p: int, m: int, times: Sequence[Time] = (1, 2, 1), further: Iterable[Schedule] = (), others: bool = True
) -> list[Member]:
    """Every schedule that exists for p and m, with the fewest chunks that it has, after those of one's own (`further`).

    One of one's own that has the name of a schedule stands for it. Without `others` only these.
    `times` are t_f, t_b and t_w of a rank's passes; whole v chunks are compared, so a chunk takes a v-th of them.
    """
    tables = [(table.name, table) for table in further]
    zoo = [(name, definition(name).chunks[0]) for name in names() if others and name not in dict(tables)]
    tables += [(definition(name).title, build(name, p, m, v)) for name, v in zoo if exists(name, p, m, v)]
    reference = summary(build("1f1b", p, m)).messages
    members = []
    for title, table in tables:
        costs, passes = summary(table, *times), times[0] + times[1] + 2 * vocabulary_time(table, times[0]) / table.v
        metrics = {
            "makespan": Metric(float((1 + costs.bubble) * table.m * passes), "1", "derived"),
            "bubble_fraction": Metric(float(costs.bubble), "1", "derived"),
            "own_bubble_fraction": Metric(float(costs.own_bubble), "1", "derived"),
            "peak_stash": Metric(float(costs.peak_stash), "count", "derived"),
            "relative_messages": Metric(costs.messages / reference if reference else 0.0, "1", "derived"),
        }
        members.append(Member(table.name, title, table.v, metrics))
    return members


def absent(p: int, m: int, times: Sequence[Time] = (1, 2, 1)) -> list[str]:
    """Why the schedules that do not exist for p and m do not, in a sentence each; and DualPipe, which has no table."""
    named = ((name, definition(name).problem(p, m, definition(name).chunks[0])) for name in names())
    return [*(f"no {definition(name).title}: {problem}" for name, problem in named if problem), _dualpipe(p, m, times)]


def _dualpipe(p: int, m: int, times: Sequence[Time]) -> str:
    """What DualPipe's two directions come to: they are the two halves of a V, cut in half there (`dualpipev`).

    Ranks r and p-1-r hold the same two stages, each of them for half of the microbatches, so that each rank's order is
    that of DualPipeV on p/2 ranks with m/2 microbatches.
    """
    what = "DualPipe (weights held twice, microbatches from both ends; DeepSeek-V3, arXiv:2412.19437)"
    if p % 2 or m % 2 or m < 2 * p:
        return f"no {what}: p={p}, m={m}; needs an even p and an even m >= 2p; try m={2 * p + p % 2 * 2}"
    bubble = float(summary(build("dualpipev", p // 2, m // 2, 2), *times).bubble)
    return (
        f"{what}: as DualPipeV on p/2={p // 2} ranks with m/2={m // 2} microbatches, bubble {bubble:.1%}; published: "
        "(p/2-1)(F&B + B - 3W)"
    )


def simulated(members: Sequence[Member], p: int, m: int, settings: Mapping[str, Any], cluster: Cluster) -> list[Member]:
    """The members with the metrics of a training iteration on a cluster. Raises `UsageError` for impossible settings.

    Of `settings` what is not given is as in `MODEL`, with as many layers as make whole stages for all of them.
    """
    for name in settings:
        if name not in KEYS:
            hint = did_you_mean(name, KEYS) or f"; known: {', '.join(KEYS)}"
            raise UsageError(f"unknown key {name!r}{hint}")
    with_estimates = []
    for member in members:
        stages = p * member.v
        values = {"layers": max(LAYERS // stages, 1) * stages, **MODEL, **settings}
        values |= {"p": p, "v": member.v, "schedule": member.name}
        values["B"] = m * int(values.get("d", 1)) * int(values["b"])
        try:
            estimate = simulate(TrainingConfig.from_plain(values), cluster)
        except ConfigurationError as error:
            raise UsageError(f"{member.title}: {error}") from None
        metrics = simulated_metrics(estimate, cluster, SIMULATED)
        with_estimates.append(member._replace(metrics={**member.metrics, **metrics}, fits=estimate.fits))
    return with_estimates


def table(members: Sequence[Member]) -> Table:
    """A row per schedule; with the times of a training iteration if they were simulated."""
    columns = [
        *(Column("schedule", attrgetter("title")), Column("v", attrgetter("v"))),
        Column("time", metric("makespan"), "", "g"),
        Column("bubble", metric("bubble_fraction"), "%", ".1f", 0.01),
        Column("without flush", metric("own_bubble_fraction"), "%", ".1f", 0.01),
        Column("memory", metric("peak_stash"), "microbatches", "g"),
        Column("messages", metric("relative_messages"), "of 1F1B's", ".2f"),
    ]
    if any("iteration_time" in member.metrics for member in members):
        columns += [
            Column("iteration", metric("iteration_time"), "s", ".3f"),
            Column("model teraFLOP/s per GPU", metric("model_throughput_per_gpu"), form=".1f", factor=1e12),
            Column("MFU", metric("model_flops_utilization"), "%", ".1f", 0.01),
            Column("peak memory", lambda member: (metric("peak_memory")(member), member.fits), "GB", _gigabytes),
        ]
    return Table(columns, members)


def _gigabytes(memory: tuple[float, bool]) -> str:
    """Bytes, and whether they fit, as text."""
    return f"{memory[0] / 1e9:.1f}{'' if memory[1] else ' (too much)'}"
