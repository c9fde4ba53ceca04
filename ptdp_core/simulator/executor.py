"""Event-driven execution of a lowered schedule: when every computation and every exchange starts and ends.

A program is compiled once into events, in an order in which everything an event waits for comes before it; executing it
for given costs is one pass over that list. Times are whole picoseconds, so that sums are exact and two runs comparable.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ptdp_core.schedules import Action, Compute, Exchange, Message, Program

PICOSECONDS = 10**12


@dataclass(frozen=True)
class Costs:
    """What things take, in picoseconds.

    `forward[stage]` and `backward[stage]` of one microbatch; `message[k - 1][stage]` on the wire over the boundary
    between `stage` and the next one, in either direction, while k messages of a GPU go the same way; `gather` to put
    together one received message; `exchange` on the host for one group of messages; `weight_gradient[stage]` the part
    of `backward` that a split backward pass does later, if any is split.
    """

    forward: Sequence[int]
    backward: Sequence[int]
    message: tuple[Sequence[int], Sequence[int]]
    gather: int
    exchange: int
    weight_gradient: Sequence[int] = ()

    @cached_property
    def passes(self) -> dict[str, Sequence[int]]:
        """The times of each kind of pass, by stage."""
        passes = {"F": self.forward, "B": self.backward}
        if self.weight_gradient:
            pairs = zip(self.backward, self.weight_gradient, strict=True)
            passes |= {"I": [both - weights for both, weights in pairs], "W": self.weight_gradient}
        return passes


class Event(NamedTuple):
    """One exchange of a rank, and the computations after it up to its next exchange.

    `parts` has for each message the other side's event, the boundary that it crosses (by the stage before it) and how
    many more messages go the same way. `first`
    counts the rank's computations before this event. A rank may begin with an event without messages.
    """

    number: int
    rank: int
    parts: tuple[tuple[int, int, int], ...]
    received: int
    actions: tuple[Action, ...]
    first: int
    following: int


class Times(NamedTuple):
    """When a rank arrived at each event's exchange, and when that exchange was done; by event number."""

    arrived: list[int]
    done: list[int]


def compile_blocking(program: Program) -> list[Event]:
    """The events of a blocking program in executable order. Raises ValueError if the program deadlocks."""
    groups = [_groups(instructions) for instructions in program.ranks]
    offsets = [0]
    for rank_groups in groups:
        offsets.append(offsets[-1] + len(rank_groups))
    senders: dict[Message, tuple[int, int]] = {}
    receivers: dict[Message, tuple[int, int]] = {}
    for rank, rank_groups in enumerate(groups):
        for number, (exchange, _) in enumerate(rank_groups, offsets[rank]):
            for message in exchange.sends:
                senders[message] = (number, len(exchange.sends))
            for message in exchange.receives:
                receivers[message] = (number, len(exchange.receives))
    events: list[Event] = []
    for rank, rank_groups in enumerate(groups):
        first, last = 0, offsets[rank + 1] - 1
        for number, (exchange, actions) in enumerate(rank_groups, offsets[rank]):
            sends, receives = exchange
            parts = [_part(message, len(sends), *receivers[message]) for message in sends]
            parts += [_part(message, len(receives), *senders[message]) for message in receives]
            following = number + 1 if number < last else -1
            events.append(Event(number, rank, tuple(parts), len(receives), actions, first, following))
            first += len(actions)
    return _in_order(events, offsets)


def _part(message: Message, here: int, other: int, there: int) -> tuple[int, int, int]:
    """A message as part of an event; see `Event.parts`. `here` and `there` are the messages of its two groups."""
    boundary = message.stage if message.kind == "F" else message.stage - 1
    return other, boundary, (here if here > there else there) - 1


def _groups(instructions: Sequence[Compute | Exchange]) -> list[tuple[Exchange, tuple[Action, ...]]]:
    """A rank's exchanges, each with the computations that follow it."""
    groups: list[tuple[Exchange, list[Action]]] = []
    for instruction in instructions:
        if isinstance(instruction, Exchange):
            groups.append((instruction, []))
        else:
            if not groups:
                groups.append((Exchange((), ()), []))
            groups[-1][1].append(instruction.action)
    return [(exchange, tuple(actions)) for exchange, actions in groups]


def _in_order(events: list[Event], offsets: list[int]) -> list[Event]:
    """Events sorted so that each comes after the arrival of all its partners: an execution in which time is ignored."""
    arrived = [False] * len(events)
    emitted = [False] * len(events)
    order: list[Event] = []
    ready = list(dict.fromkeys(offsets[:-1]))
    for number in ready:
        arrived[number] = True
    while ready:
        event = events[ready.pop()]
        if emitted[event.number] or not all(arrived[other] for other, _, _ in event.parts):
            continue
        emitted[event.number] = True
        order.append(event)
        if event.following >= 0:
            arrived[event.following] = True
            ready.append(event.following)
            ready.extend(
                other for other, _, _ in events[event.following].parts if arrived[other] and not emitted[other]
            )
    if len(order) < len(events):
        stuck = sorted({event.rank for event in events if not emitted[event.number]})
        raise ValueError(f"program deadlocks on ranks {stuck}; needs matching sends and receives")
    return order


def execute_blocking(events: list[Event], costs: Costs) -> Times:
    """Run the events: a message starts when both sides have arrived; a rank goes on when all its messages are done."""
    arrived, done = [0] * len(events), [0] * len(events)
    passes = costs.passes
    message, gather, host = costs.message, costs.gather, costs.exchange
    for number, _, parts, received, actions, _, following in events:
        time = here = arrived[number]
        for other, boundary, concurrent in parts:
            there = arrived[other]
            end = (here if here > there else there) + message[concurrent][boundary]
            if end > time:
                time = end
        if parts:
            time += host + received * gather
        done[number] = time
        if following >= 0:
            for kind, stage, _ in actions:
                time += passes[kind][stage]
            arrived[following] = time
    return Times(arrived, done)


def communication(event: Event, costs: Costs) -> int:
    """Duration of an event's exchange if every peer is ready, in picoseconds."""
    if not event.parts:
        return 0
    wire = max(costs.message[concurrent][boundary] for _, boundary, concurrent in event.parts)
    return wire + costs.exchange + event.received * costs.gather


def end_of(event: Event, times: Times, costs: Costs) -> int:
    """When the last computation of an event ends."""
    return times.done[event.number] + sum(costs.passes[kind][stage] for kind, stage, _ in event.actions)
