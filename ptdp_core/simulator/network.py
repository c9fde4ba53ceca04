"""The times of collectives and point-to-point messages, by where a group's GPUs are.

GPUs are numbered as in Megatron-LM: tensor rank fastest, then data rank, then pipeline rank; nodes hold consecutive
GPUs. How many HCAs a group can use alone depends on how many of its GPUs are on a node. Sizes are in bytes, times in
seconds.
"""

from functools import lru_cache
from math import ceil, log2
from typing import NamedTuple

from ptdp_core.simulator.cluster import Cluster

# The rates of a cluster file between nodes, and inside one.
NETWORK = ("hca_bandwidth", "p2p_bandwidth", "tensor_hca_bandwidth", "allreduce_hca_bandwidth", "zero3_bandwidth")
NVLINK = ("nvlink_bandwidth_2", "nvlink_bandwidth_4", "nvlink_bandwidth_8", "nvlink_p2p_bandwidth")


class Group(NamedTuple):
    """A communication group of `size` GPUs, `per_node` of them on each node."""

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        """The number of nodes that the group spans."""
        return ceil(self.size / self.per_node)


@lru_cache(maxsize=1024)
def group_of(size: int, gpus_per_node: int, apart: int = 1) -> Group:
    """The group of so many GPUs whose ranks are `apart`: neighbours in a tensor-parallel group.

    Replicas of one shard are t apart, those of experts as far as their ranks are many.
    """
    return Group(size, min(size, max(1, gpus_per_node // apart)))


def leaves_node(ranks: int, pp: int, other: int, gpus_per_node: int) -> bool:
    """Whether any of the `ranks` of pipeline rank pp has its peer on another pipeline rank on another node."""
    places = ((pp * ranks + i, other * ranks + i) for i in range(ranks))
    return any(rank // gpus_per_node != peer // gpus_per_node for rank, peer in places)


class NetworkModel:
    """Communication times on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nvlink = {
            2: (cluster.nvlink_latency_2, cluster.nvlink_bandwidth_2),
            4: (cluster.nvlink_latency_4, cluster.nvlink_bandwidth_4),
            8: (cluster.nvlink_latency_8, cluster.nvlink_bandwidth_8),
        }
        self._known: dict[tuple[Group, bool], tuple[float, ...]] = {}  # what `_ways` found

    def _inside_node(self, gpus: int) -> tuple[float, float]:
        """The latency and the bus bandwidth over `gpus` GPUs of a node.

        Between and beyond the measured numbers 2, 4 and 8, the latency follows the logarithm of the number of GPUs. The
        bandwidth beyond 8 is that of 8, since a switch gives every GPU its full rate.
        """
        if gpus in self._nvlink:
            return self._nvlink[gpus]
        low = 2 if gpus < 4 else 4
        high = 2 * low
        share = log2(gpus / low)
        (latency_low, bandwidth_low), (latency_high, bandwidth_high) = self._nvlink[low], self._nvlink[high]
        return (
            latency_low + share * (latency_high - latency_low),
            bandwidth_low + min(share, 1.0) * (bandwidth_high - bandwidth_low),
        )

    def _rail_bandwidth(self, group: Group, hca_bandwidth: float) -> float:
        """The B/s that a group has out of a node, in one direction.

        A group of whole nodes uses every HCA. Groups side by side on a node use the HCAs that the library finds nearest
        to their GPUs: the first HCA of a PCIe switch, for all GPUs on that switch. A ring enters a node at one GPU and
        leaves it at another; where these are on two switches, the way to the HCA crosses the CPU, at half the rate.
        """
        cluster = self._cluster
        per_node, on_switch = cluster.gpus_per_node, min(cluster.gpus_per_switch, cluster.gpus_per_node)
        if group.per_node >= per_node:
            return hca_bandwidth * per_node / cluster.gpus_per_hca
        sharing = max(on_switch, cluster.gpus_per_hca)
        crossing = 2 if group.per_node > 1 and per_node // group.per_node >= on_switch > 1 else 1
        return hca_bandwidth * group.per_node / (sharing * crossing)

    def _ways(self, group: Group, gradients: bool = False) -> tuple[float, ...]:
        """The latency and the bandwidth of a group's collectives: around a ring, and of an all-reduce by a tree.

        A ring goes around twice, hop by hop, at the bus bandwidth of its slowest link. A double binary tree is over
        nodes, in each of which the GPUs make a chain; every link carries the whole tensor twice, once up to the root
        and once down, whatever the number of GPUs. Its bandwidth is 0 inside a node, where there is none.
        """
        if known := self._known.get((group, gradients)):
            return known
        cluster, nodes = self._cluster, group.nodes
        latency, nvlink = self._inside_node(group.per_node) if group.per_node > 1 else (0.0, float("inf"))
        ring, bandwidth, hops, tree = 0.0, nvlink, 0.0, 0.0
        if group.per_node > 1:
            ring = latency * (group.size - nodes) / (group.per_node - 1)
        if nodes > 1:
            hca = cluster.allreduce_hca_bandwidth if gradients else cluster.tensor_hca_bandwidth
            ring += 2 * nodes * cluster.network_latency
            bandwidth = min(nvlink, self._rail_bandwidth(group, hca))
            hops = 2 * (group.per_node - 1 + ceil(log2(nodes))) * cluster.tree_hop_latency
            tree = bandwidth / 2
        self._known[group, gradients] = ring, bandwidth, hops, tree
        return ring, bandwidth, hops, tree

    def all_reduce(self, group: Group, size_bytes: float, gradients: bool = False) -> float:
        """Seconds to all-reduce `size_bytes` on every GPU: by a ring or, between nodes, a tree if that is faster.

        A ring of k GPUs moves 2(k-1)/k of the tensor over each link. Those of `gradients` come once an iteration
        (Section 5.9), and have an HCA's rate of their own.
        """
        if group.size == 1:
            return 0.0
        latency, bandwidth, hops, tree = self._ways(group, gradients)
        ring = latency + 2 * (group.size - 1) / group.size * size_bytes / bandwidth
        return min(ring, hops + size_bytes / tree) if tree else ring

    def one_way(self, group: Group, size_bytes: float, rounds: int = 1) -> float:
        """Seconds of a layer's all-gather or reduce-scatter of `size_bytes`: half of a ring's all-reduce.

        To put together a boundary tensor, or a recomputed block's input, takes the latency of two `rounds`.
        """
        if group.size == 1:
            return 0.0
        latency, bandwidth, *_ = self._ways(group)
        return latency * rounds / 2 + (group.size - 1) / group.size * size_bytes / bandwidth

    def all_to_all(self, group: Group, size_bytes: float) -> float:
        """Seconds in which each GPU of a group sends 1/k of `size_bytes` to each of the k, itself included."""
        others = (group.per_node - 1) / group.size, (group.size - group.per_node) / group.size
        return self.exchange(group, *(share * size_bytes for share in others))

    def exchange(self, group: Group, inside_bytes: float, across_bytes: float) -> float:
        """Seconds in which each GPU of a group sends so many bytes to others of its node, and to other nodes.

        Both go at the same time.
        """
        if group.size == 1:
            return 0.0
        latency = inside = across = 0.0
        if group.per_node > 1:
            in_node, bandwidth = self._inside_node(group.per_node)
            latency += in_node / 2
            inside = inside_bytes / bandwidth
        if group.nodes > 1:
            latency += self._cluster.network_latency
            across = group.per_node * across_bytes / self._rail_bandwidth(group, self._cluster.tensor_hca_bandwidth)
        return latency + max(inside, across)

    def message(self, size_bytes: float, between_nodes: bool, concurrent: int) -> float:
        """Seconds of a point-to-point message while its GPU sends (or receives) `concurrent` of them at once."""
        if not between_nodes:
            return concurrent * size_bytes / self._cluster.nvlink_p2p_bandwidth
        shared = self._cluster.hca_bandwidth / self._cluster.gpus_per_hca  # all GPUs of a node send at the same time
        return max(size_bytes / self._cluster.p2p_bandwidth, concurrent * size_bytes / shared)
