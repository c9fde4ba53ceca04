"""The list of the benchmarks, each of which is a module `benchmarks.suite.<name>`. Listing them imports none."""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from benchmarks.harness.setup import Setup
from results.records import PointResult
from results.records.errors import UsageError, did_you_mean


class Suite(Protocol):
    """The module of a benchmark: `NOTES` are sentences for its record, and `points` measures."""

    NOTES: tuple[str, ...]

    def points(self, setup: Setup) -> Iterator[PointResult]: ...


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

    def load(self) -> Suite:
        """Import the benchmark's module, and with it what that needs (torch as a rule)."""
        return cast(Suite, import_module(f"benchmarks.suite.{self.name}"))


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
            ("time", "other_time", "ratio", "ratio_of_best", "tokens", "mfu"),
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


def find(name: str) -> tuple[Benchmark, str]:
    """The benchmark of that name, and the name of its point that may follow a slash: `gpu_step/small`, else "".

    Raises `UsageError` with the nearest name if there is none.
    """
    name, _, point = name.partition("/")
    if name not in BENCHMARKS:
        hint = did_you_mean(name, tuple(BENCHMARKS))
        raise UsageError(f"unknown benchmark {name!r}{hint} (reproduce bench list shows all)")
    if point and point not in (known := getattr(BENCHMARKS[name].load(), "NAMES", ())):
        there = f"{did_you_mean(point, known)}; there are {', '.join(known)}" if known else "; its points have no names"
        raise UsageError(f"unknown point {point!r} of the benchmark {name}{there}")
    return BENCHMARKS[name], point
