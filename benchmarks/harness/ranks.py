"""Runs benchmarks of several ranks, which the engine's launcher starts, and times them by the slowest rank."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.harness.timing import Samples, Timer, is_gpu, measure, wall_timer
from ptdp_core.launch.local import launch
from results.records.errors import UnavailableError

TIMEOUT_S = 300.0
LIMIT_S = 1.0  # how long the samples of one message size may take together


def run_ranks(function: Callable[..., Any], ranks: int, args: Sequence[Any], device: str) -> list[Any]:
    """Return what `function(beat, *args)` returned on each of `ranks` local ranks, each on a GPU of its own if on GPUs.

    Raises `UnavailableError` without enough GPUs, `RankError` if a rank fails.
    """
    if is_gpu(device) and (there := torch.cuda.device_count()) < ranks:
        raise UnavailableError(f"ranks={ranks} on {there} GPU{'s' if there != 1 else ''}; needs one GPU per rank")
    return launch(function, ranks, args, timeout=TIMEOUT_S, process_group=ranks > 1, device=device)


def slowest_timer(device: "torch.device | str" = "cpu") -> Timer:
    """A wall timer that starts all ranks together and returns the slowest rank's time on each of them."""
    timer = wall_timer(device)
    if not dist.is_initialized():
        return timer

    def timed(step: Any) -> float:
        dist.all_reduce(torch.zeros(()))  # on the host: a barrier on any backend
        seconds = torch.tensor(timer(step), dtype=torch.float64)
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        return float(seconds)

    return timed


def time_message(call: Callable[[], object], size: int, samples: int, timer: Timer) -> Samples:
    """Samples of `call`, which moves `size` bytes. Small messages are sent many times within a sample."""
    count = max(1, min(20, 2**18 // size))

    def many() -> None:
        for _ in range(count):
            call()

    return measure(many, samples=samples, limit_s=LIMIT_S, timer=timer).per(count)
