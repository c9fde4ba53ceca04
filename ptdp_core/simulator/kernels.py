"""The time of single kernels on a GPU: GEMMs and memory-bound kernels. Shapes are in elements, times in seconds."""

from functools import lru_cache
from math import ceil

from ptdp_core.simulator.cluster import Cluster

FP16_BYTES = 2  # per element in the paper's runs; `Cluster.element_bytes` is that of a cluster's runs
USUAL_HEAD = 128  # elements of an attention head
USUAL_ROWS = 16 * 16_384  # queries of all heads at which the rates of fused attention were published
ALIGNED_BYTES = 16  # the size of one load of a tensor-core GEMM kernel: rows have to be multiples of it


class KernelModel:
    """The times of kernels on a cluster's GPU. Its only state is a cache of the GEMMs that it has timed.

    The factors of a GEMM are elements of `operand_bytes`, by default as wide as its result, the cluster's. Fused
    attention runs at `attention_share` of the rate that the cluster's fastest kernel has.
    """

    def __init__(self, cluster: Cluster, operand_bytes: float | None = None, attention_share: float = 1.0) -> None:
        self._cluster = cluster
        self._attention_share = attention_share
        self._operand_bytes = operand_bytes or cluster.element_bytes
        self._gemms: dict[tuple[int, int, int, int], float] = {}
        self._kernel_bandwidth = cluster.memory_bandwidth * cluster.memory_efficiency
        self._tiles = tuple(dict.fromkeys((*cluster.gemm_tiles, *((n, m) for m, n in cluster.gemm_tiles))))
        # Seconds of a multiprocessor on each tile: per element of the inner dimension, and to write the result.
        self._costs: list[tuple[float, float]] = []
        half, largest = cluster.gemm_tile_intensity, max(m * n / (m + n) for m, n in self._tiles)
        write_rate = cluster.memory_bandwidth * cluster.gemm_write_efficiency / cluster.multiprocessors
        for rows, columns in self._tiles:
            intensity = rows * columns / (rows + columns)
            relative = intensity / (intensity + half) * (largest + half) / largest
            rate = cluster.peak_flops * cluster.gemm_wave_efficiency * relative / cluster.multiprocessors
            writing = cluster.element_bytes * rows * columns / write_rate
            self._costs.append((2 * rows * columns / rate, writing))

    def gemm(self, M: int, N: int, K: int, batch: int = 1) -> float:
        """Seconds of `batch` products (M x K) times (K x N), with the gap to the next kernel.

        It is the largest of three times. The first is that of whole waves of tiles, with the best tile size; a tile
        takes its inner loop and then its write. The second is the FLOPs over the power-limited plateau, of which a
        tile reaches half if its inner loop is `gemm_half_depth` bytes long, or over the rate of the kernels that take
        rows of any length. The third is the bytes over the bandwidth.
        """
        shape = (M, N, K, batch)
        if shape not in self._gemms:
            cluster = self._cluster
            counts = _waves(self._tiles, cluster.multiprocessors, M, N, batch)
            waves = min(
                count * (K * per_element + write)
                for count, (per_element, write) in zip(counts, self._costs, strict=True)
            )
            flops = 2 * M * N * K * batch
            plateau = self.plateau(flops) * (1 + cluster.gemm_half_depth / (K * self._operand_bytes))
            if any(size * self._operand_bytes % ALIGNED_BYTES for size in (M, N, K)):
                plateau = max(plateau, flops / (cluster.gemm_unaligned * cluster.peak_flops))
            traffic = batch * (self._operand_bytes * (M * K + K * N) + cluster.element_bytes * M * N)
            traffic_time = traffic / (cluster.gemm_memory_efficiency * cluster.memory_bandwidth)
            self._gemms[shape] = max(waves, plateau, traffic_time) + cluster.kernel_gap
        return self._gemms[shape]

    def plateau(self, flops: float) -> float:
        """Seconds of `flops` FLOPs at the rate that large products sustain under the power limit."""
        return flops / (self._cluster.gemm_plateau * self._cluster.peak_flops)

    def attention(self, flops: float, seq: int, head: int, backward: bool, rows: int, kernel: str = "") -> float:
        """Seconds of a pass of fused attention with a causal mask, which hides half of the `flops`.

        Its rate grows with the sequence, whose ends fill no tile, and with the head, over whose elements it pays for
        softmax: half of what long sequences reach at `attention_half_length` tokens, and likewise by head, relative to
        one of 128 elements. It grows with the queries of all heads, too, `rows`: few do not keep all multiprocessors
        busy, as the last tiles have the most keys. An earlier `kernel` has its own rate. On a cluster without these
        numbers all FLOPs cost what large GEMMs cost.
        """
        cluster = self._cluster
        share = cluster.attention_backward if backward else cluster.attention_forward
        if not share:
            return self.plateau(flops)
        long, half = seq / (seq + cluster.attention_half_length), cluster.attention_half_head
        wide = head / (head + half) * (1 + half / USUAL_HEAD)
        few = cluster.attention_half_rows_backward if backward else cluster.attention_half_rows_forward
        full = min(1.0, rows / (rows + few) * (1 + few / USUAL_ROWS))
        generation: float = getattr(cluster, kernel) if kernel else self._attention_share
        return flops / 2 / (generation * share * long * wide * full * cluster.peak_flops)

    def memory_bound(self, traffic_bytes: float, kernels: int) -> float:
        """Seconds of `kernels` memory-bound kernels that read and write `traffic_bytes` together."""
        return traffic_bytes / self._kernel_bandwidth + kernels * self._cluster.kernel_gap

    def streamed(self, traffic_bytes: float) -> float:
        """Seconds to read and write `traffic_bytes` in a few passes over all parameters at once (multi-tensor)."""
        return traffic_bytes / (self._cluster.memory_bandwidth * self._cluster.stream_efficiency)


@lru_cache(maxsize=4096)  # a calibration tries thousands of clusters that differ in other numbers
def _waves(tiles: tuple[tuple[int, int], ...], multiprocessors: int, M: int, N: int, batch: int) -> tuple[int, ...]:
    """For each tile size, the number of waves that the tiles of `batch` M x N results take."""
    return tuple(ceil(ceil(M / rows) * ceil(N / columns) * batch / multiprocessors) for rows, columns in tiles)
