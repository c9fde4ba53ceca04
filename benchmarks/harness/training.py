"""Builds the engine on one rank for benchmarks of a layer, a pipeline, a step or a checkpoint."""

from collections.abc import Callable
from functools import partial

import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.timing import measure
from kernels import select
from kernels.products import products_with
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.pipeline import Batch
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, Settings
from ptdp_core.engine.trainer import Trainer


def model_for(setup: Setup) -> ModelConfig:
    """The configuration of a GPT whose step takes well under a second on the device; of a tiny one if quick."""
    if setup.quick:
        return ModelConfig(layers=4, hidden=64, heads=4, seq=32, vocab=256)
    if setup.on_gpu:
        return ModelConfig(layers=8, hidden=2048, heads=16, seq=1024, vocab=51200)
    return ModelConfig(layers=4, hidden=512, heads=8, seq=128, vocab=1024)


def parameters_of(model: ModelConfig, parallel: ParallelConfig) -> dict[str, int | str]:
    """A configuration as parameters of a point, in the paper's letters."""
    sizes = {"l": model.layers, "h": model.hidden, "a": model.heads, "s": model.seq, "V": model.vocab}
    split = {name: getattr(parallel, name) for name in ("p", "t", "d", "v", "b", "m")}
    return {**sizes, **split, "schedule": parallel.schedule}


def build(
    model: ModelConfig,
    parallel: ParallelConfig,
    device: str,
    engine: EngineSettings = EngineSettings(),  # noqa: B008 - frozen
    kernels: str = "reference",
) -> tuple[Trainer, Callable[[int], Batch], torch.Tensor]:
    """The engine on this rank, with its microbatches and the data that they are cut from (see `batches`).

    Every rank of the default process group calls this. Without a process group there is one rank.
    """
    torch_device = local_device(device)
    groups = Groups.create(parallel, torch_device) if parallel.n > 1 else Groups.alone(torch_device)
    trainer = Trainer(Settings(model, parallel, engine, OptimizerSettings()), groups, select(kernels, torch_device))
    return trainer, *batches(model, parallel, torch_device)


def batches(
    model: ModelConfig, parallel: ParallelConfig, torch_device: torch.device, replica: int = 0
) -> tuple[Callable[[int], Batch], torch.Tensor]:
    """The microbatches of a replica, and the data that they are cut from: its own random tokens, [B/d, s+1]."""
    generator = torch.Generator().manual_seed(1)
    whole = torch.randint(0, model.vocab, (parallel.B, model.seq + 1), generator=generator)
    data = whole.chunk(parallel.d)[replica].to(torch_device)
    b = parallel.b

    def batch(j: int) -> Batch:
        return data[j * b : (j + 1) * b, :-1], data[j * b : (j + 1) * b, 1:]

    return batch, data


def fastest_product(setup: Setup, dtype: torch.dtype) -> float:
    """FLOP/s of the fastest square matrix product on the device: what model FLOP/s are shares of (MFU)."""
    speeds = []
    for size in ((4096, 8192) if setup.on_gpu else (512, 1024)) if not setup.quick else (256,):
        a = torch.randn(size, size, device=setup.device).to(dtype)
        multiply = products_with(a).product
        speeds.append(2 * size**3 / measure(partial(multiply, a, a), setup.device, samples=setup.samples).minimum)
    return max(speeds)
