"""Measures the emulated links on every rank before the run: the latency and rate of exchanges and collectives.

These numbers describe the emulated machine to the simulator. Nothing of the run itself is used for the prediction.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from ptdp_core.engine.groups import Axis, Groups
from ptdp_core.schedules import Exchange, Message
from reproduce.annex.emulation.plan import ELEMENT_BYTES, EmulationPlan
from reproduce.annex.emulation.rank_report import MeasuredLinks, Timing
from reproduce.annex.emulation.virtual import RendezvousCommunicator, sleep_until

REPEATS, WARMUP = 9, 2
COLLECTIVE_REPEATS = 5
SETTLING, SETTLED = 30, 30
MARGIN = 3e-3  # seconds between agreeing on a start and the start
TINY = 1
SMALLEST = 1 << 13  # elements of the smallest message that has enough packets to show a rate
LARGEST = 1 << 16  # elements of the largest message: it takes at most 0.1 s, and larger ones move at the same rate


class Stopwatch:
    """Times operations that all ranks start together."""

    def agree(self) -> float:
        """Wait until all ranks are here, then until a common start; return it, on the machine's monotonic clock."""
        latest = torch.tensor([time.monotonic()], dtype=torch.float64)
        dist.all_reduce(latest, op=dist.ReduceOp.MAX)
        start = float(latest.item()) + MARGIN
        sleep_until(start)
        return start

    def time(self, operation: Callable[[], object], repeats: int = REPEATS) -> list[float]:
        """Seconds of an operation that all ranks start together, several times."""
        seconds = []
        for _ in range(WARMUP + repeats):
            start = self.agree()
            operation()
            seconds.append(time.monotonic() - start)
        return seconds[WARMUP:]

    def time_between_passes(self, operation: Callable[[], object]) -> list[float]:
        """Seconds of an operation before which each rank sleeps, as long as a short pass, from its own last one on.

        So the ranks of a group need not start together: gloo's all-to-all, whose requests for messages queue behind
        messages, settles in a state in which they do not, and in which it takes longer.
        """
        seconds, end = [], self.agree()
        for _ in range(SETTLING + SETTLED):
            sleep_until(end + MARGIN)
            start = time.monotonic()
            operation()
            end = time.monotonic()
            seconds.append(end - start)
        return seconds[SETTLING:]


def fit(small: tuple[int, Sequence[float]], large: tuple[int, Sequence[float]]) -> Timing:
    """Latency and rate from the seconds at two sizes, in elements.

    The rate is that of the fastest messages, which nothing delayed. The latency is the usual one, with all ranks busy.
    """
    (few, quick), (many, slow) = small, large
    per_element = max(min(slow) - min(quick), 1e-6) / (many - few)
    latency = statistics.median(quick) - few * per_element
    return Timing(max(latency, 0.0), ELEMENT_BYTES / per_element)


def measure_links(plan: EmulationPlan, groups: Groups, folder: Path) -> MeasuredLinks:
    """Time what this configuration uses between nodes; every rank calls this, at the same time."""
    watch, measured = Stopwatch(), MeasuredLinks()
    if groups.pp.size > 1:
        _measure_exchanges(plan, groups, folder, watch, measured)
    if plan.data_spans_nodes:
        mine = plan.ranks[groups.pp.rank]
        pieces = [piece for chunk in mine.pieces for piece in chunk]
        of_experts = sum(piece.elements for piece in pieces if piece.of_experts)
        # All ranks wait for the slowest one before they step; between passes, each rank goes on by itself.
        reduced = {"data": (groups.dp, sum(piece.elements for piece in pieces) - of_experts + mine.tied)}
        if groups.edp.size > 1 and groups.edp is not groups.dp:
            reduced["expert data"] = (groups.edp, max(1, of_experts))
        for use, (axis, size) in reduced.items():
            measured.collectives[use] = _collective(watch, axis.all_reduce, min(LARGEST, size), groups.dp)
    if plan.tensor_spans_nodes:
        alone = Axis("rank")
        size = min(LARGEST, max(stage.reduced_backward for stage in plan.stages))
        measured.collectives["tensor"] = _collective(watch, groups.tp.all_reduce, size, alone)
        if plan.boundary.is_scattered:
            size = plan.boundary.message_elements
            measured.collectives["gather"] = _collective(watch, groups.tp.all_gather, size, alone)
    if plan.experts_span_nodes:
        # All have one size, so that its rate says all: a latency would not show, behind a message of the other way.
        rows = torch.zeros(plan.exchange.elements)
        seconds = statistics.median(watch.time_between_passes(partial(groups.ep.all_to_all, rows)))
        measured.collectives["experts"] = Timing(0.0, rows.numel() * ELEMENT_BYTES / seconds)
    return measured


