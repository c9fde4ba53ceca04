"""Times the fused operators, and a training step with and without fusion: in turns, but steps on a GPU one by one.

All run in one process, so that each operator is compiled only once: compiling takes most of the time.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from benchmarks.harness.timing import Samples, Step, device_timer, measure, take_turns, wall_timer
from benchmarks.harness.training import batches
from kernels import select
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.trainer import Trainer
from reproduce.annex.bench.fused_kernels import Copy, fitting_sequence, measure_case
from reproduce.annex.bench.fused_kernels_cases import cases, shapes
from results.records import PointResult

UNFUSED = "reference"
NOT_OURS = "layer_norm"  # PyTorch's in every implementation
CPU_SEQUENCE = 128
WARM_UP = 2


class Fusion(NamedTuple):
    """The points of the fused `operators`, and the samples of a training `step` by implementation."""

    operators: list[PointResult]
    step: dict[str, Samples]


def measure_here(beat: Callable[[], None], settings: Settings, samples: int) -> Fusion:
    """Time the operators and a step on one rank, unfused and with the implementation that `settings` names.

    `beat` is called after every operator.
    """
    torch_device = local_device(settings.engine.device)
    operators = []
    for point in _operators(torch_device, samples):
        operators.append(point)
        beat()
    names, timer = (UNFUSED, settings.engine.kernels), wall_timer(torch_device)
    if torch_device.type == "cpu":
        steps = {name: Step.of(_step(settings, name, torch_device)) for name in names}
        return Fusion(operators, take_turns(steps, timer, samples, WARM_UP))
    times = {}
    for name in names:  # two trainers of a size that fills a GPU do not fit into its memory
        step = _step(settings, name, torch_device)
        times[name] = measure(step, samples=samples, warm_up=WARM_UP, timer=timer)
        del step
        gc.collect()
        torch.cuda.empty_cache()
    return Fusion(operators, times)


def _operators(torch_device: torch.device, samples: int) -> Iterator[PointResult]:
    """The operators of a 175B layer on one of 8 tensor-parallel ranks, at the sequence that fits, or a short one."""
    dtype = torch.float32 if torch_device.type == "cpu" else torch.float16
    shape = shapes(CPU_SEQUENCE if torch_device.type == "cpu" else fitting_sequence(torch_device, dtype))[0]
    timer, copy = device_timer(torch_device), Copy.make(torch_device)
    for case in cases(shape, torch_device, dtype):
        if case.operator != NOT_OURS:
            yield from measure_case(case, timer, samples, copy, [], {"device": torch_device.type})


def _step(settings: Settings, kernels: str, torch_device: torch.device) -> Callable[[], object]:
    """A training step with these kernels, of a trainer that it has to itself."""
    with_kernels = replace(settings, engine=replace(settings.engine, kernels=kernels))
    trainer = Trainer(with_kernels, Groups.alone(torch_device), select(kernels, torch_device))
    batch, _ = batches(with_kernels.model, with_kernels.parallel, torch_device)
    return lambda: trainer.step(batch)
