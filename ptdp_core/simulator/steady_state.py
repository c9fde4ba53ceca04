"""Executes a pipeline flush of any length in bounded time, exactly, by the periodic steady state of most schedules.

Between warm-up and cool-down a schedule repeats the same steps every q microbatches (q = 1 for 1F1B, q = p
interleaved: `Definition.period`). These steps are found in the compiled program: on every rank they are the longest
stretch in the middle in which each step has a counterpart one period later, with the same passes and messages, and
with partners that are each other's counterparts, too. The number of a microbatch does not matter for the times.

When a rank arrives at a step depends only on when it and its partners arrived at its step before. So, of all that
happened before a moment in the stretch, only the last arrival of each rank and those of its partners there decide what
follows. If each of these happened exactly L after its counterpart one period earlier, then what follows now is what
followed then, but L later. So a longer batch only has more periods of length L, and then the same cool-down.

`flush` executes a short batch, verifies this, and adds the missing periods. If the pipeline has not settled, it
executes a longer batch, in the end the whole one. Whole picoseconds make the comparison exact.
"""

import gc
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from ptdp_core.schedules import Moment, Schedule, TimelineEvent, build, definition, passes_of, stash_fronts, undominated
from ptdp_core.simulator.executor import FUSED_KINDS, Costs, Events, compile_blocking, execute_blocking
from ptdp_core.simulator.native import native, why_in_python


class Flush(NamedTuple):
    """A pipeline flush (Section 2.2), in picoseconds from its start.

    - `ends[r]`: when rank r has finished its last computation and exchange
    - `communication[r]`: how long its exchanges would take if every peer were ready
    - `hidden`: how much of the F, and of the B, of all ranks together fused pairs hide
    - `executed`: the number of microbatches that were executed; the others are added periods
    """

    ends: tuple[int, ...]
    communication: tuple[int, ...]
    hidden: tuple[int, ...]
    executed: int


class Stretch(NamedTuple):
    """The part of a rank's steps that repeats: `steps[first]` to `steps[last]`, `period` steps at a time.

    `kinds` counts the steps of each kind in a period.
    """

    steps: "array[int]"
    first: int
    last: int
    period: int
    kinds: Counter[int]


class Compiled(NamedTuple):
    """A schedule's steps, by rank how many steps of each kind it has, and by rank the part of its steps that repeats;
    empty if they do not on every rank."""

    events: Events
    kinds: tuple[Counter[int], ...]
    stretches: tuple[Stretch, ...]


def flush(name: str, p: int, m: int, v: int, costs: Costs) -> Flush:
    """Execute a blocking schedule of m microbatches (Section 2.2), by its periodic steady state where there is one."""
    schedule = definition(name)
    for short in short_batches(name, p, m, v):
        executed = _executed(name, p, short, v, costs)
        shift, periods = executed.shift, 0
        if short == m:
            shift = 0
        elif schedule.period is not None:
            periods = (m - short) // schedule.period(p)
            if p == 1 and not schedule.fuses:  # it never waits, so that each microbatch adds the time of its passes
                shift = schedule.period(p) * (sum(costs.forward) + sum(costs.backward))
        if shift is not None:
            ends = tuple([end + periods * shift for end in executed.ends])
            communication, hidden = (
                tuple([once + periods * more for once, more in zip(*both, strict=True)])
                for both in ((executed.communication, executed.repeated), executed.hidden)
            )
            return Flush(ends, communication, hidden, short)
    raise AssertionError("the last batch tried is the whole")


class Executed(NamedTuple):
    """An executed batch: see `Flush`. `shift` is the length of a period if the batch has settled into one, and
    `repeated[r]` how long the exchanges of rank r in a period would take; `hidden` is of the batch and of a period."""

    ends: tuple[int, ...]
    communication: tuple[int, ...]
    repeated: tuple[int, ...]
    shift: int | None
    hidden: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))


def _executed(name: str, p: int, m: int, v: int, costs: Costs) -> Executed:
    """Execute m microbatches, compiled where it can be (`native.why_in_python`)."""
    if not why_in_python(definition(name)) and (program := _native_program(name, p, m, v)) is not None:
        passes = costs.forward, costs.backward, costs.weight_gradient
        with suppress(OverflowError):  # a cost of more than 64 bits
            executed = native().execute(program, *passes, *costs.message, costs.gather, costs.exchange)
            if executed is not None:
                return Executed(*executed)
    return _executed_in_python(name, p, m, v, costs)


@lru_cache(maxsize=512)
def _native_program(name: str, p: int, m: int, v: int) -> object | None:
    schedule = definition(name)
    q = schedule.period(p) if schedule.period is not None else 0
    with no_collection():
        by_formula = schedule.stash is not None and not schedule.splits
        table = tuple(map(tuple, schedule.order(p, m, v))) if by_formula else _kept_table(name, p, m, v).ranks
        made = native().compile(table, schedule.placement(p, v).ranks, m, schedule.exchanges, q)
        del table  # before the collector looks for what is new
    return made[0] if isinstance(made, tuple) else made  # a build of 1.0.0 also gives fronts of the stash


