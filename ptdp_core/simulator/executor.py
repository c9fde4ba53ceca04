"""Executes a schedule event by event: when every computation and every exchange starts and ends.

A schedule's blocking program (`schedules.lower`) is compiled once into events, in an order in which everything that an
event waits for comes before it. To execute it for given costs is one pass over that list. For speed, events are plain
tuples of whole numbers, which the garbage collector need not follow, and equal exchanges and computations share one
number and one cost. Times are whole picoseconds, so that sums are exact and two runs can be compared.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

from ptdp_core.schedules import Action, Schedule, blocking_groups

PICOSECONDS = 10**12


@dataclass(frozen=True)
class Costs:
    """The durations of all parts of a program, in picoseconds.

    - `forward[stage]` and `backward[stage]`: the passes of one microbatch
    - `message[k - 1][stage]`: a message on the wire over the boundary between `stage` and the next one, in either
      direction, while k messages of a GPU go the same way
    - `gather`: putting one received message together
    - `exchange`: the host's time for one group of messages
    - `weight_gradient[stage]`: the part of `backward` that a split backward pass does later, if any is split
    """

    forward: Sequence[int]
    backward: Sequence[int]
    message: tuple[Sequence[int], Sequence[int]]
    gather: int
    exchange: int
    weight_gradient: Sequence[int] = ()

    @cached_property
    def passes(self) -> dict[str, Sequence[int]]:
        """The durations of each kind of pass, by stage."""
        passes = {"F": self.forward, "B": self.backward}
        if self.weight_gradient:
            pairs = zip(self.backward, self.weight_gradient, strict=True)
            passes |= {"I": [both - weights for both, weights in pairs], "W": self.weight_gradient}
        return passes


# One exchange of a rank and the computations after it up to its next exchange: (number, parts, exchange, work).
# `parts` has for each message the number of the other side's event and the link; `exchange` and `work` are indices into
# `Events.exchanges` and `Events.works`. A rank's events are numbered one after the other, then comes its end.
Event = tuple[int, tuple[tuple[int, int], ...], int, int]


class Events(NamedTuple):
    """A compiled blocking program.

    - `ordered`: all events, each after the arrival of its partners; `ranks[r]`: the events of rank r in their order
    - `exchanges`: the different exchanges: the links of the messages, and how many of them are received
    - `works`: the different (kind, stage) of the passes between two exchanges
    - a link is a boundary between two stages, by the stage before it, plus p*v if two messages go the same way
    """

    ordered: list[Event]
    ranks: list[list[Event]]
    exchanges: list[tuple[tuple[int, ...], int]]
    works: list[tuple[tuple[str, int], ...]]
    stages: int

    @property
    def ends(self) -> list[int]:
        """The number of the event that is each rank's end."""
        return [events[-1][0] + 1 for events in self.ranks]

    def durations(self, costs: Costs) -> list[int]:
        """The duration of each of the `exchanges` if every peer is ready, in picoseconds."""
        wire = self.wire(costs)
        return [
            max(wire[link] for link in links) + costs.exchange + received * costs.gather if links else 0
            for links, received in self.exchanges
        ]

    def wire(self, costs: Costs) -> list[int]:
        """The duration of a message on each link, in picoseconds."""
        return [time for row in costs.message for time in (*row, 0)[: self.stages]]


