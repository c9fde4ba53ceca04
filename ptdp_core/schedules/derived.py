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

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from ptdp_core.schedules.actions import BOUNDARY_KINDS, Schedule
from ptdp_core.schedules.execution import execute

# The times of the passes by which moments are chosen: a backward pass takes as long as two forward passes, each of its
# halves as long as one. So only a B has a moment in its midst, and whoever meets it there waits for one unit. Passes of
# a shared vocabulary are short, and exchange none of these messages.
FORWARD, BACKWARD, WEIGHTS = 1, 2, 1


class DerivedGroup(NamedTuple):
    """An exchange of a rank: its moment, the places in its row of the passes that made what it sends, and of those that
    use what it receives, in the order in which the messages were chosen, which is the same on both ranks."""

    moment: int
    sends: list[int]
    receives: list[int]


def derived(schedule: Schedule, most: int) -> tuple[list[list[int]], list[list[DerivedGroup]]]:
    """When each pass starts, and the groups in the order of their moments, by rank.

    A message joins a group only while the group has fewer than `most` messages. A group comes before the passes that
    start at its moment. Raises `ValueError` if the table cannot run.
    """
    rows = execute(schedule, FORWARD, BACKWARD, WEIGHTS)
    starts, ends = ([[int(getattr(event, end)) for event in row] for row in rows] for end in ("start", "end"))
    midst = [
        {moment for start, end in zip(*both, strict=True) for moment in range(start + 1, end)}
        for both in zip(starts, ends, strict=True)
    ]
    groups: list[dict[int, DerivedGroup]] = [{} for _ in starts]  # by moment
    moments: list[list[int]] = [[] for _ in starts]

    def joined(ends: tuple[int, int], first: int, last: int) -> int | None:
        """The latest moment from `first` to `last` at which one of two ranks has a group, with room and both free."""
        one, other = ends
        i, j = bisect_right(moments[one], last) - 1, bisect_right(moments[other], last) - 1
        while True:
            moment = max(moments[one][i] if i >= 0 else -1, moments[other][j] if j >= 0 else -1)
            if moment < first:
                return None
            room = all(moment not in groups[rank] or sum(map(len, groups[rank][moment][1:])) < most for rank in ends)
            if room and moment not in midst[one] and moment not in midst[other]:
                return moment
            i -= i >= 0 and moments[one][i] == moment
            j -= j >= 0 and moments[other][j] == moment

    def alone(ends: tuple[int, int], first: int, last: int) -> int:
        """The latest moment from `first` to `last` at which both ranks are free; if there is none, `last`."""
        free = (moment for moment in range(last, first - 1, -1) if not any(moment in midst[rank] for rank in ends))
        return next(free, last)

    for used, made, _, _, _, (source, k), (destination, i) in sorted(_messages(schedule, starts, ends)):
        pair = source, destination
        moment = joined(pair, made, used)
        if moment is None:
            moment = alone(pair, made, used)
        for rank in pair:
            if moment not in groups[rank]:
                groups[rank][moment] = DerivedGroup(moment, [], [])
                insort(moments[rank], moment)
        groups[source][moment].sends.append(k)
        groups[destination][moment].receives.append(i)
    return starts, [[of_rank[moment] for moment in row] for of_rank, row in zip(groups, moments, strict=True)]


def _messages(
    schedule: Schedule, starts: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]
) -> list[tuple[int, int, str, int, int, tuple[int, int], tuple[int, int]]]:
    """The messages: when each is used and made, its name (`Message`), and rank and place of the two passes."""
    rank_of, m, stages = schedule.placement.ranks, schedule.m, schedule.stages
    makers: list[tuple[int, tuple[int, int]]] = [(0, (0, 0))] * (2 * stages * m)
    for rank, (actions, row) in enumerate(zip(schedule.ranks, ends, strict=True)):
        for i, (kind, stage, microbatch) in enumerate(actions):
            if kind in BOUNDARY_KINDS:
                makers[_output(kind, stage, stages) * m + microbatch] = row[i], (rank, i)
    messages = []
    for rank, (actions, row) in enumerate(zip(schedule.ranks, starts, strict=True)):
        for i, (kind, stage, microbatch) in enumerate(actions):
            source = stage - 1 if kind == "F" else stage + 1
            if kind in BOUNDARY_KINDS and 0 <= source < stages and rank_of[source] != rank:
                made, maker = makers[_output(kind, source, stages) * m + microbatch]
                letter = "F" if kind == "F" else "B"
                messages.append((row[i], made, letter, source, microbatch, maker, (rank, i)))
    return messages


def _output(kind: str, stage: int, stages: int) -> int:
    """A number for what a stage's passes of a kind make: activations (F), or gradients of the input (B, I)."""
    return stage if kind == "F" else stages + stage
