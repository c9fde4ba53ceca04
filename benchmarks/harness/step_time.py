"""Times the engine's training steps, with the settings of a real run, on random tokens."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmarks.harness.ranks import slowest_timer
from benchmarks.harness.timing import measure
from benchmarks.harness.training import batches
from kernels import select
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.zero3 import Zero3Trainer


class StepTimes(NamedTuple):
    """The slowest rank's seconds of each step, and the most bytes allocated on this rank's GPU (None on a CPU)."""

    seconds: tuple[float, ...]
    peak_memory: int | None


def time_steps(beat: Callable[[], None], settings: Settings, samples: int, warm_up: int) -> StepTimes:
    """Time whole training steps: forward, backward, reduction, clipping and AdamW. Every rank calls this."""
    torch_device, parallel = local_device(settings.engine.device), settings.parallel
    groups = Groups.create(parallel, torch_device) if parallel.n > 1 else Groups.alone(torch_device)
    kind = Zero3Trainer if settings.parallel.data_parallel == "zero3" else Trainer
    trainer = kind(settings, groups, select(settings.kernels, torch_device))
    batch, _ = batches(settings.model, parallel, torch_device)

    def step() -> None:
        trainer.step(batch)
        beat()

    times = measure(step, samples=samples, warm_up=warm_up, timer=slowest_timer(torch_device))
    return StepTimes(
        times.seconds, torch.cuda.max_memory_allocated(torch_device) if torch_device.type == "cuda" else None
    )
