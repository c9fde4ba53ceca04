"""A pipeline flush of any length in bounded time, exactly: by the periodic steady state that most schedules have.

Between warm-up and cool-down a schedule repeats the same events every q microbatches (q = 1 for 1F1B, q = p
interleaved: `Definition.period`). Which events these are is read from the compiled program: on every rank the longest
stretch in the middle in which each event has a counterpart one period later, with the same passes of q microbatches
more, the same messages, and partners that are each other's counterparts too.

An event begins when its rank arrives there; that depends only on when the rank and its partners arrived at the rank's
event before. So, of all events that happened before some moment in the stretch, only the last one of each rank and its
partners decide what follows. If each of these happened exactly L after its counterpart one period earlier, then what
follows now is what followed then, L later: a longer batch has so many more periods of length L, and the same cool-down.

`flush` executes a short batch, verifies this, and adds the missing periods; it lengthens the short batch if the
pipeline has not settled, up to the whole. Whole picoseconds make the comparison exact.
"""

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ptdp_core.schedules import Schedule, TimelineEvent, build, definition, fullest, lower
from ptdp_core.simulator.executor import (
    Costs,
    Event,
    Times,
    communication,
    compile_blocking,
    end_of,
    execute_blocking,
)


class Flush(NamedTuple):
    """A pipeline flush (Section 2.2), in picoseconds from its start.

    `ends[r]`: when rank r has finished its last computation and exchange; `communication[r]`: how long its exchanges
    take if every peer is ready; `fullest[r]`: see `ptdp_core.schedules.fullest`; `executed`: how many microbatches were
    executed, the others being added periods.
    """

    ends: tuple[int, ...]
    communication: tuple[int, ...]
    fullest: tuple[list[tuple[int, int]], ...]
    executed: int


class Stretch(NamedTuple):
    """The part of a rank's events that repeats: `events[first]` to `events[last]`, `period` events at a time."""

    events: list[Event]
    first: int
    last: int
    period: int


class Compiled(NamedTuple):
    """A schedule's events in executable order, its fullest moments by rank (`schedules.fullest`), and by rank the part
    of its events that repeats; empty if they do not on every rank."""

    schedule: Schedule
    events: list[Event]
    fullest: tuple[list[tuple[int, int]], ...]
    stretches: tuple[Stretch, ...]