def _table(name: str, p: int, m: int, v: int) -> Schedule:
    """The table of a schedule, kept for a moment where fronts are read from it, too; `build` would keep all of it."""
    schedule = definition(name)
    by_formula = schedule.stash is not None and not schedule.splits
    return schedule.table(p, m, v) if by_formula else _kept_table(name, p, m, v)


@lru_cache(maxsize=2)
def _kept_table(name: str, p: int, m: int, v: int) -> Schedule:
    with no_collection():
        return definition(name).table(p, m, v)


def rank_fronts(
    name: str, p: int, m: int, v: int, executed: int = 0, chunks: tuple[tuple[int, ...], ...] = ()
) -> Sequence[Sequence[Moment]]:
    """`schedules.stash_fronts` of every rank: by the schedule's formula where there is one, else from a table.

    That is of the batch `executed`, if any; or of the longest but the whole, which is in the steady state, in which no
    longer one holds more at once. A formula knows nothing of `chunks` that differ (`RankKinds.uneven`).
    """
    schedule = definition(name)
    if schedule.stash is None or schedule.splits or chunks:
        return _table_fronts(name, p, executed or short_batches(name, p, m, v)[-2:][0], v, chunks)
    return [[(stash, 0)] for stash in schedule.stash(p, m, v)]


@lru_cache(maxsize=4096)
def kind_fronts(
    name: str, p: int, m: int, v: int, executed: int, chunks: tuple[tuple[int, ...], ...], of: tuple[int, ...]
) -> list[list[Moment]]:
    """The `rank_fronts` of all ranks of a kind together, by kind; `of` are the kinds of the ranks, 0, 1, 2, ..."""
    return joined(rank_fronts(name, p, m, v, executed, chunks), of)


def joined(fronts: Iterable[Iterable[Moment]], of: Iterable[int]) -> list[list[Moment]]:
    """The fronts of the first ranks, those of a kind together, by kind; the least stashed first."""
    moments: dict[int, set[Moment]] = {}
    for kind, front in zip(of, fronts, strict=False):
        moments.setdefault(kind, set()).update(front)
    return [undominated(moments[kind])[::-1] for kind in range(len(moments))]


@lru_cache(maxsize=4096)
def _table_fronts(name: str, p: int, m: int, v: int, chunks: tuple[tuple[int, ...], ...]) -> Sequence[Sequence[Moment]]:
    """The fronts of one table, which stands for all longer batches."""
    return stash_fronts(_table(name, p, m, v), chunks)


def _executed_in_python(name: str, p: int, m: int, v: int, costs: Costs) -> Executed:
    compiled = compiled_schedule(name, p, m, v)
    done, durations = execute_blocking(compiled.events, costs)
    steps = compiled.kinds, [stretch.kinds for stretch in compiled.stretches]  # of the batch, and of a period
    communication, repeated = (
        tuple([sum([durations[kind] * number for kind, number in kinds.items()]) for kinds in by_rank])
        for by_rank in steps
    )
    batch, period = ((0, 0), (0, 0)) if not costs.hidden else [_hidden(compiled.events, each, costs) for each in steps]
    return Executed(
        tuple([done[steps[-1]] for steps in compiled.events.ranks]),
        communication,
        repeated or (0,) * p,
        _steady_shift(compiled, done),
        (batch, period),
    )


def _hidden(events: Events, by_rank: Iterable[Counter[int]], costs: Costs) -> tuple[int, int]:
    """What fused pairs hide of their F, and of their B, in so many steps of each kind."""
    hidden = [0, 0]
    for kinds in by_rank:
        for step, number in kinds.items():
            for kind, pair in events.passes[events.kinds[step][2]]:
                if kind in FUSED_KINDS:
                    part = FUSED_KINDS.index(kind)
                    hidden[part] += number * costs.hidden.get(divmod(pair, events.stages), (0, 0))[part]
    return hidden[0], hidden[1]


