"""Executes a pipeline flush of any length in bounded time, exactly, by the periodic steady state of most schedules.

Between warm-up and cool-down a schedule repeats the same events every q microbatches (q = 1 for 1F1B, q = p
interleaved: `Definition.period`). These events are found in the compiled program: on every rank they are the longest
stretch in the middle in which each event has a counterpart one period later, with the same passes and messages, and
with partners that are each other's counterparts, too. The number of a microbatch does not matter for the times.

An event begins when its rank arrives at it, which depends only on when the rank and its partners arrived at the rank's
event before. So, of all events that happened before a moment in the stretch, only the last one of each rank and its
partners decide what follows. If each of these happened exactly L after its counterpart one period earlier, then what
follows now is what followed then, but L later. So a longer batch only has more periods of length L, and then the same
cool-down.

`flush` executes a short batch, verifies this, and adds the missing periods. If the pipeline has not settled, it
executes a longer batch, in the end the whole one. Whole picoseconds make the comparison exact.
"""

import gc
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, islice
from typing import NamedTuple

from ptdp_core.schedules import TimelineEvent, build, definition, stash_fronts
from ptdp_core.simulator.executor import Costs, Event, Events, compile_blocking, execute_blocking


class Flush(NamedTuple):
    """A pipeline flush (Section 2.2), in picoseconds from its start.

    - `ends[r]`: when rank r has finished its last computation and exchange
    - `communication[r]`: how long its exchanges would take if every peer were ready
    - `stash_fronts[r]`: see `schedules.stash_fronts`
    - `executed`: the number of microbatches that were executed; the others are added periods
    """

    ends: tuple[int, ...]
    communication: tuple[int, ...]
    stash_fronts: tuple[list[tuple[int, int]], ...]
    executed: int


class Stretch(NamedTuple):
    """The part of a rank's events that repeats: `events[first]` to `events[last]`, `period` events at a time."""

    events: list[Event]
    first: int
    last: int
    period: int


class Compiled(NamedTuple):
    """A schedule's events, its `schedules.stash_fronts` by rank, and by rank the part of its events that
    repeats; empty if they do not on every rank."""

    events: Events
    stash_fronts: tuple[list[tuple[int, int]], ...]
    stretches: tuple[Stretch, ...]


