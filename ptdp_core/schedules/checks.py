"""Is a schedule complete, do its messages meet in order, does it run, what does it stash (Section 2.2)."""

from collections import defaultdict
from itertools import zip_longest

from ptdp_core.schedules.actions import Action, Schedule
from ptdp_core.schedules.execution import execute_program
from ptdp_core.schedules.lowering import Exchange, Message, Program


def check_complete(schedule: Schedule) -> None:
    """Raise `ValueError` unless every F and B runs once and on its own rank, F before B (Section 2.2)."""
    p, stages, m = schedule.p, schedule.stages, schedule.m
    seen: set[Action] = set()
    for rank, actions in enumerate(schedule.ranks):
        for position, action in enumerate(actions):
            kind, stage, microbatch = action
            where = f"action={action} at rank {rank}, position {position}"
            if kind not in ("F", "B") or not (0 <= stage < stages and 0 <= microbatch < m):
                raise ValueError(
                    f"{where}, is not of this schedule; needs F or B of stages 0..{stages - 1}, microbatches "
                    f"0..{m - 1}; try removing it"
                )
            if stage % p != rank:
                raise ValueError(f"{where}, is on a wrong rank; needs rank stage mod p; try rank {stage % p}")
            if action in seen:
                raise ValueError(f"{where}, runs twice; needs every action once; try removing one")
            if kind == "B" and Action("F", stage, microbatch) not in seen:
                raise ValueError(
                    f"{where}, comes before its forward pass; needs F before B; "
                    f"try {Action('F', stage, microbatch)} first"
                )
            seen.add(action)
    if len(seen) < 2 * stages * m:
        every = (Action(k, g, i) for k in "FB" for g in range(stages) for i in range(m))
        missing = next(action for action in every if action not in seen)
        raise ValueError(
            f"action={missing} is missing from rank {missing.stage % p}; needs every action once; try adding it"
        )


def check_order(program: Program) -> None:
    """Raise `ValueError` unless every ordered pair of ranks sends and receives in the same order.

    Boundary tensors have equal shapes and no tags, so a swap would go unnoticed and train on the wrong data.
    """
    sent: dict[tuple[int, int], list[Message]] = defaultdict(list)
    received: dict[tuple[int, int], list[Message]] = defaultdict(list)
    for rank, instructions in enumerate(program.ranks):
        for exchange in instructions:
            if isinstance(exchange, Exchange):
                for message in exchange.sends:
                    sent[rank, message.destination].append(message)
                for message in exchange.receives:
                    received[message.source, rank].append(message)
    for source, destination in sorted(sent.keys() | received.keys()):
        pair = (source, destination)
        for position, (out, into) in enumerate(zip_longest(sent[pair], received[pair])):
            if out != into:
                raise ValueError(
                    f"ranks={source}->{destination} disagree on message {position}: sent {out or 'nothing'}, "
                    f"received {into or 'nothing'}; needs receives in the order of the sends; "
                    "try lower() on the schedule"
                )


def check_groups(program: Program) -> None:
    """Raise `ValueError` unless every group of a blocking program meets one like group on each peer.

    What one rank posts to a peer as one group, the peer posts as one group too. A rendezvous model does not
    need it, but NCCL does: there, a group that meets parts of two others is undefined behaviour.
    """
    groups: dict[tuple[int, int], list[Exchange]] = defaultdict(list)
    for rank, instructions in enumerate(program.ranks):
        for group in instructions:
            if isinstance(group, Exchange):
                peers = {m.destination for m in group.sends} | {m.source for m in group.receives}
                for peer in peers:
                    sends = tuple(m for m in group.sends if m.destination == peer)
                    receives = tuple(m for m in group.receives if m.source == peer)
                    groups[rank, peer].append(Exchange(sends, receives))
    for rank, peer in sorted({(min(pair), max(pair)) for pair in groups}):
        pairs = zip_longest(groups[rank, peer], groups[peer, rank], fillvalue=Exchange((), ()))
        for position, (mine, theirs) in enumerate(pairs):
            if mine != Exchange(theirs.receives, theirs.sends):
                raise ValueError(
                    f"ranks={rank},{peer} disagree on group {position}: rank {rank} has {mine or 'nothing'}; "
                    f"rank {peer} has {theirs or 'nothing'}; needs one like group on each side; "
                    "try lower() with mode='blocking'"
                )


def check_progress(program: Program) -> None:
    """Raise `ValueError` naming the stuck instructions if the program deadlocks; see `execute_program`."""
    execute_program(program, 1, 1)


def peak_stash(schedule: Schedule) -> list[int]:
    """Per rank, the most forward passes whose backward pass is still to come (Section 2.2).

    In units of one chunk and one microbatch: divide by v for whole-device units. GPipe m, 1F1B min(m, p - r),
    interleaved on rank 0 pv + p - 1 (m > p) or mv (m = p).
    """
    peaks = []
    for actions in schedule.ranks:
        now = peak = 0
        for action in actions:
            now += 1 if action.kind == "F" else -1
            peak = max(peak, now)
        peaks.append(peak)
    return peaks