def compile_blocking(schedule: Schedule) -> Events:
    """The events of a schedule's blocking program. Raises ValueError if the program deadlocks."""
    stages, m = schedule.stages, schedule.m
    # A message's number is (the boundary it crosses, plus p*v for a gradient) * m + its microbatch.
    sent_at, received_at = [-1] * (2 * stages * m), [-1] * (2 * stages * m)
    groups = list(blocking_groups(schedule, *_numbering(schedule)))
    sends: list[int] = []  # how many messages, by event
    receives: list[int] = []
    for rank_groups in groups:
        for sent, received, _ in rank_groups:
            for message in sent:
                sent_at[message] = len(sends)
            for message in received:
                received_at[message] = len(sends)
            sends.append(len(sent))
            receives.append(len(received))
        sends.append(0)  # the rank's end
        receives.append(0)
    # A new key gets the next number.
    exchanges: defaultdict[tuple[tuple[int, ...], int], int] = defaultdict(count().__next__)
    works: defaultdict[tuple[tuple[str, int], ...], int] = defaultdict(count().__next__)
    ranks: list[list[Event]] = []
    number = 0
    for rank_groups in groups:
        events: list[Event] = []
        for sent, received, actions in rank_groups:
            parts = []
            for messages, here, partners, there in (
                (sent, len(sent), received_at, receives),
                (received, len(received), sent_at, sends),
            ):
                for message in messages:
                    other = partners[message]
                    shared = here > 1 or there[other] > 1
                    parts.append((other, message // m % stages + (stages if shared else 0)))
            exchange = exchanges[tuple([link for _, link in parts]), len(received)]
            work = works[tuple([action[:2] for action in actions])]
            events.append((number, tuple(parts), exchange, work))
            number += 1
        ranks.append(events)
        number += 1
    return Events(_in_order(ranks), ranks, list(exchanges), list(works), stages)


def _numbering(schedule: Schedule) -> tuple[Callable[[Action], int | None], Callable[[Action], int | None]]:
    """The numbers of the messages that a pass makes and waits for; see `compile_blocking`."""
    stages, m, placement = schedule.stages, schedule.m, schedule.placement
    made: dict[tuple[str, int], int] = {}
    awaited: dict[tuple[str, int], int] = {}
    for stage in filter(placement.is_sent, range(stages)):
        made["F", stage] = awaited["F", stage + 1] = stage * m
        for kind in "BI":
            made[kind, stage + 1] = awaited[kind, stage] = (stages + stage) * m

    def numbers(first: dict[tuple[str, int], int]) -> Callable[[Action], int | None]:
        def number(action: Action) -> int | None:
            kind, stage, microbatch = action
            return first[kind, stage] + microbatch if (kind, stage) in first else None

        return number

    return numbers(made), numbers(awaited)


def _in_order(ranks: list[list[Event]]) -> list[Event]:
    """Sort the events so that each comes after the arrival of all its partners, by an execution that ignores time."""
    arrived = [False] * (ranks[-1][-1][0] + 2)
    waiting: defaultdict[int, list[int]] = defaultdict(list)  # the ranks that wait, by the event they wait for
    rests = [iter(events) for events in ranks]
    order: list[Event] = []
    current = [next(remaining, None) for remaining in rests]
    ready = list(range(len(ranks)))
    for events in ranks:
        arrived[events[0][0]] = True
    while ready:
        rank = ready.pop()
        event, remaining = current[rank], rests[rank]
        while event is not None:
            for other, _ in event[1]:
                if not arrived[other]:
                    waiting[other].append(rank)
                    break
            else:
                order.append(event)
                number = event[0] + 1
                arrived[number] = True
                if number in waiting:
                    ready.extend(waiting.pop(number))
                event = next(remaining, None)
                continue
            break
        current[rank] = event
    stuck = [rank for rank, event in enumerate(current) if event is not None]
    if stuck:
        raise ValueError(f"program deadlocks on ranks {stuck}; needs matching sends and receives")
    return order


def execute_blocking(events: Events, costs: Costs) -> list[int]:
    """When a rank arrives at each event's exchange, and at its end, by number, in picoseconds.

    A message starts when both sides have arrived; a rank goes on when all its messages are done.
    """
    wire = events.wire(costs)
    after = [costs.exchange + received * costs.gather if links else 0 for links, received in events.exchanges]
    works = [sum(costs.passes[kind][stage] for kind, stage in work) for work in events.works]
    arrived = [0] * (events.ends[-1] + 1)
    for number, parts, exchange, work in events.ordered:
        time = here = arrived[number]
        for other, link in parts:
            there = arrived[other]
            end = (here if here > there else there) + wire[link]
            if end > time:
                time = end
        arrived[number + 1] = time + after[exchange] + works[work]
    return arrived