def flush(name: str, p: int, m: int, v: int, costs: Costs) -> Flush:
    """Execute a blocking schedule of m microbatches (Section 2.2), by its periodic steady state where there is one."""
    for short in short_batches(name, p, m, v):
        compiled = compiled_schedule(name, p, short, v)
        arrived = execute_blocking(compiled.events, costs)
        if short == m:
            return _result(compiled, short, arrived, costs)
        steady = _steady(compiled, arrived)
        if steady is not None:
            q = definition(name).period
            assert q is not None
            return _result(compiled, short, arrived, costs, (m - short) // q(p), steady)
    raise AssertionError("the last batch tried is the whole")


def short_batches(name: str, p: int, m: int, v: int) -> list[int]:
    """The sizes of the batches to try, in microbatches: just long enough to settle, then longer, in the end the whole.

    The first is the most microbatches that are in flight on a rank, and some periods. Without messages nothing repeats.
    """
    schedule = definition(name)
    if schedule.period is None or p == 1:
        return [m]
    q = schedule.period(p)
    in_flight = -(-max(schedule.stash(p, m, v)) // v) if schedule.stash else p
    shorts = []
    for steady in (2 * q + 7, 3 * q + p + 6, 5 * q + 3 * p + 12):
        least = in_flight - 1 + -(-steady // q) * q
        shorts.append(least + (m - least) % q)
    return [*(short for short in shorts if short < m), m]


@lru_cache(maxsize=256)
def compiled_schedule(name: str, p: int, m: int, v: int) -> Compiled:
    """The compiled blocking program of a schedule."""
    collects = gc.isenabled()
    gc.disable()  # it would look through every new tuple several times, and find no cycle
    try:
        schedule, period = build(name, p, m, v), definition(name).period
        events = compile_blocking(schedule)
        stretches = _stretches(events, m, period(p)) if period is not None else ()
        return Compiled(events, tuple(stash_fronts(schedule)), stretches)
    finally:
        if collects:
            gc.enable()


def _stretches(events: Events, m: int, q: int) -> tuple[Stretch, ...]:
    """The part of each rank's events that repeats every q of m microbatches."""
    periods = [_period([len(events.works[work]) for *_, work in rank], m, q) for rank in events.ranks]
    if 0 in periods:
        return ()
    # By an event's number, how many numbers later its counterpart is. The last event of each rank is its end.
    later = [period for period, rank in zip(periods, events.ranks, strict=True) for _ in range(len(rank) + 1)]
    stretches = []
    for rank, period in zip(events.ranks, periods, strict=True):

        def repeats(i: int, rank: list[Event] = rank, period: int = period) -> bool:
            """Whether the event one period after a rank's i-th is its counterpart."""
            if i < 0 or i + period >= len(rank):
                return False
            (_, parts, *alike), (_, other_parts, *other) = rank[i], rank[i + period]
            return alike == other and all(
                partner + later[partner] == counterpart
                for (partner, _), (counterpart, _) in zip(parts, other_parts, strict=True)
            )

        first = after = len(rank) // 2 - period // 2
        if not repeats(first):
            return ()
        while repeats(first - 1):
            first -= 1
        while repeats(after):
            after += 1
        stretches.append(Stretch(rank, first, after - 1 + period, period))
    return tuple(stretches)


def _period(passes: list[int], m: int, q: int) -> int:
    """The number of a rank's events in the middle for q of m microbatches, by the events' passes; 0 for a small m."""
    starts = [0, *accumulate(passes)]
    length = q * starts[-1] // m
    middle = max(0, (starts[-1] - length) // 2)
    first, last = (bisect_left(starts, start, hi=len(passes)) for start in (middle, middle + length))
    return last - first if middle + length < starts[-1] else 0


class Steady(NamedTuple):
    """A verified steady state: the length of a period, and by rank the events of one of them."""

    shift: int
    windows: list[list[Event]]


def _steady(compiled: Compiled, arrived: list[int]) -> Steady | None:
    """The steady state, if the executed batch has settled into one; see the top of the module."""
    if not compiled.stretches:
        return None
    moment = min(arrived[stretch.events[stretch.last][0]] for stretch in compiled.stretches)
    shifts: set[int] = set()
    windows = []
    for stretch in compiled.stretches:
        events = stretch.events
        last = bisect_left(events, moment, key=lambda event: arrived[event[0]]) - 1
        if last - stretch.period < stretch.first:
            return None
        shifts.update(_shifts(events[last - stretch.period], events[last], arrived, moment))
        if len(shifts) != 1:
            return None
        windows.append(events[last - stretch.period + 1 : last + 1])
    return Steady(shifts.pop(), windows)


def _shifts(event: Event, later: Event, arrived: list[int], moment: int) -> Iterator[int]:
    """How much later the rank, and its partners that came before the moment, arrived than one period earlier."""
    yield arrived[later[0]] - arrived[event[0]]
    for (partner, _), (counterpart, _) in zip(event[1], later[1], strict=True):
        if arrived[counterpart] < moment:
            yield arrived[counterpart] - arrived[partner]


def _result(
    compiled: Compiled, m: int, arrived: list[int], costs: Costs, periods: int = 0, steady: Steady | None = None
) -> Flush:
    """The executed batch of m microbatches, with so many more periods of its steady state."""
    durations = compiled.events.durations(costs)
    ends = [arrived[end] + (periods * steady.shift if steady else 0) for end in compiled.events.ends]
    exchanged = [sum([durations[event[2]] for event in events]) for events in compiled.events.ranks]
    for rank, window in enumerate(steady.windows if steady else ()):
        exchanged[rank] += periods * sum([durations[event[2]] for event in window])
    return Flush(tuple(ends), tuple(exchanged), compiled.stash_fronts, m)


def pipeline_timeline(name: str, p: int, m: int, v: int, costs: Costs) -> list[list[TimelineEvent[int]]]:
    """The timeline of each rank, its passes and exchanges in order, in picoseconds from the start of the batch.

    An exchange lasts from the rank's arrival until its messages are in: waiting for the other side counts as idle time
    and comes first.
    """
    events = compiled_schedule(name, p, m, v).events
    arrived, durations = execute_blocking(events, costs), events.durations(costs)
    timeline: list[list[TimelineEvent[int]]] = []
    for rank, table in zip(events.ranks, build(name, p, m, v).ranks, strict=True):
        row: list[TimelineEvent[int]] = []
        actions = iter(table)
        for number, _, exchange, work in rank:
            passes = [costs.passes[kind][stage] for kind, stage in events.works[work]]
            time = arrived[number + 1] - sum(passes)
            if durations[exchange]:
                row.append(TimelineEvent("exchange", None, time - durations[exchange], time))
            for action, duration in zip(islice(actions, len(passes)), passes, strict=True):
                row.append(TimelineEvent(action.kind, action, time, time + duration))
                time += duration
        timeline.append(row)
    return timeline