def _collective(watch: Stopwatch, operation: Callable[[torch.Tensor], object], elements: int, end: Axis) -> Timing:
    """Latency and rate of a collective, from its times for `elements` elements and for a quarter of them.

    Smaller tensors are not timed, as gloo has other algorithms for them. The operation ends when the last rank of `end`
    is done.
    """
    measured = []
    for size in (max(1, elements // 4), elements):
        taken = torch.tensor(watch.time(partial(operation, torch.zeros(size)), COLLECTIVE_REPEATS), dtype=torch.float64)
        measured.append((size, end.all_reduce(taken, op=dist.ReduceOp.MAX).tolist()))
    return fit(*measured)


def _measure_exchanges(
    plan: EmulationPlan, groups: Groups, folder: Path, watch: Stopwatch, measured: MeasuredLinks
) -> None:
    p, me = groups.pp.size, groups.pp.rank
    patterns = {"pair": [_pair(me, p, 0), _pair(me, p, 1)], "both": [_both(me, p)]}
    sizes, seconds = (TINY, max(SMALLEST, plan.boundary.message_elements)), []
    for size in sizes:
        p2p = RendezvousCommunicator(groups, (size,), torch.float32, folder)
        seconds.append([watch.time(partial(_post, p2p, x)) for pattern in patterns.values() for x in pattern])
        p2p.close()
    exchanges = [(name, exchange) for name, pattern in patterns.items() for exchange in pattern]
    for (name, exchange), tiny, full in zip(exchanges, *seconds, strict=True):
        peers = [groups.rank_at(message.destination) for message in exchange.sends]
        if len(peers) == (1 if name == "pair" else 2):  # the ends of a pipeline have one neighbour
            crossing = {plan.between_nodes(groups.rank, peer) for peer in peers}
            crosses = crossing.pop() if len(crossing) == 1 else None
            timings = measured.exchanges.setdefault((name, crosses), [])
            timings.append(fit((TINY, tiny), (len(peers) * sizes[1], full)))


def _post(p2p: RendezvousCommunicator, exchange: Exchange) -> None:
    p2p.post(exchange, {message: torch.zeros(p2p.shape) for message in exchange.sends}, blocking=True)
    for message in exchange.receives:
        p2p.take(message)


def _pair(me: int, p: int, offset: int) -> Exchange:
    """The messages of a pattern that uses every second link both ways at once, as in the steady state of 1F1B."""
    peer = me + 1 if (me + offset) % 2 == 0 else me - 1
    if not 0 <= peer < p:
        return Exchange((), ())
    return Exchange((_message(me, peer),), (_message(peer, me),))


def _both(me: int, p: int) -> Exchange:
    """The messages of a pattern that uses every link both ways at once, as the interleaved schedule's steady state.

    With p = 2 both links go to one rank. With p > 2 the link that would close the ring is left out: it is chance whose
    message a switch takes first, and around a ring such delays add up.
    """
    up, down = (me + 1) % p, (me - 1) % p
    forward, backward = p == 2 or me < p - 1, p == 2 or me > 0
    sends = [Message("F", me, 0, me, up)] * forward + [Message("B", me, 0, me, down)] * backward
    receives = [Message("F", down, 0, down, me)] * backward + [Message("B", up, 0, up, me)] * forward
    return Exchange(tuple(sends), tuple(receives))


def _message(source: int, destination: int) -> Message:
    return Message("F" if destination > source else "B", source, 0, source, destination)
