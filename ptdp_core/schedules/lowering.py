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

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TypeVar

from ptdp_core.schedules.actions import WEIGHT_GRADIENT, Action, Schedule
from ptdp_core.schedules.derived import derived
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
    ranks: Iterable[Iterable[Instruction]]
    if mode == "overlapped":
        ranks = _overlapped(schedule)
    elif schedule.exchanges == "derived":
        ranks = derived(schedule, MESSAGES_AT_ONCE["derived"])
    else:
        out_of, into = (partial(message, placement=schedule.placement) for message in (message_out_of, message_into))
        ranks = map(_instructions, blocking_groups(schedule, out_of, into))
    return Program(mode, schedule, tuple(map(tuple, ranks)))


def blocking_groups(
    schedule: Schedule, out_of: Callable[[Action], M | None], into: Callable[[Action], M | None]
) -> Iterator[Groups[M]]:
    """The exchanges of each rank of a blocking program, and what it computes after each. The first exchange is empty.

    The caller decides what stands for a message, the same for both of its ends: `out_of(action)` is the message that a
    pass makes, `into(action)` the one that it waits for, or None. The simulator uses whole numbers, `lower` a
    `Message`.
    """
    if schedule.exchanges == "derived":
        for instructions in derived(schedule, MESSAGES_AT_ONCE["derived"]):
            groups: Groups[M] = [([], [], [])]
            for instruction in instructions:
                if isinstance(instruction, Compute):
                    groups[-1][2].append(instruction.action)
                else:
                    sends = _messages(out_of, [message.made_by for message in instruction.sends])
                    receives = _messages(into, [message.used_by for message in instruction.receives])
                    groups.append((sends, receives, []))
            yield groups
    elif schedule.exchanges == "slots":
        yield from (_blocking_slots(actions, out_of, into) for actions in schedule.ranks)
    else:
        exchanging = ([a.output for a in actions if a.kind != WEIGHT_GRADIENT] for actions in schedule.ranks)
        follows = {a: b for row in exchanging for a, b in pairwise(row)}
        yield from (_blocking_neighbours(actions, out_of, into, follows) for actions in schedule.ranks)


def _messages(message_of: Callable[[Action], M | None], actions: Iterable[Action]) -> list[M]:
    """The messages of those of these passes that have one."""
    return [message for action in actions if (message := message_of(action)) is not None]


def _instructions(groups: Groups[Message]) -> Iterator[Instruction]:
    for sends, receives, actions in groups:
        if sends or receives:
            yield Exchange(tuple(sends), tuple(receives))
        yield from map(Compute, actions)


def _exchange(sends: Iterable[Message | None], receives: Iterable[Message | None]) -> Iterator[Exchange]:
    """A list of one exchange of these messages; empty if there are no messages."""
    group = Exchange(tuple(filter(None, sends)), tuple(filter(None, receives)))
    if group.sends or group.receives:
        yield group


def _blocking_neighbours(
    actions: tuple[Action, ...],
    out_of: Callable[[Action], M | None],
    into: Callable[[Action], M | None],
    follows: dict[Action, Action],
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
    user: Action | None = None  # the pass that waits for what is to be sent
    weights: list[Action] = []
    for action in actions:
        if action.kind == WEIGHT_GRADIENT:
            weights.append(action)
            continue
        to_receive = into(action)
        kind, stage, microbatch = action.output
        step = 1 if kind == "F" else -1
        if (
            to_send is not None
            and to_receive is not None
            and follows.get(Action(kind, stage - step, microbatch)) == user
        ):
            groups[-1][2].extend(weights)
            groups.append(([to_send], [to_receive], []))
        else:
            if to_send is not None:
                groups.append(([to_send], [], []))
            groups[-1][2].extend(weights)
            if to_receive is not None:
                groups.append(([], [to_receive], []))
        groups[-1][2].append(action)
        to_send, user, weights = out_of(action), Action(kind, stage + step, microbatch), []
    if to_send is not None:
        groups.append(([to_send], [], []))
    groups[-1][2].extend(weights)
    return groups


def _slots(actions: tuple[Action, ...]) -> list[list[Action]]:
    """The slots, which run between two exchanges: an F in the warm-up, then (F, B), then a B in the cool-down.

    If all forward passes come before all backward passes there is no steady state (interleaved with m = p).
    """
    pairs = any(a.kind == "B" and b.kind == "F" for a, b in pairwise(actions))
    slots: list[list[Action]] = []
    before = ""
    for action in actions:
        kind = action[0]
        if pairs and kind == "B" and before == "F":
            slots[-1].append(action)
        else:
            slots.append([action])
        before = kind
    return slots


def _blocking_slots(
    actions: tuple[Action, ...], out_of: Callable[[Action], M | None], into: Callable[[Action], M | None]
) -> Groups[M]:
    """The groups with chunks: one between two slots, of all that the finished slot sends and the next one needs.

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
    previous: list[Action] = []
    for slot in (*_slots(actions), []):
        sends, receives = _messages(out_of, previous), _messages(into, slot)
        if sends and receives and len(previous) == len(slot) == 1 and previous[0].kind == "F" and slot[0].kind == "B":
            groups.append((sends, [], []))
            sends = []
        if sends or receives:
            groups.append((sends, receives, slot))
        else:
            groups[-1][2].extend(slot)
        previous = slot
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
    for actions in schedule.ranks:
        used = [(message, i) for i, action in enumerate(actions) if (message := message_into(action, placement))]
        posted: list[list[Message]] = [[] for _ in (*actions, None, None)]  # by the action that is still two ahead
        latest: dict[int, int] = {}  # by source: where what it sent last of those seen so far is received
        for message, position in sorted(used, key=lambda use: sent.get(use[0], 0), reverse=True):
            latest[message.source] = min(position, latest.get(message.source, position))
            posted[latest[message.source]].insert(0, message)
        yield _posting(actions, posted, schedule)


def _posting(actions: tuple[Action, ...], posted: list[list[Message]], schedule: Schedule) -> Iterator[Instruction]:
    yield from _exchange((), (*posted[0], *posted[1]))
    for action, after_next in zip(actions, posted[2:], strict=True):
        yield Compute(action)
        yield from _exchange((message_out_of(action, schedule.placement),), after_next)
