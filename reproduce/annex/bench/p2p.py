"""Times messages between two pipeline stages over the engine's own communicator, by size (Section 4.1).

*one way* is half a round trip: each side waits for the other. *exchange* is both directions at once, as in the steady
state of 1F1B ("send forward, receive backward"). Both processes run on this machine; messages go over sockets or shared
memory on CPUs, over NVLink or PCIe on GPUs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, size_text, timed
from benchmarks.harness.ranks import run_ranks, slowest_timer, time_message
from benchmarks.harness.timing import Samples
from ptdp_core.config import ParallelConfig
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.schedules import Exchange, Message
from results.records import PointResult

KINDS = ("one way", "exchange")
FORWARD, BACKWARD = Message("F", 0, 0, 0, 1), Message("B", 1, 0, 1, 0)


def measure(sizes: list[int], device: str = "cpu", samples: int = 20) -> dict[tuple[str, int], Samples]:
    """Time messages of these sizes between two ranks, which it starts: samples by (kind, bytes).

    Raises `RankError` if a rank fails, and `UnavailableError` if there is not a GPU for each.
    """
    return run_ranks(measure_here, 2, (sizes, device, samples), device)[0]


def measure_here(
    beat: Callable[[], None], sizes: list[int], device: str, samples: int
) -> dict[tuple[str, int], Samples]:
    """Take the samples that `measure` returns. Both ranks call this."""
    groups = Groups.create(ParallelConfig(p=2, B=2), local_device(device))
    timer = slowest_timer(groups.device)
    timed = {}
    for size in sizes:
        communicator = P2PCommunicator(groups, (size,), torch.uint8)
        tensor = torch.zeros(size, dtype=torch.uint8, device=groups.device)
        for kind, trip, ways in (("one way", _round_trip, 2), ("exchange", _exchange, 1)):
            call = partial(trip, communicator, groups.pp.rank, tensor)
            timed[kind, size] = time_message(call, size, samples, timer).per(ways)
            beat()
    return timed


def _round_trip(communicator: P2PCommunicator, rank: int, tensor: torch.Tensor) -> None:
    """Send a message from rank 0 and receive one as the answer. Both ranks call this."""
    for message in (FORWARD, BACKWARD):
        if message.source == rank:
            communicator.post(Exchange((message,), ()), {message: tensor}, blocking=True)
        else:
            communicator.post(Exchange((), (message,)), {}, blocking=True)
            communicator.take(message)


def _exchange(communicator: P2PCommunicator, rank: int, tensor: torch.Tensor) -> None:
    """Send and receive in one group. Both ranks call this."""
    outgoing, incoming = (FORWARD, BACKWARD) if rank == 0 else (BACKWARD, FORWARD)
    communicator.post(Exchange((outgoing,), (incoming,)), {outgoing: tensor}, blocking=True)
    communicator.take(incoming)


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield points from 1 KiB to 64 MiB (1 MiB if quick), by factors of 4."""
    sizes = [1024 * 4**i for i in range(6 if setup.quick else 9)]
    measured = Once(lambda: measure(sizes, setup.device, setup.samples))
    for kind, size in product(KINDS, sizes):
        metrics = timed(measured.at((kind, size)), bandwidth=(size, "B/s"))
        yield attempted(setup, kind, size_text(size), {"bytes": size, "ranks": 2}, metrics)
