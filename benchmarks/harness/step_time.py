"""Times the engine's training steps, with the settings of a real run, on random tokens."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.profiling import IDLE, GpuState, gpu_state, shares
from benchmarks.harness.ranks import slowest_timer
from benchmarks.harness.timing import measure
from benchmarks.harness.training import batches, fastest_product
from kernels import select
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.parameters import TORCH_DTYPES
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.zero3 import Zero3Trainer


class OnGpu(NamedTuple):
    """What is known of a rank's GPU besides times.

    `peak_memory` are the most bytes allocated while steps were timed, `peak_speed` the FLOP/s of the fastest matrix
    product there, `idle_share` the share of a step in which no kernel ran, because the host had not issued it.
    """

    peak_memory: int
    peak_speed: float
    idle_share: float
    state: GpuState | None


class StepTimes(NamedTuple):
    """The slowest rank's seconds of each step, and what is known of this rank's GPU (None on a CPU)."""

    seconds: tuple[float, ...]
    gpu: OnGpu | None = None


def time_steps(beat: Callable[[], None], settings: Settings, samples: int, warm_up: int) -> StepTimes:
    """Time whole training steps: forward, backward, reduction, clipping and AdamW. Every rank calls this.

    On GPUs two more steps follow, one that is profiled and one during which nvidia-smi is asked.
    """
    torch_device, parallel = local_device(settings.engine.device), settings.parallel
    groups = Groups.create(parallel, torch_device) if parallel.n > 1 else Groups.alone(torch_device)
    peak_speed = 0.0
    if torch_device.type == "cuda":  # before the model takes the memory
        peak_speed = fastest_product(Setup("cuda"), TORCH_DTYPES[settings.engine.dtype])
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(torch_device)
    kind = Zero3Trainer if settings.parallel.data_parallel == "zero3" else Trainer
    trainer = kind(settings, groups, select(settings.kernels, torch_device))
    batch, _ = batches(settings.model, parallel, torch_device)

    def step() -> None:
        trainer.step(batch)
        beat()

    times = measure(step, samples=samples, warm_up=warm_up, timer=slowest_timer(torch_device))
    if torch_device.type != "cuda":
        return StepTimes(times.seconds)
    peak_memory = torch.cuda.max_memory_allocated(torch_device)
    idle = shares(step, times.median, on_gpu=True).get(IDLE, 0.0)
    state = gpu_state(step, f"GPU-{torch.cuda.get_device_properties(torch_device).uuid}")
    return StepTimes(times.seconds, OnGpu(peak_memory, peak_speed, idle, state))
