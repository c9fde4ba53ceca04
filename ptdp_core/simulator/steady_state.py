"""A pipeline flush of any length in bounded time, exactly: by the periodic steady state of all schedules but GPipe.

Between warm-up and cool-down a schedule repeats the same events every q microbatches (q = 1 for 1F1B and ZB-H1, q = p
interleaved). Cut each rank's steady state into windows of one period, on the interleaved schedule aligned by the
diagonals on which exchanges meet, so that a window's events wait only for events of the same or the previous window.
Then, if every event of one window happens exactly L after its counterpart in the window before, so it goes on: window
k+1 is a function of window k, shifted times give shifted times. A longer batch has the same warm-up, more such windows,
and the same cool-down, later by L for each.

`flush` executes a short batch, verifies this on it event by event, and adds the missing windows; it lengthens the short
batch if the pipeline has not settled, up to the whole. Whole picoseconds make the comparison exact.
"""

from functools import lru_cache
from typing import NamedTuple

from ptdp_core.schedules import Action, Schedule, build, fullest, lower
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

    `ends[r]`: when rank r has finished its last computation and exchange; `communication[r]`: what its exchanges take
    when nobody is late; `fullest[r]`: its fullest moments (`ptdp_core.schedules.fullest`); `executed`: how many
    microbatches were executed, the others being added periods.
    """

    ends: tuple[int, ...]
    communication: tuple[int, ...]
    fullest: tuple[list[tuple[int, int]], ...]
    executed: int


class Compiled(NamedTuple):
    """A schedule's events in executable order, its fullest moments by rank, and by rank the events of the two windows
    of one period each that end its steady state (no windows if it has none)."""

    schedule: Schedule
    events: list[Event]
    fullest: tuple[list[tuple[int, int]], ...]
    windows: tuple[tuple[list[Event], list[Event]], ...]


def flush(name: str, p: int, m: int, v: int, costs: Costs) -> Flush:
    """Execute a blocking schedule of m microbatches (Section 2.2), by its periodic steady state where there is one."""
    for short in _short_batches(name, p, m):
        compiled = compiled_schedule(name, p, short, v)
        times = execute_blocking(compiled.events, costs)
        if short == m:
            return _result(compiled, times, costs, 0, 0)
        shift = _steady_shift(compiled, times)
        if shift is not None:
            return _result(compiled, times, costs, (m - short) // period(name, p), shift)
    raise AssertionError("the last batch tried is the whole")


def period(name: str, p: int) -> int:
    """Microbatches after which the steady state repeats."""
    return p if name == "interleaved" else 1


def _short_batches(name: str, p: int, m: int) -> list[int]:
    """Batches to try, in microbatches: just long enough to have settled, then longer, and in the end the whole."""
    if name == "interleaved":
        candidates = [5 * p, 7 * p, 10 * p]
    elif name in ("1f1b", "zb-h1") and p > 1:
        candidates = [p + 8, 2 * p + 8, 4 * p + 16]
    else:
        candidates = []
    return [*(short for short in candidates if short < m), m]


@lru_cache(maxsize=256)
def compiled_schedule(name: str, p: int, m: int, v: int) -> Compiled:
    """The compiled blocking program of a schedule."""
    schedule = build(name, p, m, v)
    events = compile_blocking(lower(schedule, "blocking"))
    return Compiled(schedule, events, tuple(fullest(schedule)), _last_windows(schedule, events))


def _last_windows(schedule: Schedule, events: list[Event]) -> tuple[tuple[list[Event], list[Event]], ...]:
    q, p = period(schedule.name, schedule.p), schedule.p
    per_pair = 3 if schedule.is_split else 2
    length = per_pair * q * schedule.v  # computations of a rank per period
    starts, counts = [], []
    for rank, actions in enumerate(schedule.ranks):
        warmup = next(i for i, action in enumerate(actions) if action.kind != "F") - 1
        pairs = schedule.m * schedule.v - warmup
        # Interleaved, rank r's r-th pair is on rank 0's first diagonal. In ZB-H1 a W follows it, the first of the
        # period, which ends with an I: the last pair's gradient is sent before its W, unlike all before it.
        skipped = rank + 1 if schedule.is_split else rank if schedule.v > 1 else 0
        starts.append(warmup + 2 * skipped)
        counts.append((pairs - skipped) * per_pair // length)
    if min(counts) < 2:
        return ()
    begins = [start + (min(counts) - 2) * length for start in starts]
    windows: list[tuple[list[Event], list[Event]]] = [([], []) for _ in range(p)]
    for event in sorted(events):
        window = (event.first - begins[event.rank]) // length
        if 0 <= window < 2:
            windows[event.rank][window].append(event)
    return tuple(windows)


def _steady_shift(compiled: Compiled, times: Times) -> int | None:
    """By how much every event of the last window follows its counterpart in the window before; None if that varies."""
    shifts = set()
    for before, after in compiled.windows:
        if len(before) != len(after):
            return None
        for early, late in zip(before, after, strict=True):
            shifts.add(times.arrived[late.number] - times.arrived[early.number])
            shifts.add(times.done[late.number] - times.done[early.number])
        if len(shifts) != 1:
            return None
    return shifts.pop() if len(shifts) == 1 else None


def _result(compiled: Compiled, times: Times, costs: Costs, periods: int, shift: int) -> Flush:
    p = compiled.schedule.p
    ends, exchanged = [0] * p, [0] * p
    for event in compiled.events:
        exchanged[event.rank] += communication(event, costs)
        if event.following < 0:
            ends[event.rank] = end_of(event, times, costs) + periods * shift
    if periods:
        for rank, (_, window) in enumerate(compiled.windows):
            exchanged[rank] += periods * sum(communication(event, costs) for event in window)
    return Flush(tuple(ends), tuple(exchanged), compiled.fullest, compiled.schedule.m)


def spans(compiled: Compiled, costs: Costs) -> list[list[tuple[str, Action | None, int, int]]]:
    """Per rank what it does when, in picoseconds: (kind of the pass or 'exchange', action, start, end), in order.

    An exchange lasts from the rank's arrival until its messages are in: waiting for the other side counts as idle time
    and comes first.
    """
    times = execute_blocking(compiled.events, costs)
    timeline: list[list[tuple[str, Action | None, int, int]]] = [[] for _ in range(compiled.schedule.p)]
    for event in sorted(compiled.events):
        time = times.done[event.number]
        own = communication(event, costs)
        if own:
            timeline[event.rank].append(("exchange", None, time - own, time))
        for action in event.actions:
            end = time + costs.passes[action.kind][action.stage]
            timeline[event.rank].append((action.kind, action, time, end))
            time = end
    return timeline
