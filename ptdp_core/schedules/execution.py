"""Runs a schedule, or a lowered program, in exact arithmetic: in integers or fractions.

The assumptions are those of Section 2.2: equal stages, and messages that take no time. The simulator has the costs of
real stages and links, and is tested against this module.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from ptdp_core.schedules.actions import VOCABULARY_KINDS, Action, Schedule, Vocabulary
from ptdp_core.schedules.definition import Time
from ptdp_core.schedules.program import Compute, Exchange, Message, Program, message_into

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
    cost, stages, vocabulary = _costs(t_f, t_b, t_w, t_s), schedule.stages, schedule.vocabulary
    ends: dict[Action, Time] = {}
    waiting: dict[Action, list[int]] = defaultdict(list)
    timeline: list[list[TimelineEvent[Time]]] = [[] for _ in schedule.ranks]
    ready, fused = list(range(schedule.p)), schedule.fused
    while ready:
        rank = ready.pop()
        actions, done = schedule.ranks[rank], timeline[rank]
        while len(done) < len(actions):
            action = actions[len(done)]
            cell: tuple[Action, ...] = (action,)
            inputs: Iterable[Action] = needs(action, stages, vocabulary)
            duration = cost[action.kind]
            if fused and action in fused:
                beside = actions[len(done) + 1]
                cell = action, beside
                inputs, duration = chain(inputs, needs(beside, stages)), duration + cost[beside.kind]
            start: Time = done[-1].end if done else 0
            for needed in inputs:
                if needed not in ends:
                    waiting[needed].append(rank)
                    break
                start = max(start, ends[needed])
            else:
                for each in cell:
                    ends[each.output] = end = start + duration
                    done.append(TimelineEvent(each.kind, each, start, end))
                    ready += waiting.pop(each.output, ())
                continue
            break
    stuck = {
        r: str(row[len(done)])
        for r, (row, done) in enumerate(zip(schedule.ranks, timeline, strict=True))
        if len(done) < len(row)
    }
    _raise_if_stuck(stuck)
    return timeline


def _raise_if_stuck(stuck: dict[int, str]) -> None:
    if stuck:
        shown = "; ".join(f"rank {rank} at {what}" for rank, what in list(stuck.items())[:8])
        raise ValueError(
            f"stuck={len(stuck)} ranks wait for each other: {shown}; needs an order in which every input "
            "comes from an earlier action or message; try running what they wait for earlier on its rank"
        )


class _Execution:
    """The state of a program's ranks while it runs. `advance` runs one rank as far as it can go."""

    def __init__(self, program: Program, cost: dict[str, Time]) -> None:
        self.blocking = program.mode == "blocking"
        self.p, self.placement = program.schedule.p, program.schedule.placement
        self.stages, self.vocabulary = program.schedule.stages, program.schedule.vocabulary
        self.cost = cost
        self.ranks = program.ranks
        self.clock: list[Time] = [0] * self.p
        self.position = [0] * self.p
        self.posted_at = [-1] * self.p  # the last instruction whose messages this rank has posted
        self.sent: dict[Message, Time] = {}
        self.received: dict[Message, Time] = {}
        self.ends: dict[Action, Time] = {}  # by `Action.output`
        self.timeline: list[list[TimelineEvent[Time]]] = [[] for _ in program.ranks]

    def advance(self, rank: int) -> set[int]:
        """Run a rank until it has to wait, and return the ranks that may go on because of what it did."""
        woken: set[int] = set()
        instructions = self.ranks[rank]
        while self.position[rank] < len(instructions):
            instruction = instructions[self.position[rank]]
            if isinstance(instruction, Exchange):
                woken |= self._post(rank, instruction)
                done = self._exchange(rank, instruction)
            else:
                done = self._compute(rank, instruction)
                if done and self.vocabulary:
                    woken |= set(range(self.p)) - {rank}
            if not done:
                break
            self.position[rank] += 1
        return woken

    def _post(self, rank: int, exchange: Exchange) -> set[int]:
        if self.posted_at[rank] == self.position[rank]:
            return set()
        self.posted_at[rank] = self.position[rank]
        for message in exchange.sends:
            if message.made_by not in self.ends:
                raise ValueError(
                    f"message={message} is sent at instruction {self.position[rank]} of rank {rank}, before "
                    f"it exists; needs its computation first; try the send after {message.made_by}"
                )
        self.sent.update(dict.fromkeys(exchange.sends, self.clock[rank]))
        self.received.update(dict.fromkeys(exchange.receives, self.clock[rank]))
        return {message.destination for message in exchange.sends} | {message.source for message in exchange.receives}

    def _exchange(self, rank: int, exchange: Exchange) -> bool:
        if self.blocking:
            for mine, theirs in ((exchange.sends, self.received), (exchange.receives, self.sent)):
                if not all(message in theirs for message in mine):
                    return False
            times = [self.received[message] for message in exchange.sends]
            times += [self.sent[message] for message in exchange.receives]
            self.clock[rank] = max(self.clock[rank], *times)
        return True

    def _compute(self, rank: int, instruction: Compute) -> bool:
        start, actions = self.clock[rank], instruction.actions
        for action in actions:
            message = message_into(action, self.placement)
            for needed in needs(action, self.stages, self.vocabulary):
                if message and needed == message.made_by:
                    if message not in self.sent or message not in self.received:
                        return False
                    start = max(start, self.sent[message], self.received[message])
                elif needed not in self.ends:
                    return False
        end = self.clock[rank] = start + sum([self.cost[action.kind] for action in actions])
        for action in actions:
            self.ends[action.output] = end
            self.timeline[rank].append(TimelineEvent(action.kind, action, start, end))
        return True


def execute_program(program: Program, t_f: Time, t_b: Time, t_w: Time | None = None) -> list[list[TimelineEvent[Time]]]:
    """Run a lowered program with messages that take no time: each rank's timeline (Section 2.2).

    Times as in `execute`. In a blocking program a group ends when both sides have posted all of it, and the rank waits
    for that; in an overlapped one a computation waits for its own input. Raises `ValueError` naming where ranks are
    stuck.
    """
    execution = _Execution(program, _costs(t_f, t_b, t_w))
    ready = set(range(execution.p))
    while ready:
        ready |= execution.advance(ready.pop())
    state = enumerate(zip(program.ranks, execution.position, strict=True))
    _raise_if_stuck({rank: f"instruction {i}, {row[i]}" for rank, (row, i) in state if i < len(row)})
    return execution.timeline


def bubble_fraction(run: Schedule | Program, t_f: Time, t_b: Time, t_w: Time | None = None) -> Fraction:
    """The bubble, idle time over ideal time (Section 2.2): (p-1)/m, and (p-1)/(v*m) if interleaved.

    Times as in `execute`; the ideal time is m*v*(t_f + t_b).
    """
    schedule = run if isinstance(run, Schedule) else run.schedule
    timeline = execute(run, t_f, t_b, t_w) if isinstance(run, Schedule) else execute_program(run, t_f, t_b, t_w)
    ideal = schedule.m * schedule.v * (t_f + t_b)
    return Fraction(max(row[-1].end for row in timeline) - ideal) / ideal
