"""The numbers between nodes from what nccl-tests prints of collectives over several of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, log, log2
from typing import NamedTuple

from ptdp_core.simulator import Cluster
from ptdp_core.simulator.network import Group, NetworkModel
from reproduce.annex.calibrate.lines import FitPoint, Fitted

Numbers = dict[str, tuple[Fitted, str]]


class SeveralNodes(NamedTuple):
    """Collectives over `nodes` nodes: all-reduces, or a gather and a scatter in their place.

    `latency` and `rate` are of the line through their times and bytes on the bus; `rows` are those of the all-reduces.
    """

    source: str
    ranks: int
    nodes: int
    latency: Fitted
    rate: Fitted
    rows: Sequence[FitPoint]


def numbers(measured: SeveralNodes, cluster: Cluster) -> tuple[Numbers, str]:
    """The numbers of a network that a cluster's nodes have by these collectives, and a sentence about its rate.

    Over more than two nodes, and of a gather and a scatter, the bytes on the bus are those of a node's adapters. Over
    two nodes an all-reduce by a tree sends every byte once in each direction, where a ring sends 2(k-1)/k of it, and
    which of them the library took is not known: messages and gathers then have the cluster's own rate where that lies
    between the two, else the nearer end.
    """
    adapters = cluster.gpus_per_node / cluster.gpus_per_hca
    once = measured.ranks / (2 * (measured.ranks - 1))
    per_adapter = Fitted(*(rate / adapters for rate in measured.rate))
    tree = measured.nodes == 2 and bool(measured.rows)
    least = per_adapter.low * (once if tree else 1.0)
    of = f"{measured.source}: over {measured.nodes} nodes"
    wire, why = per_adapter, f"{of}, for each adapter"
    if tree:
        own = cluster.tensor_hca_bandwidth
        wire = Fitted(min(max(own, once * per_adapter.value), per_adapter.value), least, per_adapter.high)
        why = f"{of}, between what a tree and what a ring would send; there as near as can be to {own / 1e9:.4g} GB/s"
    share = cluster.p2p_bandwidth / cluster.hca_bandwidth
    beyond = "; over more nodes no more than tensor_hca_bandwidth" if tree else ""
    found = {
        "hca_bandwidth": (wire, why),
        "p2p_bandwidth": (Fitted(*(share * each for each in wire)), f"{share:.3g} of hca_bandwidth, as on the base"),
        "tensor_hca_bandwidth": (wire, why),
        "allreduce_hca_bandwidth": (per_adapter._replace(low=least), f"{of}, bus bandwidth for each adapter{beyond}"),
    }
    hops = 2 * (cluster.gpus_per_node - 1 + ceil(log2(measured.nodes)))
    hop = Fitted(*(latency / hops for latency in measured.latency))
    found["tree_hop_latency"] = hop, f"{of}: what does not depend on the size, over {hops} hops of a tree"
    bus = measured.rate.value
    largest = max(row.amount / row.seconds for row in measured.rows) if measured.rows else bus
    said = f"{measured.nodes} nodes of {cluster.gpus_per_node}: {bus / 1e9:.4g} GB/s on the bus"
    said += f" ({largest / 1e9:.4g} at the best size)" if largest > bus else ""
    return found, said + (f", at least {once * bus / 1e9:.4g} out of each node" if tree else "")


def error(measured: SeveralNodes, cluster: Cluster, found: Mapping[str, tuple[Fitted, str]]) -> float:
    """Mean |log(model / measured)| of the all-reduces with these numbers."""
    group = Group(measured.ranks, cluster.gpus_per_node)
    network = NetworkModel(replace(cluster, **{name: number.value for name, (number, _) in found.items()}))  # type: ignore[arg-type]
    share = 2 * (measured.ranks - 1) / measured.ranks
    ours = [network.all_reduce(group, row.amount / share, gradients=True) / row.seconds for row in measured.rows]
    return sum(abs(log(ratio)) for ratio in ours) / len(ours)
