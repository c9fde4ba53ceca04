"""Communication times: where a group's GPUs sit, and what collectives and point-to-point messages cost there.

GPUs are numbered as Megatron-LM does: tensor rank fastest, then data rank, then pipeline rank; nodes hold consecutive
GPUs. Every GPU has an HCA of its own, so a group with g GPUs on a node has g HCAs there. Bytes in, seconds out.
"""

from dataclasses import dataclass
from math import ceil, log2

from ptdp_core.simulator.cluster import Cluster


@dataclass(frozen=True)
class Group:
    """A communication group: `size` GPUs, `per_node` of them on each node."""

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        """Nodes the group spans."""
        return ceil(self.size / self.per_node)


def tensor_group(t: int, gpus_per_node: int) -> Group:
    """t consecutive GPUs."""
    return Group(t, min(t, gpus_per_node))


def data_group(t: int, d: int, gpus_per_node: int) -> Group:
    """d GPUs, t apart."""
    return Group(d, min(d, max(1, gpus_per_node // t)))


class NetworkModel:
    """Communication times on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._nvlink = {
            2: (cluster.nvlink_latency_2, cluster.nvlink_bandwidth_2),
            4: (cluster.nvlink_latency_4, cluster.nvlink_bandwidth_4),
            8: (cluster.nvlink_latency_8, cluster.nvlink_bandwidth_8),
        }

    def _inside_node(self, gpus: int) -> tuple[float, float]:
        """Latency and bus bandwidth over `gpus` GPUs of a node, between the measured 2, 4 and 8 by their logarithm."""
        if gpus in self._nvlink:
            return self._nvlink[gpus]
        low = 2 if gpus < 4 else 4
        high = 2 * low
        share = min(log2(gpus / low), 1.0)
        (latency_low, bandwidth_low), (latency_high, bandwidth_high) = self._nvlink[low], self._nvlink[high]
        return (
            latency_low + share * (latency_high - latency_low),
            bandwidth_low + share * (bandwidth_high - bandwidth_low),
        )

    def _latency_and_bandwidth(self, group: Group, hca_bandwidth: float) -> tuple[float, float]:
        """Latency of a ring, twice around: so much for each hop; and the bus bandwidth of its slowest link."""
        latency, bandwidth = 0.0, float("inf")
        if group.per_node > 1:
            in_node, bandwidth = self._inside_node(group.per_node)
            latency = in_node * (group.size - group.nodes) / (group.per_node - 1)
        if group.nodes > 1:
            latency += 2 * group.nodes * self._cluster.network_latency
            bandwidth = min(bandwidth, group.per_node * hca_bandwidth)
        return latency, bandwidth

    def all_reduce(self, group: Group, size_bytes: float) -> float:
        """Seconds to all-reduce `size_bytes` on every GPU: a ring moves 2(k-1)/k of it over each link."""
        return self._ring(group, size_bytes, self._cluster.tensor_hca_bandwidth)

    def gradient_all_reduce(self, group: Group, size_bytes: float) -> float:
        """The same for gradients, once an iteration: at the rate the paper saw for it between nodes (Section 5.9)."""
        return self._ring(group, size_bytes, self._cluster.allreduce_hca_bandwidth)

    def _ring(self, group: Group, size_bytes: float, hca_bandwidth: float) -> float:
        if group.size == 1:
            return 0.0
        latency, bandwidth = self._latency_and_bandwidth(group, hca_bandwidth)
        return latency + 2 * (group.size - 1) / group.size * size_bytes / bandwidth

    def all_gather(self, group: Group, size_bytes: float) -> float:
        """Seconds to gather shards into `size_bytes` on every GPU (also: to reduce-scatter as much): half a ring."""
        if group.size == 1:
            return 0.0
        latency, bandwidth = self._latency_and_bandwidth(group, self._cluster.tensor_hca_bandwidth)
        return latency + (group.size - 1) / group.size * size_bytes / bandwidth

    def message(self, size_bytes: float, between_nodes: bool, concurrent: int) -> float:
        """Seconds for one point-to-point message while its GPU sends (or receives) `concurrent` of them at a time."""
        if not between_nodes:
            return concurrent * size_bytes / self._cluster.nvlink_p2p_bandwidth
        pair, shared = self._cluster.p2p_bandwidth, self._cluster.hca_bandwidth
        return max(size_bytes / pair, concurrent * size_bytes / shared)
