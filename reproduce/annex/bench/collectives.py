"""All-reduce, all-gather and reduce-scatter over sizes and numbers of ranks, as the engine calls them (Section 3).

The size is that of the whole tensor: what is reduced on every rank, gathered on every rank, or scattered from every
rank. *Bus bandwidth* is what each rank's link carries if the ring algorithm runs: 2(n-1)/n * S/time for an all-reduce
of n ranks, (n-1)/n * S/time for the others; it can be compared over n.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, size_text, timed
from benchmarks.harness.ranks import run_ranks, slowest_timer, time_message
from benchmarks.harness.timing import Samples
from ptdp_core.config import ParallelConfig
from ptdp_core.engine.groups import Axis, Groups, local_device, reduce_scatter_flat
from results.records import PointResult

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")
ELEMENT = 4  # bytes: fp32


def measure(ranks: int, sizes: list[int], device: str = "cpu", samples: int = 20) -> dict[tuple[str, int], Samples]:
    """Time each operation at each size, by the slowest of `ranks` ranks: samples by (operation, bytes).

    Raises `ValueError` for a size that is not a multiple of 4 * ranks bytes, `RankError` if a rank fails, and
    `UnavailableError` if there is not a GPU for each rank.
    """
    for size in sizes:
        if size <= 0 or size % (ELEMENT * ranks):
            raise ValueError(
                f"size={size} does not split over {ranks} ranks; needs a multiple of {ELEMENT * ranks} bytes; "
                f"try size={max(1, size // (ELEMENT * ranks)) * ELEMENT * ranks}"
            )
    return run_ranks(measure_here, ranks, (sizes, device, samples), device)[0]


def measure_here(
    beat: Callable[[], None], sizes: list[int], device: str, samples: int
) -> dict[tuple[str, int], Samples]:
    """Take the samples that `measure` returns. Every rank calls this."""
    ranks = torch.distributed.get_world_size()
    axis = Groups.create(ParallelConfig(t=ranks), torch_device := local_device(device)).tp
    timer = slowest_timer(torch_device)
    timed = {}
    for size in sizes:
        whole = torch.zeros(size // ELEMENT, device=torch_device)
        for operation, call in calls(axis, whole).items():
            timed[operation, size] = time_message(call, size, samples, timer)
            beat()
    return timed


def calls(axis: Axis, whole: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """By operation, a function that calls it on the flat tensor `whole`, or on this rank's part of it."""
    part = axis.part(whole).clone()
    return {
        "all_reduce": lambda: axis.all_reduce(whole),
        "all_gather": lambda: axis.all_gather(part),
        "reduce_scatter": lambda: reduce_scatter_flat(part, whole, group=axis.group),
    }


def bus_bytes(operation: str, size: int, ranks: int) -> float:
    """The bytes that the ring algorithm sends over each rank's link."""
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks * size


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield points from 4 KiB to 64 MiB (1 MiB if quick) over 2 and 4 ranks, and over 8 on GPUs."""
    sizes = [4096 * 4**i for i in range(5 if setup.quick else 8)]
    for ranks in (2,) if setup.quick else (2, 4, 8) if setup.on_gpu else (2, 4):
        measured = Once(partial(measure, ranks, sizes, setup.device, setup.samples))
        for operation, size in product(OPERATIONS, sizes):
            parameters = {"operation": operation, "bytes": size, "ranks": ranks, "dtype": "fp32"}
            series = f"{operation.replace('_', '-')}, n={ranks}"
            bus = (bus_bytes(operation, size, ranks), "B/s")
            metrics = timed(measured.at((operation, size)), bus_bandwidth=bus)
            yield attempted(setup, series, size_text(size), parameters, metrics)
