"""Search for a pipeline schedule under a limit of activation memory, for given times of F, I and W.

`greedy` tries the schedules there are, and list schedules (`ptdp_core/schedules/list_scheduling.py`) with split
backward passes, on one stage per rank and on a V of two, by several orders of preference. A bound says what no schedule
can do better.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product

from ptdp_core.schedules import (
    Action,
    Schedule,
    StagePlacement,
    Time,
    build,
    check_complete,
    definition,
    execute,
    exists,
    looped,
    names,
    peak_stash,
    wave,
)
from ptdp_core.schedules.list_scheduling import PartialSchedule, list_schedule
from results.records.errors import UsageError

Times = Sequence[Time]  # of a rank's forward pass (all chunks), backward pass, and its part for the weights


def makespan(schedule: Schedule, times: Times) -> Time:
    """When the last rank is done, in the unit of the times of a whole rank's passes."""
    t_f, t_b, t_w = (Fraction(time) / schedule.v for time in times)
    return max(row[-1].end for row in execute(schedule, t_f, t_b, t_w))


def lower_bound(p: int, m: int, times: Times) -> Time:
    """Return a time that no schedule with at most two chunks per rank goes below, in the unit of `times`.

    Some rank holds none of the first p - 1 stages, wherever stages are placed. It waits until the first microbatch has
    passed them, at least t_f / 2 each, and then has m forward and m backward passes to run.
    """
    t_f, t_b, _ = times
    return m * (t_f + t_b) + (p - 1) * Fraction(t_f) / 2


def greedy(p: int, m: int, memory: Fraction, times: Times) -> Schedule:
    """The fastest schedule found that stashes at most `memory` times what 1F1B does (p microbatches).

    Raises `UsageError` if none fits.
    """
    tables = _candidates(p, m, memory, times)
    fitting = [table for table in tables if max(peak_stash(table)) <= memory * p * table.v]
    if not fitting:
        raise UsageError(
            f"memory={float(memory):g} of 1F1B's with p={p}, m={m}: no schedule found; try a larger memory"
        )
    return min(fitting, key=lambda table: makespan(table, times))


def _candidates(p: int, m: int, memory: Fraction, times: Times) -> Iterator[Schedule]:
    for name in names():
        v = definition(name).chunks[0]
        if exists(name, p, m, v):
            yield build(name, p, m, v)
    for placement in (looped(p, 1), wave(p, 2)):
        most = int(memory * p * placement.v)
        t_f, t_b, t_w = (Fraction(time) / placement.v for time in times)
        for order, eager in product(("IFW", "FIW"), (False, True)):
            offers = _offers(placement, most, order, eager)
            rows = list_schedule(placement, m, (t_f, t_b - t_w, t_w), offers)
            table = Schedule("greedy", placement, m, tuple(map(tuple, rows)))
            if sum(map(len, rows)) == 3 * p * placement.v * m:
                check_complete(table)
                yield table


def _offers(
    placement: StagePlacement, most: int, order: str, eager: bool
) -> Callable[[int, PartialSchedule], list[Action]]:
    """What a rank may start: kinds in this order, late chunks first; W before F if `eager` or if memory is full."""

    def offers(rank: int, partial: PartialSchedule) -> list[Action]:
        stages, room = placement.stages[rank], most - partial.stash[rank]
        # What has begun on this rank must find room in its later chunks, or all would wait for ever.
        reserved = sum(partial.started("F", stages[0]) - partial.started("F", g) for g in stages[1:])
        forward = [action for g in reversed(stages) for action in partial.next("F", g)]
        fitting = [a for a in forward if room >= (reserved + len(stages) if a.stage == stages[0] else 1)]
        backward = [action for g in reversed(stages) for action in partial.next("I", g)]
        passes = {"F": fitting, "I": backward, "W": partial.deferred[rank][:1]}
        kinds = order if not eager and len(fitting) == len(forward) else order.replace("W", "").replace("F", "WF")
        return [action for kind in kinds for action in passes[kind]]

    return offers
