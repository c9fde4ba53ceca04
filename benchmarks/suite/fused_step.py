"""The fused operators and a training step, each with and without fusion, in turns in one process.

One process, because compiling is most of the time that this takes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from benchmarks.harness.timing import Samples, Step, device_timer, take_turns, wall_timer
from benchmarks.harness.training import batches
from benchmarks.records import PointResult
from benchmarks.suite.fused_kernels import Copy, fitting_sequence, measure_case
from benchmarks.suite.fused_kernels_cases import cases, shapes
from kernels import select
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.trainer import Trainer

UNFUSED = "reference"
NOT_OURS = "layer_norm"  # PyTorch's in every implementation
CPU_SEQUENCE = 128
WARM_UP = 2


class Fusion(NamedTuple):
    """`operators`: points of the benchmark of fused operators; `step`: seconds of training steps by implementation."""

    operators: list[PointResult]
    step: dict[str, Samples]


def measure_here(beat: Callable[[], None], settings: Settings, samples: int) -> Fusion:
    """On one rank: the operators and a step, unfused and with the implementation that `settings` names."""
    where = local_device(settings.engine.device)
    operators = []
    for point in _operators(where, samples):
        operators.append(point)
        beat()
    steps = {name: Step.of(_step(settings, name, where)) for name in (UNFUSED, settings.engine.kernels)}
    return Fusion(operators, take_turns(steps, wall_timer(where), samples, WARM_UP))


def _operators(where: torch.device, samples: int) -> Iterator[PointResult]:
    """The operators of a 175B layer on one of 8 tensor-parallel ranks, at the sequence that fits, or a short one."""
    dtype = torch.float32 if where.type == "cpu" else torch.float16
    shape = shapes(CPU_SEQUENCE if where.type == "cpu" else fitting_sequence(where, dtype))[0]
    timer, copy = device_timer(where), Copy.make(where)
    for case in cases(shape, where, dtype):
        if case.operator != NOT_OURS:
            yield from measure_case(case, timer, samples, copy, [], {"device": where.type})


def _step(settings: Settings, kernels: str, where: torch.device) -> Callable[[], object]:
    own = replace(settings, engine=replace(settings.engine, kernels=kernels))
    trainer = Trainer(own, Groups.alone(where), select(kernels, where))
    batch, _ = batches(own.model, own.parallel, where)
    return lambda: trainer.step(batch)
