"""The list of the benchmarks, each of which is a module of the annex `bench`; and where their records are."""

from dataclasses import dataclass
from pathlib import Path

from results.records import PointResult, Record

FOLDER = "benchmarks"  # the folder of benchmarks' records, below the folder of results
CANARY = "canary"  # the series of the canaries' points
NOT_QUIET = "The machine was not quiet"  # the beginning of the note that says that the canaries differ


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as `list` shows it.

    `columns` are the metrics of its printed table, `section` is the section of the paper that it belongs to. A
    benchmark with `uses_device` False runs on the CPU even if there is a GPU.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    section: str | None = None
    uses_device: bool = True


BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("gemm", "matrix products: squares, and those of a transformer layer", ("time", "speed")),
        Benchmark("memory", "bandwidth of a copy, and the gap between kernels", ("time", "bandwidth")),
        Benchmark(
            "fused_kernels",
            "fused operators: time, speed-up over eager PyTorch, share of a copy's bandwidth",
            (
                *(f"{way}_{name}" for way in ("forward", "backward") for name in ("time", "speedup", "share_of_copy")),
                "bandwidth",
            ),
            "Section 4.2",
        ),
        Benchmark("layer", "one transformer layer, forward and backward", ("time", "speed"), "Section 2.3"),
        Benchmark("p2p", "messages between two pipeline stages, by size", ("time", "bandwidth"), "Section 4.1"),
        Benchmark(
            "collectives",
            "all-reduce, all-gather, reduce-scatter, by size and number of ranks",
            ("time", "bus_bandwidth"),
            "Section 3",
        ),
        Benchmark("pipeline_step", "one batch through a pipeline, by schedule", ("time", "tokens"), "Section 2.2"),
        Benchmark(
            "train_step",
            "the engine's training step against plain PyTorch, DDP, FSDP2, torch's pipelining, parallelize_module",
            ("time", "other_time", "ratio", "ratio_low", "ratio_high", "ratio_of_best", "tokens", "mfu"),
        ),
        Benchmark(
            "gpu_step",
            "training steps at sizes that fill a GPU: MFU, and where the time goes",
            (
                *("time", "ratio", "tokens", "model_speed", "mfu", "peak_memory"),
                *("product_share", "attention_share", "other_share", "idle_share"),
            ),
        ),
        Benchmark("optimizer_step", "clipping and AdamW on the flat buffers", ("time", "parameters")),
        Benchmark("checkpoint", "saving and loading a checkpoint", ("time", "bandwidth"), "Section 5.10"),
        Benchmark("data_loading", "microbatches out of a token file", ("time", "tokens"), uses_device=False),
        Benchmark("simulator_rate", "configurations simulated per second", ("time", "rate"), uses_device=False),
        Benchmark("startup", "starting the command line", ("time",), uses_device=False),
    )
}


def record_path(results: Path, name: str) -> Path:
    """The path of a benchmark's record."""
    return results / FOLDER / name / "record.json"


def results_of(record: Record) -> list[PointResult]:
    """The points of a benchmark's record without the canaries'."""
    return [point for point in record.points if point.series != CANARY]
