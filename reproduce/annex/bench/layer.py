"""Times a transformer layer of the engine, forward and backward, with t = 1 and t = 2 (Section 2.3).

Attention is built from fused operators as in the paper, or PyTorch's own (sdpa). A layer's forward pass is
24*b*s*h^2 + 4*b*s^2*h FLOP (the GEMMs of eq. 3), its backward pass twice that; speed is per rank.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, timed
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.timing import Samples, Step, take_turns
from benchmarks.harness.training import build, parameters_of
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings
from results.records import PointResult

LIMIT_S = 5.0
PASSES = {"forward": 1, "backward": 2}  # and their FLOP, as multiples of a forward pass


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point forward and one backward for each kind of attention, with t = 1 and t = 2."""
    model = model_for(setup)
    for t in (1, 2):
        parallel = ParallelConfig(t=t, b=1 if setup.quick else 2, B=1 if setup.quick else 2, recompute="none")
        for attention in ("operators", "sdpa"):
            arguments = (model, parallel, attention, setup)
            measured = Once(partial(run_ranks, measure_here, t, arguments, setup.device))
            for name in PASSES:
                parameters = {**parameters_of(model, parallel), "attention": attention, "pass": name}
                speed = (PASSES[name] * forward_flop(model, parallel), "FLOP/s")
                metrics = timed(measured.at(0, name), speed=speed)
                yield attempted(setup, f"{attention}, t={t}", name, parameters, metrics)


def model_for(setup: Setup) -> ModelConfig:
    """A model of one layer, small enough for the device."""
    sizes = (64, 4, 32) if setup.quick else (4096, 32, 2048) if setup.on_gpu else (512, 8, 256)
    return ModelConfig(1, *sizes, vocab=256)


def forward_flop(model: ModelConfig, parallel: ParallelConfig) -> float:
    """The FLOP of a layer's forward pass on one rank."""
    b, s, h = parallel.b, model.seq, model.hidden
    return (24 * b * s * h**2 + 4 * b * s**2 * h) / parallel.t


def measure_here(
    beat: Callable[[], None], model: ModelConfig, parallel: ParallelConfig, attention: str, setup: Setup
) -> dict[str, Samples]:
    """Take samples of both passes, by name. Every rank calls this."""
    parallel = replace(parallel, attention=attention)
    trainer, _, _ = build(model, parallel, setup.device, EngineSettings(dtype=setup.dtype), "auto")
    layer = trainer.chunks[0].layers[0]
    shape = (model.seq * parallel.b, model.hidden)
    x = torch.randn(shape, device=trainer.groups.device, dtype=trainer.p2p.dtype, requires_grad=True)
    grad = torch.randn_like(x)
    steps = {
        "forward": Step.of(lambda: layer(x, parallel.b)),
        "backward": Step(lambda y: torch.autograd.backward(y, grad), prepare=lambda: layer(x, parallel.b)),
    }
    samples = take_turns(steps, slowest_timer(trainer.groups.device), setup.samples, limit_s=LIMIT_S)
    beat()
    return samples
