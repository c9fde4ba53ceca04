"""What a device does during a training step: on which kinds of kernels it spends the time, and at which clock."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

# A profile's kernels by parts of their names, the first that fits; what fits none is 'other_share'.
KINDS = {
    "attention_share": ("flash", "fmha", "attention", "softmax"),
    "product_share": ("gemm", "cutlass", "xmma", "nvjet", "cublas", "aten::mm", "aten::bmm", "addmm"),
}
OTHER, IDLE = "other_share", "idle_share"
QUERIES = ("clocks.sm", "power.draw", "temperature.gpu")
MEGA = 1e6


class GpuState(NamedTuple):
    """The state of a GPU while it works: clock of its multiprocessors in Hz, power in W, degrees Celsius."""

    clock: float
    power: float
    temperature: float


def shares(step: Callable[[], object], seconds: float, on_gpu: bool) -> dict[str, float]:
    """Shares of a step that takes `seconds` by kind of kernel, from a profile of one step; what none covers is idle.

    A GPU is idle when the host has not issued its next kernel yet. On a CPU an operator is the kernel. A kind that took
    no time is left out.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with _without_output(), profile(activities=activities) as profiled:
        step()
        if on_gpu:
            torch.cuda.synchronize()
    totals = dict.fromkeys((*KINDS, OTHER), 0.0)
    if on_gpu:
        totals |= kernel_times(profiled.events())
    else:
        for event in profiled.key_averages():
            totals[kind_of(event.key)] += event.self_cpu_time_total * 1e-6
    by_kind = {kind: total / seconds for kind, total in totals.items()}
    by_kind[IDLE] = max(0.0, 1.0 - sum(by_kind.values()))
    return {kind: share for kind, share in by_kind.items() if share}


def kernel_times(events: Iterable[FunctionEvent]) -> dict[str, float]:
    """The seconds that kernels of each kind cover on the device. What kernels of several kinds cover is the first's.

    Operators of the host, which a profile gives the time of their kernels, too, and its named ranges are none.
    """
    spans: dict[str, list[tuple[float, float]]] = {kind: [] for kind in (*KINDS, OTHER)}
    for event in events:
        if event.device_type != DeviceType.CPU and not event.is_user_annotation:
            spans[kind_of(event.name)].append((event.time_range.start, event.time_range.end))
    times, so_far, before = {}, [], 0.0
    for kind, own in spans.items():
        so_far += own
        covered = _covered(so_far)
        times[kind], before = (covered - before) * 1e-6, covered
    return times


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of spans."""
    total, last = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, last))
        last = max(last, end)
    return total


def kind_of(kernel: str) -> str:
    """The kind of a kernel, by its name."""
    name = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHER)


def gpu_state(step: Callable[[], object], uuid: str) -> GpuState | None:
    """What nvidia-smi says of a GPU while it runs a step; None without nvidia-smi, or if it does not know."""
    query = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={','.join(QUERIES)}", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        asked = None
    step()  # without an answer, too: the other ranks of a training run take this step
    if asked is None:
        return None
    try:
        clock, power, temperature = map(float, asked.communicate(timeout=10.0)[0].split(","))
    except (ValueError, subprocess.TimeoutExpired):
        asked.kill()
        return None
    return GpuState(clock * MEGA, power, temperature)


@contextmanager
def _without_output() -> Iterator[None]:
    """The profiler's library writes a line to the process's own error output whenever it starts and stops."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
