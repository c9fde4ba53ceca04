"""Runs a schedule, or a lowered program, in exact arithmetic: in integers or fractions.

The assumptions are those of Section 2.2: equal stages, and messages that take no time. The simulator has the costs of
real stages and links, and is tested against this module.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, islice
from typing import Generic, NamedTuple, TypeVar

from ptdp_core.schedules.actions import VOCABULARY_KINDS, Action, Cell, Schedule, Vocabulary, passes_of
from ptdp_core.schedules.definition import Time
from ptdp_core.schedules.program import Compute, Exchange, Instruction, Program, message_into

Time_co = TypeVar("Time_co", bound=float | Fraction, covariant=True)


class TimelineEvent(NamedTuple, Generic[Time_co]):
    """One thing that a pipeline rank did, from `start` to `end`; time that no event covers is idle.

    Every timeline is made of these: executed here, simulated, emulated, run or drawn.

    `kind` is that of a pass (`actions.KINDS`), which `action` names, or 'exchange', 'data_parallel', 'optimizer' or
    'host', whose action is None. A fused pair are two events, F and B, with the same start and end. `exchange` has the
    messages of an executed exchange where they are known. The unit of the times depends on the timeline: an exact one
    has integers or fractions of t_f, all others seconds (picoseconds inside the simulator).
    """

    kind: str
    action: Action | None
    start: Time_co
    end: Time_co
    exchange: Exchange | None = None


def vocabulary_time(schedule: Schedule, t_f: Time) -> Time:
    """A time for S and for T where schedules are compared and drawn: a quarter of the F of all v chunks of a rank."""
    return Fraction(schedule.v * t_f) / 4 if schedule.vocabulary else 0


def needs(action: Action, stages: int, vocabulary: Vocabulary | None = None) -> Iterator[Action]:
    """The outputs (named as by `Action.output`) that an action waits for."""
    kind, stage, microbatch = action
    if vocabulary is not None:
        yield from vocabulary.before(action)
    if kind == "W":
        yield Action("B", stage, microbatch)
    elif kind not in VOCABULARY_KINDS:
        if kind != "F":
            yield Action("F", stage, microbatch)
        source = action.input(stages)
        if source is not None:
            yield source


def _costs(t_f: Time, t_b: Time, t_w: Time | None, t_s: Time = 0) -> dict[str, Time]:
    """The time of each kind of pass; without `t_w`, half of a backward pass is for the weights."""
    weights = Fraction(t_b) / 2 if t_w is None else t_w
    return {"F": t_f, "B": t_b, "I": t_b - weights, "W": weights, "E": 0, "S": t_s, "T": t_s, "G": 0}


def execute(
    schedule: Schedule, t_f: Time, t_b: Time, t_w: Time | None = None, t_s: Time = 0
) -> list[list[TimelineEvent[Time]]]:
    """Run the table: each action starts when its rank is free and its inputs exist (Section 2.2).

    t_f and t_b are the times of one chunk's passes, t_w that part of t_b which a split backward pass spends on the
    gradients of the weights (half if not given: every linear layer's two GEMMs are equal). Both passes of a fused pair
    last as long as the two take one after the other. S and T of a shared vocabulary take t_s each. Raises `ValueError`
    if the order cannot run.
    """
    return _run(schedule, schedule.cells, _costs(t_f, t_b, t_w, t_s))


def execute_program(program: Program, t_f: Time, t_b: Time, t_w: Time | None = None) -> list[list[TimelineEvent[Time]]]:
    """Run a lowered program with messages that take no time: each rank's timeline (Section 2.2).

    Times as in `execute`. In a blocking program a group ends when both sides have posted all of it, and the rank waits
    for that; in an overlapped one a computation waits for its own input. Raises `ValueError` naming where ranks are
    stuck.
    """
    return _run(program.schedule, program.ranks, _costs(t_f, t_b, t_w), program.mode)


def _run(
    schedule: Schedule, ranks: Sequence[Sequence[Instruction | Cell]], cost: Mapping[str, Time], mode: str = ""
) -> list[list[TimelineEvent[Time]]]:
    """Run instructions, or in no mode the cells of a table, of which each rank goes on until it has to wait.

    What it waits for, and has a time from when it is there, are passes, by `Action.output`, and a message's two ends:
    (message, True) as it is received.
    """
    there: dict[object, Time] = {}
    waiting: dict[object, list[int]] = defaultdict(list)
    timeline: list[list[TimelineEvent[Time]]] = [[] for _ in ranks]
    clocks: list[Time] = [0] * len(ranks)
    position = [0] * len(ranks)
    ready, stages = list(range(len(ranks))), schedule.stages
    while ready:
        rank = ready.pop()
        while position[rank] < len(ranks[rank]):
            instruction = ranks[rank][position[rank]]
            actions: tuple[Action, ...] = ()
            needed: list[object] = []
            if isinstance(instruction, Exchange):
                _check_made(instruction, there, f"instruction {position[rank]} of rank {rank}")
                ends = [(m, False) for m in instruction.sends], [(m, True) for m in instruction.receives]
                for end in chain(*ends):
                    there[end] = clocks[rank]
                    ready += waiting.pop(end, ())
                if mode == "blocking":
                    needed = [(message, not received) for message, received in chain(*ends)]
            else:
                cell = instruction.cell if isinstance(instruction, Compute) else instruction
                actions = passes_of(cell)
                for action in actions:
                    message = message_into(action, schedule.placement) if mode else None
                    for output in needs(action, stages, schedule.vocabulary):
                        if message and output == message.made_by:
                            needed += (message, False), (message, True)
                        else:
                            needed.append(output)
            missing = next((each for each in needed if each not in there), None)
            if missing is not None:
                waiting[missing].append(rank)
                break
            position[rank] += 1
            start = max([clocks[rank], *map(there.__getitem__, needed)])
            clocks[rank] = start + sum([cost[action.kind] for action in actions])
            timeline[rank] += [TimelineEvent(action.kind, action, start, clocks[rank]) for action in actions]
            for action in actions:
                there[action.output] = clocks[rank]
                ready += waiting.pop(action.output, ())
    stuck = [(rank, i, row[i]) for rank, (i, row) in enumerate(zip(position, ranks, strict=True)) if i < len(row)]
    if stuck:
        places = (f"rank {rank} at {f'instruction {i}, {what}' if mode else what}" for rank, i, what in stuck)
        raise ValueError(
            f"stuck={len(stuck)} ranks wait for each other: {'; '.join(islice(places, 8))}; needs an order in which "
            "every input comes from an earlier action or message; try running what they wait for earlier on its rank"
        )
    return timeline


def _check_made(exchange: Exchange, there: Mapping[object, Time], where: str) -> None:
    for message in exchange.sends:
        if message.made_by not in there:
            raise ValueError(
                f"message={message} is sent at {where}, before it exists; needs its computation first; try the send "
                f"after {message.made_by}"
            )


def bubble_fraction(run: Schedule | Program, t_f: Time, t_b: Time, t_w: Time | None = None) -> Fraction:
    """The bubble, idle time over ideal time (Section 2.2): (p-1)/m, and (p-1)/(v*m) if interleaved.

    Times as in `execute`; the ideal time is m*v*(t_f + t_b).
    """
    schedule = run if isinstance(run, Schedule) else run.schedule
    timeline = execute(run, t_f, t_b, t_w) if isinstance(run, Schedule) else execute_program(run, t_f, t_b, t_w)
    ideal = schedule.m * schedule.v * (t_f + t_b)
    return Fraction(max(row[-1].end for row in timeline) - ideal) / ideal
