"""Times memory: the bandwidth of a copy by its size, and the time of the smallest kernel in a chain of them (the gap).

A copy of S bytes reads S and writes S, so that its bandwidth is 2*S over its time.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import attempted, size_text, timed
from benchmarks.harness.timing import Samples, device_timer, measure, wall_timer
from results.records import PointResult

MIB = 2**20
CHAIN = 100  # kernels in a chain: few enough to be launched while the device timer still keeps the device busy
LIMIT_S = 2.0


def copy(size: int, device: str = "cpu", samples: int = 20) -> Samples:
    """Time a copy of `size` bytes from one tensor into another, which moves 2 * size bytes."""
    import torch

    source = torch.ones(size, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return measure(lambda: target.copy_(source), device, samples=samples, limit_s=LIMIT_S)


def kernel_gap(device: str = "cpu", samples: int = 20, *, host: bool = False) -> Samples:
    """Time a kernel in a chain of the smallest ones.

    On a GPU this is the time on the device while launches are queued, or with `host` the time that the host needs to
    launch one and the device to run it. On a CPU both are the time of calling an operator.
    """
    import torch

    x = torch.zeros(1, device=device)

    def chain() -> None:
        for _ in range(CHAIN):
            x.add_(1.0)

    timer = wall_timer(device) if host else device_timer(device)
    return measure(chain, device, samples=samples, timer=timer).per(CHAIN)


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield points for copies from 64 KiB up to more than any cache holds, then for the gap."""
    largest = 4 * MIB if setup.quick else 1024 * MIB if setup.on_gpu else 256 * MIB
    size = 64 * 1024
    while size <= largest:
        metrics = timed(partial(copy, size, setup.device, setup.samples), bandwidth=(2 * size, "B/s"))
        yield attempted(setup, "copy", size_text(size), {"bytes": size}, metrics)
        size *= 4
    for series, host in (("gap", False), ("gap with launch", True)) if setup.on_gpu else (("gap", False),):
        metrics = timed(partial(kernel_gap, setup.device, setup.samples, host=host))
        yield attempted(setup, series, "one kernel", {"chain": CHAIN}, metrics)