def flush(name: str, p: int, m: int, v: int, costs: Costs) -> Flush:
    """Execute a blocking schedule of m microbatches (Section 2.2), by its periodic steady state where there is one."""
    for short in short_batches(name, p, m, v):
        compiled = compiled_schedule(name, p, short, v)
        times = execute_blocking(compiled.events, costs)
        if short == m:
            return _result(compiled, times, costs)
        steady = _steady(compiled, times)
        if steady is not None:
            q = definition(name).period
            assert q is not None
            return _result(compiled, times, costs, (m - short) // q(p), steady)
    raise AssertionError("the last batch tried is the whole")


def short_batches(name: str, p: int, m: int, v: int) -> list[int]:
    """Batches to try, in microbatches: just long enough to have settled, then longer, and in the end the whole.

    As many as are in flight at once on the fullest rank, and then some periods; without a message nothing repeats.
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
    schedule, period = build(name, p, m, v), definition(name).period
    events = compile_blocking(lower(schedule, "blocking"))
    stretches = _stretches(schedule, events, period(p)) if period is not None else ()
    return Compiled(schedule, events, tuple(fullest(schedule)), stretches)


def _stretches(schedule: Schedule, events: list[Event], q: int) -> tuple[Stretch, ...]:
    """The part of each rank's events that repeats every q microbatches."""
    numbered = sorted(events)
    ranks: list[list[Event]] = [[] for _ in range(schedule.p)]
    for event in numbered:
        ranks[event.rank].append(event)
    periods = [
        _period(rank_events, len(actions), q * len(actions) // schedule.m)
        for rank_events, actions in zip(ranks, schedule.ranks, strict=True)
    ]
    stretches = []
    for rank_events, period in zip(ranks, periods, strict=True):
        if period == 0:
            return ()

        def repeats(i: int, rank_events: list[Event] = rank_events, period: int = period) -> bool:
            return (
                i >= 0
                and i + period < len(rank_events)
                and _counterparts(rank_events[i], rank_events[i + period], q, numbered, periods)
            )

        first = after = len(rank_events) // 2 - period // 2
        if not repeats(first):
            return ()
        while repeats(first - 1):
            first -= 1
        while repeats(after):
            after += 1
        stretches.append(Stretch(rank_events, first, after - 1 + period, period))
    return tuple(stretches)


def _period(events: list[Event], actions: int, length: int) -> int:
    """How many events a rank has while it runs `length` actions, in the middle; 0 if its table is too short."""
    middle = max(0, (actions - length) // 2)
    first, last = (bisect_left(events, at, key=lambda event: event.first) for at in (middle, middle + length))
    return last - first if middle + length < actions else 0


def _counterparts(event: Event, later: Event, q: int, numbered: list[Event], periods: list[int]) -> bool:
    """Whether one event is the other, q microbatches later."""
    if len(event.actions) != len(later.actions) or len(event.parts) != len(later.parts):
        return False
    if event.received != later.received:
        return False
    for (kind, stage, microbatch), other in zip(event.actions, later.actions, strict=True):
        if other != (kind, stage, microbatch + q):
            return False
    for (partner, boundary, concurrent), part in zip(event.parts, later.parts, strict=True):
        if part != (partner + periods[numbered[partner].rank], boundary, concurrent):
            return False
    return True


class Steady(NamedTuple):
    """A verified steady state: the length of a period, and by rank the events of one of them."""

    shift: int
    windows: list[list[Event]]


def _steady(compiled: Compiled, times: Times) -> Steady | None:
    """The steady state, if the executed batch has settled into one; see the top of the module."""
    if not compiled.stretches:
        return None
    moment = min(times.arrived[stretch.events[stretch.last].number] for stretch in compiled.stretches)
    shifts: set[int] = set()
    windows = []
    for stretch in compiled.stretches:
        events = stretch.events
        last = bisect_left(events, moment, key=lambda event: times.arrived[event.number]) - 1
        if last - stretch.period < stretch.first:
            return None
        shifts.update(_shifts(events[last - stretch.period], events[last], times, moment))
        if len(shifts) != 1:
            return None
        windows.append(events[last - stretch.period + 1 : last + 1])
    return Steady(shifts.pop(), windows)


def _shifts(event: Event, later: Event, times: Times, moment: int) -> Iterator[int]:
    """How much later the rank, and its partners that came before the moment, arrived than one period earlier."""
    yield times.arrived[later.number] - times.arrived[event.number]
    for (partner, _, _), (counterpart, _, _) in zip(event.parts, later.parts, strict=True):
        if times.arrived[counterpart] < moment:
            yield times.arrived[counterpart] - times.arrived[partner]


def _result(compiled: Compiled, times: Times, costs: Costs, periods: int = 0, steady: Steady | None = None) -> Flush:
    """The executed batch, with so many more periods of its steady state."""
    p = compiled.schedule.p
    ends, exchanged = [0] * p, [0] * p
    for event in compiled.events:
        exchanged[event.rank] += communication(event, costs)
        if event.following < 0:
            ends[event.rank] = end_of(event, times, costs) + (periods * steady.shift if steady else 0)
    for rank, window in enumerate(steady.windows if steady else ()):
        exchanged[rank] += periods * sum(communication(event, costs) for event in window)
    return Flush(tuple(ends), tuple(exchanged), compiled.fullest, compiled.schedule.m)


def pipeline_timeline(compiled: Compiled, costs: Costs) -> list[list[TimelineEvent[int]]]:
    """Per rank its passes and exchanges in order, in picoseconds from the start of the batch.

    An exchange lasts from the rank's arrival until its messages are in: waiting for the other side counts as idle time
    and comes first.
    """
    times = execute_blocking(compiled.events, costs)
    timeline: list[list[TimelineEvent[int]]] = [[] for _ in range(compiled.schedule.p)]
    for event in sorted(compiled.events):
        time = times.done[event.number]
        duration = communication(event, costs)
        if duration:
            timeline[event.rank].append(TimelineEvent("exchange", None, time - duration, time))
        for action in event.actions:
            end = time + costs.passes[action.kind][action.stage]
            timeline[event.rank].append(TimelineEvent(action.kind, action, time, end))
            time = end
    return timeline
