"""Derives the exchanges of a blocking program from any table that can run, whatever its placement and its passes.

The table is run in units of a forward pass, with messages that take no time. A message exists from the end of the pass
that makes it to the start of the pass that uses it. It is given one moment in between, and every rank does its passes
and messages in the order of their moments, a message before the passes that start at the same moment. Among the
messages that are not yet exchanged, the one with the earliest moment can always be exchanged: both its ranks have done
all that comes before, which includes the pass that makes it. So the program cannot deadlock, both sides of every
message agree on the order, and the messages of one moment make the same group on both sides.

The moment is one at which neither rank is inside a pass, so that none waits: the latest at which one of the two ranks
already has a group, so that there are few groups, else the latest of all. If there is no such moment, one of the ranks
waits for the other, for as short a time as possible.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import merge

from ptdp_core.schedules.actions import Action, Schedule
from ptdp_core.schedules.definition import Time
from ptdp_core.schedules.execution import execute
from ptdp_core.schedules.program import Compute, Exchange, Instruction, Message, message_into

# The times of the passes by which moments are chosen: a backward pass takes as long as two forward passes, each of its
# halves as long as one.
FORWARD, BACKWARD, WEIGHTS = 1, 2, 1

_At = tuple[Time, int, Instruction]


class _Ranks:
    """The times of each rank's passes, and the moments of its groups that have been chosen so far."""

    def __init__(self, schedule: Schedule, most: int) -> None:
        self.most = most
        self.passes = execute(schedule, FORWARD, BACKWARD, WEIGHTS)
        self.starts = [[event.start for event in row] for row in self.passes]
        self.moments: list[list[Time]] = [[] for _ in self.passes]
        self.groups: dict[tuple[int, Time], list[Message]] = defaultdict(list)  # by rank and moment

    def pass_around(self, rank: int, moment: Time) -> tuple[Time, Time] | None:
        """The start and the end of the pass that a rank is inside of at a moment; None if it is between two passes."""
        i = bisect_left(self.starts[rank], moment) - 1
        if i < 0 or self.passes[rank][i].end <= moment:
            return None
        return self.passes[rank][i].start, self.passes[rank][i].end

    def join(self, message: Message, first: Time, last: Time) -> Time | None:
        """The latest moment from `first` to `last` at which either rank has a group with room, and both are free."""
        ends = (message.source, message.destination)
        moments = [self.moments[rank] for rank in ends]
        candidates = {m for row in moments for m in row[bisect_left(row, first) : bisect_right(row, last)]}
        for moment in sorted(candidates, reverse=True):
            if all(self.has_room(rank, moment) and self.pass_around(rank, moment) is None for rank in ends):
                return moment
        return None

    def has_room(self, rank: int, moment: Time) -> bool:
        return len(self.groups.get((rank, moment), ())) < self.most

    def alone(self, message: Message, first: Time, last: Time) -> Time:
        """The moment from `first` to `last` with the shortest wait of one rank for the other, the latest of several."""
        best, moment = first, last
        shortest: Time | None = None
        while moment >= first:
            around = [self.pass_around(rank, moment) for rank in (message.source, message.destination)]
            inside = [interval for interval in around if interval is not None]
            wait = max((end - moment for _, end in inside), default=0)
            if shortest is None or wait < shortest:
                best, shortest = moment, wait
            if not inside:
                break
            moment = min(start for start, _ in inside)
        return best

    def add(self, message: Message, moment: Time) -> None:
        for rank in (message.source, message.destination):
            if (rank, moment) not in self.groups:
                insort(self.moments[rank], moment)
            self.groups[rank, moment].append(message)


def derived(schedule: Schedule, most: int) -> Iterator[Iterator[Instruction]]:
    """The instructions of each rank. A message joins a group only while the group has fewer than `most` messages.

    Raises `ValueError` if the table cannot run.
    """
    ranks = _Ranks(schedule, most)
    passes = [
        (action, event)
        for actions, row in zip(schedule.ranks, ranks.passes, strict=True)
        for action, event in zip(actions, row, strict=True)
    ]
    output_exists = {action.output: event.end for action, event in passes}
    messages = sorted(
        (event.start, output_exists[message.made_by], message)
        for action, event in passes
        if (message := message_into(action, schedule.placement))
    )
    for used, first, message in messages:
        moment = ranks.join(message, first, used)
        ranks.add(message, ranks.alone(message, first, used) if moment is None else moment)
    for rank in range(schedule.p):
        yield _instructions(schedule.ranks[rank], ranks, rank)


def _instructions(actions: Sequence[Action], ranks: _Ranks, rank: int) -> Iterator[Instruction]:
    """A rank's passes and groups in the order of their moments, a group before a pass that starts at its moment."""
    passes: Iterator[_At] = (
        (start, 1, Compute(action)) for action, start in zip(actions, ranks.starts[rank], strict=True)
    )
    groups: Iterator[_At] = ((moment, 0, _group(ranks.groups[rank, moment], rank)) for moment in ranks.moments[rank])
    for _, _, instruction in merge(groups, passes, key=lambda timed: timed[:2]):
        yield instruction


def _group(messages: list[Message], rank: int) -> Exchange:
    """The exchange of these messages, in the order in which they were chosen, which is the same on both ranks."""
    sends = tuple(message for message in messages if message.source == rank)
    return Exchange(sends, tuple(message for message in messages if message.source != rank))
