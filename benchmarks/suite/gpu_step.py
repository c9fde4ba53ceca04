"""Whole training steps of the engine at sizes that fill one GPU, and where their time goes.

Each point trains a GPT on random tokens: operators or sdpa, with and without recomputation and dropout, fused kernels
or the reference. MFU compares the fastest step with the fastest matrix product measured on this device. A profile of
one step says which share of its time the device spent on products, attention and other kernels, and which it was idle,
because the host did not issue work soon enough. With --quick, or on a CPU, the models are toys.

No GPU has run it yet.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.harness.points import Once, attempted, rate, seconds
from benchmarks.harness.profiling import shares
from benchmarks.harness.setup import Setup
from benchmarks.harness.timing import measure, wall_timer
from benchmarks.harness.training import build, fastest_product, parameters_of
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from ptdp_core.launch.report import peak_memory
from results.records import Metric, PointResult

LIMIT_S = 8.0  # of samples of a point
NOTES = (
    "Whole steps: forward, backward, clipping, AdamW, as the host waits for them. Model FLOPs: without recomputation.",
    "MFU: model FLOP/s over the fastest square matrix product measured here, in the same precision.",
    "Shares are of one profiled step; idle is what no kernel covers.",
)


@dataclass(frozen=True)
class StepCase:
    """A point: a model by name, and how it is trained."""

    model: str
    b: int
    m: int
    attention: str = "sdpa"
    recompute: str = "none"
    dropout: float = 0.0
    kernels: str = "auto"
    fused_accumulation: bool = False

    @property
    def label(self) -> str:
        """What distinguishes the case from the others of its model."""
        extras = [f"dropout {self.dropout:g}"] * bool(self.dropout) + [self.kernels] * (self.kernels != "auto")
        extras += ["fused accumulation"] * self.fused_accumulation
        return ", ".join([self.attention, f"recompute {self.recompute}", f"b={self.b} m={self.m}", *extras])


# GPT-2 XL, and the paper's 1.7-billion-parameter model with a head dimension that sdpa has fast kernels for.
MODELS = {"GPT-2 XL": ModelConfig(48, 1600, 25, 1024, 50257), "GPT 1.65B": ModelConfig(24, 2304, 24, 2048, 51200)}
TOYS = {name: ModelConfig(2, 64, 4, 32, 256) for name in MODELS}
CASES = tuple(
    StepCase(model, *sizes, **how)
    for model, small, large in (("GPT-2 XL", (4, 2), (16, 4)), ("GPT 1.65B", (2, 2), (8, 4)))
    for sizes, how in (
        (small, {}),
        (large, {}),
        (large, {"fused_accumulation": True}),
        (small, {"attention": "operators"}),
        (small, {"attention": "operators", "recompute": "full"}),
        (large, {"recompute": "full"}),
        (large, {"attention": "operators", "recompute": "full"}),
        (small, {"dropout": 0.1}),
        (small, {"attention": "operators", "recompute": "full", "dropout": 0.1}),
        (small, {"attention": "operators", "recompute": "full", "kernels": "reference"}),
        (small, {"kernels": "reference"}),
    )
)


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point per case; the peak of a matrix product is measured once for all."""
    dtype = "bf16" if setup.on_gpu else "fp32"
    peak = Once(partial(fastest_product, setup, torch.bfloat16 if setup.on_gpu else torch.float32))
    toys = setup.quick or not setup.on_gpu
    for case in CASES:
        model = (TOYS if toys else MODELS)[case.model]
        parallel = ParallelConfig(b=case.b, B=case.b * case.m, recompute=case.recompute, attention=case.attention)
        names = ("attention", "recompute", "dropout", "kernels", "fused_accumulation")
        parameters = {**parameters_of(model, parallel), **{name: getattr(case, name) for name in names}, "dtype": dtype}
        engine = EngineSettings(
            dtype=dtype, dropout=case.dropout, kernels=case.kernels, fused_accumulation=case.fused_accumulation
        )
        yield attempted(
            setup, case.model, case.label, parameters, partial(_metrics, setup, model, parallel, engine, peak)
        )


def _metrics(
    setup: Setup, model: ModelConfig, parallel: ParallelConfig, engine: EngineSettings, peak: Callable[[], float]
) -> dict[str, Metric]:
    if setup.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainer, batch, _ = build(model, parallel, setup.device, engine, engine.kernels)

    def step() -> None:
        trainer.step(batch)

    samples = measure(step, samples=setup.samples, limit_s=LIMIT_S, timer=wall_timer(setup.device))
    model_flops = model_flops_per_iteration(model, parallel.B)
    profiled = shares(step, samples.median, setup.on_gpu)
    return {
        "time": seconds(samples),
        "tokens": rate(parallel.B * model.seq, samples, "tokens/s"),
        "eq3_speed": rate(flops_per_iteration(model, parallel.B), samples, "FLOP/s"),
        "model_speed": rate(model_flops, samples, "FLOP/s"),
        "mfu": Metric(model_flops / samples.minimum / peak(), "1", "derived"),
        "peak_memory": Metric(memory := peak_memory(trainer.groups.device), "B", "measured", (memory,)),
        **{kind: Metric(share, "1", "measured", (share,)) for kind, share in profiled.items()},
    }
