"""Lowers a schedule to a program: each rank's computations and the messages between them (Sections 2.2 and 4.1).

`lower` is a pure function of the schedule and the exchange mode:

- `blocking`, the paper's: each exchange is one batched group of sends and receives, and the rank goes on only
  when the whole group is done (a rendezvous: both sides have posted every message). Communication is exposed.
- `overlapped`: an exchange only posts its sends and receives. A computation waits for its own input, whose receive
  was posted one action ahead.

Messages carry no tag: between two ranks the n-th receive gets the n-th send. So both ranks need the same order
(`checks.check_order`). This matters most for p = 2 with chunks, where the next rank is also the previous one, so that
activations and gradients go between the same two ranks.

The schedule's `exchanges` says how a blocking program groups its messages: as the authors' code did without chunks
('neighbours') and with chunks ('slots'), or, for any other schedule, as derived from its table ('derived').
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, islice, pairwise
from typing import TypeVar

from ptdp_core.schedules.actions import WEIGHT_GRADIENT, Action, Cell, Schedule, cells, passes_of
from ptdp_core.schedules.derived import DerivedGroup, derived
from ptdp_core.schedules.placement import StagePlacement
from ptdp_core.schedules.program import (
    MODES,
    Compute,
    Exchange,
    Instruction,
    Message,
    Program,
    message_into,
    message_out_of,
)

# The most messages that a rank has in one exchange of a blocking program, by the schedule's `exchanges`: one each way
# with one neighbour, or with both.
MESSAGES_AT_ONCE = {"neighbours": 2, "slots": 4, "derived": 4}

M = TypeVar("M")
# Given some passes, the message that each of them makes, or None, and the one that each waits for, or None. The caller
# decides what stands for a message, the same for both of its ends: whole numbers in the simulator, a `Message` here.
Messages = Callable[[Sequence[Action]], tuple[list[M | None], list[M | None]]]
# Of a rank: what an exchange sends, what it receives, and the computations up to the next exchange.
Groups = list[tuple[list[M], list[M], list[Action]]]


def lower(schedule: Schedule, mode: str) -> Program:
    """Place every send and receive of a schedule. `mode` is 'blocking' (the paper's) or 'overlapped'.

    No mode changes the order of the computations. Raises `ValueError` for an unknown mode, and for 'derived' exchanges
    of a table that cannot run.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is unknown; needs one of {', '.join(MODES)}; try mode='blocking'")
    if schedule.exchanges not in MESSAGES_AT_ONCE:
        raise ValueError(
            f"exchanges={schedule.exchanges!r} is unknown; needs one of {', '.join(MESSAGES_AT_ONCE)}; "
            "try exchanges='derived'"
        )
    if schedule.fused and schedule.exchanges != "derived":
        raise ValueError(
            f"exchanges={schedule.exchanges!r} of a schedule with fused passes; needs those derived from its table; "
            "try exchanges='derived'"
        )
    ranks: Iterable[Iterable[Instruction]]
    if mode == "overlapped":
        ranks = _overlapped(schedule)
    else:
        groups = blocking_groups(schedule, partial(_messages, place=schedule.placement))
        ranks = (_instructions(each, schedule.fused) for each in groups)
    return Program(mode, schedule, tuple(map(tuple, ranks)))


def _messages(actions: Sequence[Action], place: StagePlacement) -> tuple[list[Message | None], list[Message | None]]:
    return [message_out_of(action, place) for action in actions], [message_into(action, place) for action in actions]


def blocking_groups(schedule: Schedule, messages: Messages[M]) -> Iterator[Groups[M]]:
    """The exchanges of each rank of a blocking program, and what it computes after each. The first one is empty."""
    if schedule.exchanges == "derived":
        for actions, starts, groups in zip(
            schedule.ranks, *derived(schedule, MESSAGES_AT_ONCE["derived"]), strict=True
        ):
            yield _derived_groups(actions, *messages(actions), starts, groups)
    elif schedule.exchanges == "slots":
        yield from (_blocking_slots(actions, *messages(actions)) for actions in schedule.ranks)
    else:
        ranks = [(actions, *messages(actions)) for actions in schedule.ranks]
        # By message, what the pass that comes after the one that makes it waits for; a W exchanges nothing.
        then: dict[M | None, M | None] = {}
        for actions, outputs, inputs in ranks:
            exchanging = [action[0] != WEIGHT_GRADIENT for action in actions]
            then.update(zip(compress(outputs, exchanging), islice(compress(inputs, exchanging), 1, None), strict=False))
        yield from (_blocking_neighbours(*rank, then) for rank in ranks)


def _derived_groups(
    actions: Sequence[Action],
    outputs: Sequence[M | None],
    inputs: Sequence[M | None],
    starts: Sequence[int],
    derived_groups: Iterable[DerivedGroup],
) -> Groups[M]:
    """The groups that were derived from the table, each before the passes that start at its moment."""
    groups: Groups[M] = [([], [], [])]
    first = 0
    for moment, sends, receives in derived_groups:
        after = bisect_left(starts, moment, first)
        groups[-1][2].extend(actions[first:after])
        groups.append((_present(outputs, sends), _present(inputs, receives), []))
        first = after
    groups[-1][2].extend(actions[first:])
    return groups


def _present(messages: Sequence[M | None], places: Iterable[int]) -> list[M]:
    return [message for place in places if (message := messages[place]) is not None]


def _instructions(groups: Groups[Message], fused: frozenset[Action]) -> Iterator[Instruction]:
    for sends, receives, actions in groups:
        if sends or receives:
            yield Exchange(tuple(sends), tuple(receives))
        yield from map(Compute, cells(actions, fused) if fused else actions)


def _exchange(sends: Iterable[Message | None], receives: Iterable[Message | None]) -> Iterator[Exchange]:
    """A list of one exchange of these messages; empty if there are no messages."""
    group = Exchange(tuple(filter(None, sends)), tuple(filter(None, receives)))
    if group.sends or group.receives:
        yield group


def _blocking_neighbours(
    actions: Sequence[Action],
    outputs: Sequence[M | None],
    inputs: Sequence[M | None],
    then: Mapping[M | None, M | None],
) -> Groups[M]:
    """The groups without chunks: a send to and a receive from the same neighbour make one, else send, then receive.

    After F the send goes to the next stage and before B the receive comes from it; after B and before F it is
    the previous stage. Two F, or two B, in a row have different neighbours: the authors' code made two calls
    there, which costs two synchronisations in the warm-up and in the cool-down but never delays a
    computation. The neighbour has to make the same group (NCCL leaves the meeting of unlike groups
    undefined). It does where it computes nothing between our two messages: in a steady state, but not between
    the last F and the first B of GPipe, or of 1F1B with m < p; there it is send, then receive, too.

    A W exchanges nothing. Where it lies between the two messages of a group, the group comes after it: the gradient
    waits, but the neighbour computes its F for as long, and a group before the W would have this rank wait for that F
    instead of running the W. Otherwise the gradient goes first, and the receive comes after the W, just in time.
    """
    groups: Groups[M] = [([], [], [])]
    to_send: M | None = None
    weights: list[Action] = []
    for action, output, to_receive in zip(actions, outputs, inputs, strict=True):
        if action[0] == WEIGHT_GRADIENT:
            weights.append(action)
            continue
        if to_send is not None and to_receive is not None and then.get(to_receive) == to_send:
            groups[-1][2].extend(weights)
            groups.append(([to_send], [to_receive], []))
        else:
            if to_send is not None:
                groups.append(([to_send], [], []))
            groups[-1][2].extend(weights)
            if to_receive is not None:
                groups.append(([], [to_receive], []))
        groups[-1][2].append(action)
        to_send, weights = output, []
    if to_send is not None:
        groups.append(([to_send], [], []))
    groups[-1][2].extend(weights)
    return groups


def _blocking_slots(actions: Sequence[Action], outputs: Sequence[M | None], inputs: Sequence[M | None]) -> Groups[M]:
    """The groups with chunks: one between two slots, of all that the finished slot sends and the next one needs.

    Slots are F in the warm-up, FB, and B in the cool-down. If all forward passes come before all backward passes there
    is no steady state (interleaved with m = p).

    Receives are placed just in time, as late as they can be, and need not move: every message is sent and
    received on the same diagonal. Number the group after slot i of rank r by i + r. Forward step k is slot k
    on every rank; rank r+1 needs it after its slot k-1, and rank 0 needs what rank p-1 sends after slot k
    after its own slot k+p-1: the same number each time. Backward step j is slot j + w(r) with w(r) = 2(p-r-1)
    + (v-1)p, and w grows by 2 per rank towards the first, so that here too the numbers agree. Hence a group
    only meets groups of its own diagonal: no deadlock, no overtaking, and with p = 2 the two groups that meet
    hold the same messages, F before B on both sides. With m = p the backward phase has diagonals of its own,
    i + (p-1-r): the last forward and the first backward messages are no group.
    """
    groups: Groups[M] = [([], [], [])]
    sends: list[M] = []
    first = 0
    kinds = "".join([action[0] for action in actions])
    for before, slot in pairwise(("", *re.findall("FB|." if "BF" in kinds else ".", kinds))):
        after = first + len(slot)
        receives = [message for message in inputs[first:after] if message is not None]
        if sends and receives and before == "F" and slot == "B":
            groups.append((sends, [], []))
            sends = []
        if sends or receives:
            groups.append((sends, receives, []))
        groups[-1][2].extend(actions[first:after])
        sends = [message for message in outputs[first:after] if message is not None]
        first = after
    if sends:
        groups.append((sends, [], []))
    return groups


def _overlapped(schedule: Schedule) -> Iterator[Iterator[Instruction]]:
    """Post after each action its send, and the receive of the action after next, which arrives while the next one runs.

    So at most two receive buffers per direction are in use, the running action's and the next one's, where a rank uses
    what another sends it in the order in which it is sent. Where it does not (both directions of a V come from one
    rank), a receive is posted earlier, before those of everything sent after it. The two directions between a pair of
    ranks must not queue behind each other, nor a send behind a receive of its exchange: a receive is posted before a
    send that its peer needs first. One NCCL communicator per ordered pair keeps them apart; torch's default, one per
    pair for both directions, would deadlock.
    """
    placement = schedule.placement
    sent = {
        message: position
        for actions in schedule.ranks
        for position, action in enumerate(actions)
        if (message := message_out_of(action, placement))
    }
    for row in schedule.cells:
        used = [
            (message, i)
            for i, cell in enumerate(row)
            for action in passes_of(cell)
            if (message := message_into(action, placement))
        ]
        posted: list[list[Message]] = [[] for _ in (*row, None, None)]  # by the action that is still two ahead
        latest: dict[int, int] = {}  # by source: where what it sent last of those seen so far is received
        for message, position in sorted(used, key=lambda use: sent.get(use[0], 0), reverse=True):
            latest[message.source] = min(position, latest.get(message.source, position))
            posted[latest[message.source]].insert(0, message)
        yield _posting(row, posted, placement)


def _posting(row: Sequence[Cell], posted: list[list[Message]], place: StagePlacement) -> Iterator[Instruction]:
    yield from _exchange((), (*posted[0], *posted[1]))
    for cell, after_next in zip(row, posted[2:], strict=True):
        yield Compute(cell)
        yield from _exchange([message_out_of(action, place) for action in passes_of(cell)], after_next)
