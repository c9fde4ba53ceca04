"""Times the fused operators of Section 4.2 against eager PyTorch, and against the memory's bandwidth.

Every operator is memory-bound: its time is at least the bytes that it must read and write over the bandwidth of the
device, which a large copy measures. Forward and backward each have the time, the share of that bandwidth, and the
speed-up over the reference, eager PyTorch. Attention is timed in the layouts [b, s, a, h] and [s, b, a, h]. (A CPU can
be faster than its own copy where the tensors stay in its cache.)

Shapes are the paper's (175B and 530B parameters, t=8) with sequences of 2048 tokens, or of as many as fit; fp16 on a
GPU as in the paper, fp32 on a CPU. Implementations take turns, one sample each, and the fastest samples are
compared, because what disturbs a machine only ever adds time; all samples are in the record.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Parameter
from benchmarks.harness.timing import FLUSH_BYTES, Samples, Step, Timer, device_timer, take_turns
from ptdp_core.engine.parameters import TORCH_DTYPES
from reproduce.annex.bench.fused_kernels_cases import (
    Call,
    OperatorCase,
    Shape,
    attention,
    cases,
    largest_tensor,
    shapes,
)
from results.records import Metric, PointResult, fingerprint

COPY = "copy"
PAPER_SEQUENCE, CPU_SEQUENCE, QUICK_SEQUENCE = 2048, 512, 128
CPU_COPY_BYTES = 128 * 2**20
LIMIT_S = 10.0  # how long the samples of one operator at one shape may take, forward or backward


class Copy(NamedTuple):
    """A large copy, which gives the bandwidth of the device; `bytes_moved` counts reads and writes."""

    step: Step
    bytes_moved: int

    @classmethod
    def make(cls, device: torch.device) -> "Copy":
        """A copy of 128 MiB on a CPU, of more than any cache holds on a GPU."""
        source = torch.ones(FLUSH_BYTES if device.type == "cuda" else CPU_COPY_BYTES, dtype=torch.int8, device=device)
        target = torch.empty_like(source)
        return cls(Step.of(lambda: target.copy_(source)), 2 * source.numel())


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point for every operator in every implementation that runs here, then one for the copy.

    This takes minutes, most of them for compiling.
    """
    device = torch.device(setup.device)
    dtype = TORCH_DTYPES[setup.dtype]
    s = QUICK_SEQUENCE if setup.quick else fitting_sequence(device, dtype)
    timer, copy = device_timer(device), Copy.make(device)
    common: dict[str, Parameter] = {"device": setup.device, "dtype": setup.dtype}
    bandwidths: list[float] = []
    for shape in shapes(s)[: 1 if setup.quick else None]:
        for case in _cases(shape, device, dtype):
            yield from measure_case(case, timer, setup.samples, copy, bandwidths, common)
    metrics = {"bandwidth": Metric(max(bandwidths), "B/s", "measured", tuple(bandwidths))}
    yield PointResult(COPY, COPY, COPY, common, "ok", None, fingerprint(common), metrics)


def fitting_sequence(device: torch.device, dtype: torch.dtype) -> int:
    """The paper's sequence, halved until forty of the largest tensors fit; on a CPU, short enough to take seconds."""
    if device.type == "cpu":
        return CPU_SEQUENCE
    free, _ = torch.cuda.mem_get_info(device)
    s = PAPER_SEQUENCE
    while s > QUICK_SEQUENCE and 40 * largest_tensor(shapes(s)[1], dtype) > free:
        s //= 2
    return s


def measure_case(
    case: OperatorCase,
    timer: Timer,
    rounds: int,
    copy: Copy,
    bandwidths: list[float],
    common: Mapping[str, Parameter],
) -> list[PointResult]:
    """Measure a case; return a point per series: the fastest of `rounds` samples, taken in turns with the copy.

    Appends the bandwidths of the copy to `bandwidths`; shares refer to the copies made during this case.
    """
    failures = {name: ("skipped", call) for name, call in case.calls.items() if isinstance(call, str)}
    steps: dict[str, dict[str, Step]] = {"forward": {}, "backward": {}}
    for name, call in case.calls.items():
        if isinstance(call, str):
            continue
        forward, backward = _steps(call, case.inputs)
        try:
            take_turns({"forward": forward, "backward": backward}, timer, rounds=1, warm_up=1)
        except torch.OutOfMemoryError:
            failures[name] = ("oom", "the device has too little memory for this shape")
        else:
            steps["forward"][name], steps["backward"][name] = forward, backward
    times = {
        name: take_turns({**calls, COPY: copy.step}, timer, rounds, warm_up=0, limit_s=LIMIT_S)
        for name, calls in steps.items()
    }
    reached = [copy.bytes_moved / seconds for samples in times.values() for seconds in samples[COPY].seconds]
    bandwidths += reached
    points = []
    for name in case.calls:
        parameters = {"operator": case.operator, "model": case.shape.model, "series": name, **case.parameters, **common}
        status, reason = failures.get(name, ("ok", None))
        points.append(
            PointResult(
                key=f"{case.key}/{name}",
                series=name,
                label=case.operator,
                parameters=parameters,
                status=status,
                reason=reason,
                fingerprint=fingerprint(parameters),
                metrics={} if reason else _metrics(case, name, times, max(reached)),
            )
        )
    return points


def _cases(shape: Shape, device: torch.device, dtype: torch.dtype) -> Iterable[OperatorCase]:
    """Yield the cases of all operators at a shape, then that of attention."""
    yield from cases(shape, device, dtype)
    yield attention(shape, device, dtype)


def _steps(call: Call, inputs: tuple[Tensor, ...]) -> tuple[Step, Step]:
    """The steps forward and backward. Each backward pass gets a new graph, as some compiled ones run only once."""

    def prepare() -> tuple[Tensor, Tensor]:
        output = call(*inputs)
        return output, torch.randn_like(output)

    def backward(prepared: tuple[Tensor, Tensor]) -> object:
        output, grad = prepared
        return torch.autograd.grad(output, inputs, grad)

    return Step.of(lambda: call(*inputs)), Step(backward, prepare)


def _metrics(
    case: OperatorCase, name: str, times: Mapping[str, Mapping[str, Samples]], bandwidth: float
) -> dict[str, Metric]:
    metrics = {}
    baseline = next(iter(case.calls))  # the first series: the reference, or the older layout
    for step, samples in times.items():
        value = samples[name].minimum
        metrics[f"{step}_time"] = Metric(value, "s", "measured", samples[name].seconds)
        if baseline in samples:
            metrics[f"{step}_speedup"] = Metric(samples[baseline].minimum / value, "1", "derived")
        if moved := case.bytes_moved.get(step):
            metrics[f"{step}_bytes"] = Metric(moved, "B", "derived")
            metrics[f"{step}_share_of_copy"] = Metric(moved / value / bandwidth, "1", "derived")
    return metrics
