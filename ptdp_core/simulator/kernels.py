"""The times of single kernels on a GPU, and of work: GEMMs, memory-bound kernels, collectives.

Shapes are in elements, times in seconds.
"""

from dataclasses import replace
from functools import lru_cache
from itertools import starmap
from math import ceil, fsum

from ptdp_core.config import ParallelConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.parts import Work
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.network import Group, NetworkModel, group_of
from ptdp_core.simulator.software import Software

FP16_BYTES = 2  # per element in the paper's runs; `Cluster.element_bytes` is that of a cluster's runs
USUAL_HEAD = 128  # elements of an attention head
USUAL_ROWS = 16 * 16_384  # queries of all heads at which the rates of fused attention were published
# The rates that differ from GPU to GPU, as each has its own clock under the power limit.
OF_THE_CLOCK = (
    *("gemm_plateau", "gemm_wave_efficiency", "fp8_gemm_plateau", "fp4_gemm_plateau"),
    *("attention_forward", "attention_backward"),
)
MOST_GEMMS = 1 << 16  # that are kept, of all clusters together
ALIGNED_BYTES = 16  # the size of one load of a tensor-core GEMM kernel: rows have to be multiples of it


class KernelModel:
    """The times of kernels on a cluster's GPU.

    The factors of a GEMM are elements of `operand_bytes`, by default as wide as its result, the cluster's. Fused
    attention runs at `attention_share` of the rate that the cluster's fastest kernel has.
    """

    def __init__(self, cluster: Cluster, operand_bytes: float | None = None, attention_share: float = 1.0) -> None:
        self._cluster = cluster
        self._attention_share = attention_share
        self._operand_bytes = operand_bytes or cluster.element_bytes
        self.sustained = cluster.gemm_plateau * cluster.peak_flops  # FLOP/s of large products, under the power limit
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

    def _gemm(self, M: int, N: int, K: int, batch: int = 1) -> float:
        """Seconds of `batch` products (M x K) times (K x N), with the gap to the next kernel.

        It is the largest of three times. The first is that of whole waves of tiles, with the best tile size; a tile
        takes its inner loop and then its write. The second is the FLOPs over the power-limited plateau, of which a
        tile reaches half if its inner loop is `gemm_half_depth` bytes long, or over the rate of the kernels that take
        rows of any length. The third is the bytes over the bandwidth.
        """
        cluster = self._cluster
        counts = _waves(self._tiles, cluster.multiprocessors, M, N, batch)
        costs = zip(counts, self._costs, strict=True)
        waves = min([count * (K * per_element + write) for count, (per_element, write) in costs])
        flops = 2 * M * N * K * batch
        plateau = flops / self.sustained * (1 + cluster.gemm_half_depth / (K * self._operand_bytes))
        if any(size * self._operand_bytes % ALIGNED_BYTES for size in (M, N, K)):
            plateau = max(plateau, flops / (cluster.gemm_unaligned * cluster.peak_flops))
        traffic = batch * (self._operand_bytes * (M * K + K * N) + cluster.element_bytes * M * N)
        traffic_time = traffic / (cluster.gemm_memory_efficiency * cluster.memory_bandwidth)
        return max(waves, plateau, traffic_time) + cluster.kernel_gap

    gemm = lru_cache(maxsize=MOST_GEMMS)(_gemm)

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
            return flops / self.sustained
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
    return tuple([ceil(ceil(M / rows) * ceil(N / columns) * batch / multiprocessors) for rows, columns in tiles])


@lru_cache(maxsize=64)
def narrow_kernels(cluster: Cluster, elements: str) -> KernelModel:
    """The times of products of 'fp8' or 'fp4' on a cluster's GPU; one object for each.

    Raises ConfigurationError if its file gives none.
    """
    peak, plateau, size, example = {
        "fp8": (cluster.fp8_peak_flops, cluster.fp8_gemm_plateau, 1.0, "h100"),
        "fp4": (cluster.fp4_peak_flops, cluster.fp4_gemm_plateau, 1 / 2, "b200"),
    }[elements]
    if not peak:
        raise ConfigurationError(
            f"fp8_recipe on {cluster.name}, whose file has no {elements}_peak_flops; needs a GPU with "
            f"{elements.upper()}; try fp8_recipe='none', or the cluster {example}"
        )
    return KernelModel(replace(cluster, peak_flops=peak, gemm_plateau=plateau), operand_bytes=size)


@lru_cache(maxsize=1024)
def slowest_of(cluster: Cluster, gpus: int) -> Cluster:
    """The cluster with the products and attention of the slowest of so many GPUs, for which all others wait.

    One object for each number; itself without `gpu_spread`. The expected largest of `gpus` normal deviates is that of
    rank gpus by Blom (1958).
    """
    if not cluster.gpu_spread or gpus == 1:
        return cluster
    from statistics import NormalDist  # here, as light commands have no use for it

    slower = 1 + cluster.gpu_spread * NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))
    return replace(cluster, **{name: getattr(cluster, name) / slower for name in OF_THE_CLOCK})


class Gpu:
    """A GPU of a cluster, as a training program uses it: the times of its kernels, of collectives, and of work of both.

    The program is that of the cluster file unless `software` is another.
    """

    def __init__(self, cluster: Cluster, software: Software | None = None) -> None:
        self.cluster = cluster
        self.software = cluster.software if software is None else software
        earlier = next(
            (name for name in ("flash_attention_1", "flash_attention_2") if getattr(self.software, name)), ""
        )
        self.kernels = KernelModel(cluster, attention_share=getattr(cluster, earlier) if earlier else 1.0)
        self.network = NetworkModel(cluster)

    def group(self, parallel: ParallelConfig, name: str) -> Group:
        """Where the GPUs of a group are (`ParallelConfig.groups`)."""
        ranks = parallel.groups[name]
        return group_of(ranks.number, self.cluster.gpus_per_node, ranks.apart)

    def seconds(self, work: Work, group: Group, hidden: float = 0.0) -> float:
        """Seconds of work on a GPU of a tensor-parallel group, less the `hidden` seconds of overlapped collectives.

        It takes at least as long as the host needs to issue all of it.
        """
        device = fsum(starmap(self.kernels.gemm, work.gemms))
        if work.attention:
            device += fsum(starmap(self.kernels.attention, work.attention))
        if work.narrow_gemms:
            device += fsum([narrow_kernels(self.cluster, elements).gemm(*gemm) for elements, gemm in work.narrow_gemms])
        # The bytes that memory-bound kernels move are counted in fp16, except those that are fp32 in any precision.
        in_precision = work.traffic_bytes - work.wide_bytes
        traffic = work.traffic_bytes + (self.cluster.element_bytes / FP16_BYTES - 1) * in_precision
        device += self.kernels.memory_bound(traffic, work.kernels)
        device += (self.communication(work, group) if group.size > 1 else 0.0) - hidden
        if self.software.cuda_graphs:
            return device
        host = work.calls * self.cluster.host_per_call
        return device + host if self.software.blocking_launches else max(device, host)

    def communication(self, work: Work, group: Group) -> float:
        """Seconds of the collectives of work on a GPU of a tensor-parallel group."""
        width = self.cluster.element_bytes / FP16_BYTES
        return fsum([self.network.all_reduce(group, width * size) for size in work.all_reduce_bytes]) + fsum(
            [self.network.one_way(group, width * size) for size in work.one_way_bytes]
        )

    @property
    def taken(self) -> float:
        """The share of a GPU's multiprocessors that a collective has beside a computation."""
        return self.cluster.exchange_multiprocessors / self.cluster.multiprocessors
