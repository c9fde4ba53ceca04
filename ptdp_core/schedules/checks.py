"""Checks of a schedule: whether it is complete, its messages meet in order, and it can run; its stash, a summary."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, chain, zip_longest
from typing import NamedTuple

from ptdp_core.schedules.actions import KINDS, VOCABULARY_KINDS, Action, Schedule
from ptdp_core.schedules.definition import Time
from ptdp_core.schedules.execution import Time_co, TimelineEvent, execute, execute_program, vocabulary_time
from ptdp_core.schedules.program import Exchange, Message, Program

_BEFORE = {"B": "F", "I": "F", "W": "I", "T": "S"}
_PASSES = {"F": "forward pass", "I": "input gradient", "S": "scores"}
# What a pass adds to the microbatches stashed, and to those whose weight gradients are deferred.
_NEITHER = dict.fromkeys(VOCABULARY_KINDS, 0)
_STASHED = {"F": 1, "B": -1, "I": -1, "W": 0, **_NEITHER}
_DEFERRED = {"F": 0, "B": 0, "I": 1, "W": -1, **_NEITHER}
Moment = tuple[int, ...]  # microbatches of a rank's chunks, stashed and deferred: see `stash_fronts`


def check_complete(schedule: Schedule) -> None:
    """Raise `ValueError` unless every pass runs once and on its own rank, F before B (Section 2.2).

    A backward pass is a B, or an I and after it a W. Where ranks share the vocabulary, each has its passes.
    """
    placement, stages, m = schedule.placement, schedule.stages, schedule.m
    kinds = KINDS if schedule.vocabulary is None else (*KINDS, *VOCABULARY_KINDS)
    finished: set[Action] = set()
    for rank, actions in enumerate(schedule.ranks):
        for position, action in enumerate(actions):
            kind, stage, microbatch = action
            where = f"action={action} at rank {rank}, position {position}"
            if kind not in kinds or not (0 <= stage < stages and 0 <= microbatch < m):
                raise ValueError(
                    f"{where}, is not of this schedule; needs F, B, I or W of stages 0..{stages - 1}, microbatches "
                    f"0..{m - 1}; try removing it"
                )
            if placement.ranks[stage] != rank:
                raise ValueError(
                    f"{where}, is on a wrong rank; needs the rank that holds the stage; "
                    f"try rank {placement.ranks[stage]}"
                )
            if action in finished or (kind == "I" and action.output in finished):
                raise ValueError(f"{where}, runs twice; needs every action once; try removing one")
            if action in schedule.fused:
                beside = actions[position + 1] if position + 1 < len(actions) else None
                if kind != "F" or beside is None or beside.kind != "B" or beside[1:] == action[1:]:
                    raise ValueError(
                        f"{where}, runs together with {beside or 'nothing'}; needs an F and then a B of another "
                        "microbatch or stage; try them one after the other"
                    )
            before = _BEFORE.get(kind)
            if before and Action(before, stage, microbatch) not in finished:
                raise ValueError(
                    f"{where}, comes before its {_PASSES[before]}; needs {before} before {kind}; "
                    f"try {Action(before, stage, microbatch)} first"
                )
            finished |= {action, action.output}
    whole = (Action(k, g, i) for k in "FB" for g in range(stages) for i in range(m))
    held = schedule.vocabulary.shards if schedule.vocabulary else ()
    weight_gradients = (Action("W", g, i) for actions in schedule.ranks for kind, g, i in actions if kind == "I")
    shared = (Action(k, g, i) for k in kinds[len(KINDS) :] for i in range(m) for g in held)
    missing = next((action for action in chain(whole, weight_gradients, shared) if action not in finished), None)
    if missing:
        raise ValueError(
            f"action={missing} is missing from rank {placement.ranks[missing.stage]}; needs every action once; "
            "try adding it"
        )


def check_order(program: Program) -> None:
    """Raise `ValueError` unless every ordered pair of ranks sends and receives in the same order.

    Boundary tensors have equal shapes and no tags, so nothing else would notice that two were swapped, and training
    would go on with the wrong data.
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
    """Raise `ValueError` unless every group of a blocking program meets one equal group on each peer.

    The messages that one rank posts to a peer as one group, the peer has to post as one group, too. NCCL needs this: a
    group that meets parts of two others is undefined behaviour.
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
    """The peak stash of each rank: the most forward passes whose backward pass is not completed yet (Section 2.2).

    Activations count until the weight gradients are computed, in W if the pass is split. In units of one chunk and one
    microbatch: divide by v for whole-device units. GPipe m, 1F1B min(m, p - r), interleaved on rank 0 pv + p - 1
    (m > p) or mv (m = p), ZB-H1 min(m, p).
    """
    return [max(map(sum, states)) for states in stash_fronts(schedule)]


def most_scored(schedule: Schedule) -> int:
    """The most microbatches that a rank has between S and T, of a vocabulary that all ranks share."""
    steps = {"S": 1, "T": -1}
    return max(max(accumulate(steps.get(kind, 0) for kind, _, _ in actions)) for actions in schedule.ranks)


def stash_course(row: Iterable[TimelineEvent[Time_co]]) -> list[tuple[Time_co, int, int]]:
    """The changes of what a rank holds in the course of its timeline: (time, stashed, deferred), as in `stash_fronts`.

    A forward pass counts from its start, every other pass until its end.
    """
    stashed = deferred = 0
    course = []
    for event in row:
        if event.action is not None:
            stashed += _STASHED[event.kind]
            deferred += _DEFERRED[event.kind]
            course.append((event.start if event.kind == "F" else event.end, stashed, deferred))
    return course


def stash_fronts(schedule: Schedule, chunks: Sequence[Sequence[int]] = ()) -> list[list[Moment]]:
    """Per rank, the Pareto front of (microbatches stashed, microbatches whose weight gradients are deferred).

    A microbatch of a chunk is stashed between F and B or I, deferred between I and W. Deferred ones keep only the
    inputs and output gradients of the linear layers, so which pair is the memory peak depends on the sizes of the two.
    At every other moment the rank has no more of either. `chunks` are the numbers of layers of a rank's chunks. Where
    they differ on a rank, all its moments are there, each with such a pair for every number, the largest first.
    """
    ranks = []
    for rank, actions in enumerate(schedule.ranks):
        stages = schedule.placement.stages[rank]
        layers = dict(zip(stages, chunks[rank], strict=True)) if chunks else dict.fromkeys(stages, 1)
        numbers = sorted(set(layers.values()), reverse=True)
        counts = [
            accumulate([steps[kind] if layers[stage] == number else 0 for kind, stage, _ in actions])
            for number in numbers
            for steps in (_STASHED, _DEFERRED)
        ]
        ranks.append(undominated(set(zip(*counts, strict=True))))
    return ranks


def undominated(moments: Iterable[Moment]) -> list[Moment]:
    """Of moments with one pair of numbers those of which no other has as much of both, the most stashed first.

    All of those with several pairs, of chunks of several lengths.
    """
    front: list[Moment] = []
    for moment in sorted(moments, reverse=True):
        if len(moment) > 2 or not front or moment[1] > front[-1][1]:
            front.append(moment)
    return front


class Summary(NamedTuple):
    """An executed table of p ranks and m microbatches (Section 2.2).

    - `bubble`: idle time of a batch with its flush, over the ideal time
    - `own_bubble`: the same between a rank's first and its own last pass, of the rank that idles most
    - `peak_stash`: microbatches whose activations the fullest rank holds, in units of a whole rank (v chunks)
    - `messages`: messages between ranks for each microbatch
    """

    bubble: Fraction
    own_bubble: Fraction
    peak_stash: Fraction
    messages: int


def summary(schedule: Schedule, t_f: Time = 1, t_b: Time = 2, t_w: Time = 1) -> Summary:
    """Execute a table; by default F, I and W take equally long (S and T: `vocabulary_time`).

    Raises `ValueError` if it cannot run."""
    t_s = vocabulary_time(schedule, t_f)
    rows, ideal = execute(schedule, t_f, t_b, t_w, t_s), schedule.m * (schedule.v * (t_f + t_b) + 2 * t_s)
    return Summary(
        bubble=Fraction(max(row[-1].end for row in rows) - ideal) / ideal,
        own_bubble=Fraction(max(row[-1].end - row[0].start for row in rows) - ideal) / ideal,
        peak_stash=Fraction(max(peak_stash(schedule)), schedule.v),
        messages=sum(schedule.placement.sends),
    )