@lru_cache(maxsize=4096)
def short_batches(name: str, p: int, m: int, v: int) -> list[int]:
    """The sizes of the batches to try, in microbatches: just long enough to settle, then longer, in the end the whole.

    Each has the passes with which the fullest rank fills its stash, some periods, and some passes more, as the ranks do
    not begin and end to repeat at the same moment.
    """
    schedule = definition(name)
    if schedule.period is None:
        return [m]
    q = schedule.period(p)
    stash = max(schedule.stash(p, m, v)) if schedule.stash else p * v
    shorts = []
    for periods, further in ((1, 3), (2, 6), (3, p + 5), (5, 3 * p + 11)):
        least = periods * q + -(-(stash + further) // v)
        shorts.append(least + (m - least) % q)
    return [*sorted({short for short in shorts if short < m and not schedule.problem(p, short, v)}), m]


def least_passes(name: str, p: int, m: int, v: int) -> int:
    """The least number of passes that a simulation of this schedule executes, on all ranks together."""
    return definition(name).passes(p, short_batches(name, p, m, v)[0], v)


@lru_cache(maxsize=512)
def compiled_schedule(name: str, p: int, m: int, v: int) -> Compiled:
    """The compiled blocking program of a schedule."""
    with no_collection():
        period, events = definition(name).period, compile_blocking(_table(name, p, m, v))
        stretches = _stretches(events, m, period(p)) if period is not None else ()
        kinds = tuple([Counter(map(events.kind.__getitem__, steps)) for steps in events.ranks])
        return Compiled(events, kinds, stretches)


@contextmanager
def no_collection() -> Iterator[None]:
    """Pauses the garbage collector, which would look through every new tuple several times, and find no cycle."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _stretches(events: Events, m: int, q: int) -> tuple[Stretch, ...]:
    """The part of each rank's steps that repeats every q of m microbatches."""
    passes = [len(events.passes[number]) for _, _, number in events.kinds]
    periods = [_period([passes[events.kind[step]] for step in steps], m, q) for steps in events.ranks]
    if 0 in periods:
        return ()
    kind = events.kind
    later = [-1] * len(kind)  # by step the one a period later on its rank, if there is one
    for steps, period in zip(events.ranks, periods, strict=True):
        for step, counterpart in zip(steps, steps[period:], strict=False):
            later[step] = counterpart
    repeats = [other >= 0 and kind[step] == kind[other] for step, other in enumerate(later)]
    for column in events.partners:
        repeats = [same and later[column[step]] == column[later[step]] for step, same in enumerate(repeats)]
    stretches = []
    for steps, period in zip(events.ranks, periods, strict=True):
        first = after = len(steps) // 2 - period // 2
        if not repeats[steps[first]]:
            return ()
        while first > 0 and repeats[steps[first - 1]]:
            first -= 1
        while repeats[steps[after]]:
            after += 1
        kinds = Counter(map(kind.__getitem__, steps[first : first + period]))
        stretches.append(Stretch(steps, first, after - 1 + period, period, kinds))
    return tuple(stretches)


def _period(passes: list[int], m: int, q: int) -> int:
    """The number of a rank's steps in the middle for q of m microbatches, by the steps' passes; 0 for a small m."""
    starts = [0, *accumulate(passes)]
    length = q * starts[-1] // m
    middle = max(0, (starts[-1] - length) // 2)
    first, last = (bisect_left(starts, start, hi=len(passes)) for start in (middle, middle + length))
    return last - first if middle + length < starts[-1] else 0


def _steady_shift(compiled: Compiled, done: list[int]) -> int | None:
    """The length of a period, if the executed batch has settled into one; see the top of the module."""
    if not compiled.stretches:
        return None
    events = compiled.events
    awaited = (events.before, *events.partners)
    moment = min(done[events.before[stretch.steps[stretch.last]]] for stretch in compiled.stretches)
    shifts: set[int] = set()
    for stretch in compiled.stretches:
        steps = stretch.steps
        last = bisect_left(steps, moment, key=lambda step: done[events.before[step]]) - 1
        if last - stretch.period < stretch.first:
            return None
        step, later = steps[last - stretch.period], steps[last]
        # How much later the rank, and its partners that came before the moment, arrived than one period earlier.
        shifts.update(done[column[later]] - done[column[step]] for column in awaited if done[column[later]] < moment)
        if len(shifts) != 1:
            return None
    return shifts.pop()


def pipeline_timeline(name: str, p: int, m: int, v: int, costs: Costs) -> list[list[TimelineEvent[int]]]:
    """The timeline of each rank, its passes and exchanges in order, in picoseconds from the start of the batch.

    An exchange lasts from the rank's arrival until its messages are in: waiting for the other side counts as idle time
    and comes first.
    """
    events = compiled_schedule(name, p, m, v).events
    done, durations = execute_blocking(events, costs)
    timeline: list[list[TimelineEvent[int]]] = []
    for steps, table in zip(events.ranks, build(name, p, m, v).cells, strict=True):
        row: list[TimelineEvent[int]] = []
        cells = iter(table)
        for step in steps:
            kind = events.kind[step]
            passes = [costs.passes[letter][stage] for letter, stage in events.passes[events.kinds[kind][2]]]
            time = done[step] - sum(passes)
            if durations[kind]:
                row.append(TimelineEvent("exchange", None, time - durations[kind], time))
            while passes:
                actions = passes_of(next(cells))
                duration = sum(passes[: len(actions)])
                row += [TimelineEvent(action.kind, action, time, time + duration) for action in actions]
                time, passes = time + duration, passes[len(actions) :]
        timeline.append(row)
    return timeline
