"""Search for a pipeline schedule under a limit of activation memory, for given times of F, I and W.

`greedy` tries the schedules there are, and list schedules (`ptdp_core/schedules/list_scheduling.py`) with split
backward passes, on one stage per rank and on a V of two, by several orders of preference. `exact` is a constraint
program for small p and m, solved by OR-Tools' CP-SAT, an optional package. A bound says what no schedule can do better.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from math import lcm

from ptdp_core.packages import installation
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
from ptdp_core.schedules.execution import needs
from ptdp_core.schedules.list_scheduling import PartialSchedule, list_schedule
from results.records.errors import UnavailableError, UsageError

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


def greedy(p: int, m: int, memory: Fraction, times: Times, only_split: bool = False) -> Schedule:
    """The fastest schedule found that stashes at most `memory` times what 1F1B does (p microbatches).

    With `only_split` all its backward passes are split. Raises `UsageError` if none fits.
    """
    tables = _candidates(p, m, memory, times)
    fitting = [table for table in tables if max(peak_stash(table)) <= memory * p * table.v]
    if only_split:
        fitting = [table for table in fitting if not any(action.kind == "B" for row in table.ranks for action in row)]
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


def exact(p: int, m: int, memory: Fraction, times: Times, start: Schedule, seconds: float) -> tuple[Schedule, Time]:
    """The best schedule that the solver finds on the placement of `start`, split passes, and its bound on the time.

    Raises `UnavailableError` without OR-Tools.
    """
    try:
        from ortools.sat.python import cp_model
    except ImportError:
        raise UnavailableError(f"--exact needs OR-Tools; try {installation('ortools')}, or leave out --exact") from None
    placement, v = start.placement, start.v
    denominator = lcm(*((Fraction(time) / v).denominator for time in times))
    t_f, t_b, t_w = (int(Fraction(time) / v * denominator) for time in times)
    cost = {"F": t_f, "I": t_b - t_w, "W": t_w}
    horizon = int(makespan(start, times) * denominator)
    model, stages = cp_model.CpModel(), p * v
    actions = [Action(kind, g, i) for kind in "FIW" for g in range(stages) for i in range(m)]
    makers = {action.output: action for action in actions}
    begins = {action: model.new_int_var(0, horizon, str(action)) for action in actions}
    end = model.new_int_var(0, horizon, "end")
    for (kind, g, i), begin in begins.items():
        model.add(begin + cost[kind] <= end)
        for output in needs(Action(kind, g, i), stages):
            source = makers[output]
            model.add(begin >= begins[source] + cost[source.kind])
        if i:  # microbatches are alike
            model.add(begin >= begins[Action(kind, g, i - 1)] + cost[kind])
    for group in placement.stages:
        passes = [a for a in actions if a.stage in group]
        model.add_no_overlap([model.new_fixed_size_interval_var(begins[a], cost[a.kind], str(a)) for a in passes])
        stashed = []
        for g, i in product(group, range(m)):
            length = model.new_int_var(0, horizon, f"stashed {g} {i}")
            first, last = begins[Action("F", g, i)], begins[Action("W", g, i)] + t_w
            stashed.append(model.new_interval_var(first, length, last, f"stash {g} {i}"))
        model.add_cumulative(stashed, [1] * len(stashed), int(memory * p * v))
    model.minimize(end)
    for row in execute(start, t_f, t_b, t_w):
        for event in row:
            if event.action in begins:
                model.add_hint(begins[event.action], int(event.start))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds, solver.parameters.num_workers = seconds, 2
    status = solver.solve(model)
    bound = Fraction(int(solver.best_objective_bound), denominator)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return start, bound
    in_order = sorted(actions, key=lambda action: solver.value(begins[action]))
    ranks = tuple(tuple(action for action in in_order if action.stage in group) for group in placement.stages)
    return Schedule("exact", placement, m, ranks), bound
