"""Executes a schedule event by event: when every computation and every exchange starts and ends.

A schedule's blocking program (`schedules.lower`) is compiled once into steps, in an order in which everything that a
step waits for comes before it. To execute it for given costs is one pass over the steps. For speed and memory, steps
are flat arrays of whole numbers, and equal exchanges and computations share one number and one cost. Times are whole
picoseconds, so that sums are exact and two runs can be compared.
"""

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, compress, count
from typing import NamedTuple, TypeVar

from ptdp_core.schedules import KINDS, Action, Fused, Schedule, blocking_groups
from ptdp_core.schedules.actions import VOCABULARY_KINDS, cells
from ptdp_core.simulator.vocabulary import SHARED, apart, join

PICOSECONDS = 10**12
# The kinds of the F and the B of a fused pair, whose 'stage' is that of the F times p*v, plus that of the B.
FUSED_KINDS = "F&", "&B"


@dataclass(frozen=True)
class Costs:
    """The durations of all parts of a program, in picoseconds.

    - `forward[stage]` and `backward[stage]`: the passes of one microbatch
    - `message[k - 1][stage]`: a message on the wire over the boundary between `stage` and the next one, in either
      direction, while k messages of a GPU go the same way
    - `gather`: putting one received message together
    - `exchange`: the host's time for one group of messages
    - `weight_gradient[stage]`: the part of `backward` that a split backward pass does later, if any is split
    - `vocabulary[kind]`: the passes of a vocabulary that all ranks share; `collectives[kind]`: what the ranks exchange
      after these passes, F of the last stage, and B of the first (`SHARED`)
    - `hidden[f, b]`: by how much less the F of stage f, and the B of stage b, keep a rank busy as a fused pair
    """

    forward: Sequence[int]
    backward: Sequence[int]
    message: tuple[Sequence[int], Sequence[int]]
    gather: int
    exchange: int
    weight_gradient: Sequence[int] = ()
    hidden: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    collectives: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def passes(self) -> dict[str, Sequence[int] | Mapping[int, int]]:
        """The durations of each kind of pass, by stage; those of a fused pair add up to what both together take."""
        passes: dict[str, Sequence[int] | Mapping[int, int]] = {"F": self.forward, "B": self.backward}
        if self.weight_gradient:
            pairs = zip(self.backward, self.weight_gradient, strict=True)
            passes |= {"I": [both - weights for both, weights in pairs], "W": self.weight_gradient}
        passes |= {kind: [time] * len(self.forward) for kind, time in self.vocabulary.items()}
        return passes | {kind: _InPairs(self, part) for part, kind in enumerate(FUSED_KINDS)}


class _InPairs(dict[int, int]):
    """The durations of the F (part 0) or the B (part 1) of fused pairs, computed when they are asked for."""

    def __init__(self, costs: Costs, part: int) -> None:
        self.costs, self.part = costs, part

    def __missing__(self, number: int) -> int:
        costs = self.costs
        pair = divmod(number, len(costs.forward))
        whole = (costs.forward, costs.backward)[self.part][pair[self.part]]
        self[number] = whole - costs.hidden.get(pair, (0, 0))[self.part]
        return self[number]


K = TypeVar("K")
# The links of the messages with one partner. A link is a boundary between two stages, by the stage before it, plus p*v
# if two messages go the same way.
Links = tuple[int, ...]


class Events(NamedTuple):
    """A compiled blocking program.

    A step is one exchange of a rank, if any, and the passes after it up to its next exchange. It starts when its rank
    is done with step `before[step]`, and its partners, which come to the exchange too, with `partners[k][step]`; where
    it has fewer partners than others, the rank stands for them. Step 0 is the start of the batch.

    - `kind[step]`: an index into `kinds`, which hold what is alike in many steps: for each partner the links, an index
      into `links`; how many messages are received; and the passes that follow, an index into `passes`
    - `passes`: their (kind, stage)
    - `ranks[r]`: the steps of rank r in their order
    """

    before: "array[int]"
    partners: "list[array[int]]"
    kind: "array[int]"
    kinds: list[tuple[tuple[int, ...], int, int]]
    links: list[Links]
    passes: list[tuple[tuple[str, int], ...]]
    ranks: "list[array[int]]"
    stages: int

    def times(self, costs: Costs) -> tuple[list[int], list[tuple[int, ...]]]:
        """Of each of the `kinds` the duration of the exchange if every peer is ready, and delays, in picoseconds.

        The delays are the least times from the arrival of the rank, and of each partner, to the end of the step.
        """
        alone = [time for row in costs.message for time in (*row, 0)[: self.stages]]
        alone += [costs.collectives.get(kind, 0) for kind in SHARED]
        wire = [max([alone[link] for link in links], default=0) for links in self.links]
        passes = costs.passes
        computing = [sum([passes[kind][stage] for kind, stage in row]) for row in self.passes]
        durations, delays = [], []
        for links, received, number in self.kinds:
            posting = costs.exchange + received * costs.gather if any(links) else 0
            each = [wire[k] for k in links]
            durations.append(max(each) + posting)
            after = computing[number] + posting
            delays.append((max(each) + after, *[time + after for time in each]))
        return durations, delays


def compile_blocking(schedule: Schedule) -> Events:
    """The steps of a schedule's blocking program. Raises ValueError if the program deadlocks.

    Where all ranks share the vocabulary, each of their collectives is a rank of its own with one step, which waits for
    the passes that give it something, and for which those that need it wait."""
    placement, m = schedule.placement, schedule.m
    stages = len(placement.ranks)
    groups = list(blocking_groups(schedule, _numbering(schedule)))
    if schedule.vocabulary is not None:
        groups = [apart(rank_groups, schedule.vocabulary) for rank_groups in groups]
        groups += [[([], [], [])] for _ in range(len(SHARED) * m)]
    # Exchanges are numbered rank by rank; after those of a rank comes its end, an exchange of nothing.
    exchanges = [exchange for rank_groups in groups for exchange in (*rank_groups, ([], [], []))]
    # A message's number is (the boundary it crosses, plus p*v for a gradient) * m + its microbatch.
    sent_at, received_at = [-1] * (2 * stages * m), [-1] * (2 * stages * m)
    for number, (sent, received, _) in enumerate(exchanges):
        for message in sent:
            sent_at[message] = number
        for message in received:
            received_at[message] = number
    partners, links = _partners(exchanges, sent_at, received_at, stages)
    if schedule.vocabulary is not None:
        links += [(2 * stages + number,) for number in range(len(SHARED))]
        join(groups, partners, schedule.vocabulary, placement.p, m, len(links) - len(SHARED))
    order, arrived = _in_order(groups, partners)
    width = max(2, *map(len, partners))
    # The (kind, stage) of the passes behind each exchange; see `FUSED_KINDS`.
    kinds_of_passes = (
        tuple(_kinds_in_pairs(schedule, actions) if schedule.fused else [action[:2] for action in actions])
        for _, _, actions in exchanges
    )
    pass_numbers, passes = _numbered(kinds_of_passes, ())
    numbers = zip(
        (tuple(row.values()) for row in partners), (len(r) for _, r, _ in exchanges), pass_numbers, strict=True
    )
    kind_numbers, kinds = _numbered(numbers, ((), 0, 0))
    ends = accumulate(len(rank_groups) + 1 for rank_groups in groups)
    sources = [(*row, *[number] * (width - len(row))) for number, row in enumerate(partners)]
    return Events(
        before=array("i", [0, *[arrived[number] for number in order]]),
        partners=[array("i", [0, *[arrived[sources[number][k]] for number in order]]) for k in range(width)],
        kind=array("i", [0, *[kind_numbers[number] for number in order]]),
        kinds=[((*row, *[0] * (width - len(row))), received, number) for row, received, number in kinds],
        links=links,
        passes=passes,
        # The step of an exchange is the one that its rank has done when it arrives at the next.
        ranks=[array("i", arrived[end - len(row) : end]) for end, row in zip(ends, groups, strict=True)][: placement.p],
        stages=stages,
    )


def _kinds_in_pairs(schedule: Schedule, actions: Sequence[Action]) -> Iterator[tuple[str, int]]:
    for cell in cells(actions, schedule.fused):
        if isinstance(cell, Fused):
            pair = cell.forward.stage * schedule.stages + cell.backward.stage
            yield from ((kind, pair) for kind in FUSED_KINDS)
        else:
            yield cell[:2]


def _partners(
    exchanges: Sequence[tuple[list[int], list[int], list[Action]]],
    sent_at: Sequence[int],
    received_at: Sequence[int],
    stages: int,
) -> tuple[list[dict[int, int]], list[Links]]:
    """By exchange, the partners' exchanges and the number of the links between; and the links by their number."""
    several = [(len(sent) > 1, len(received) > 1) for sent, received, _ in exchanges]
    partners: list[dict[int, int]] = [{} for _ in exchanges]
    links: list[Links] = [(), *((link,) for link in range(2 * stages))]
    joined: dict[tuple[int, int], int] = {}
    m = len(sent_at) // (2 * stages)
    for boundary in range(2 * stages):
        alone = 1 + boundary % stages
        messages = slice(boundary * m, (boundary + 1) * m)
        for sender, receiver in zip(sent_at[messages], received_at[messages], strict=True):
            if sender < 0:
                continue  # between two stages of one rank
            number = alone + stages if several[sender][0] or several[receiver][1] else alone
            if receiver in partners[sender]:
                pair = partners[sender][receiver], number
                if pair not in joined:
                    joined[pair] = len(links)
                    links.append(links[pair[0]] + links[pair[1]])
                number = joined[pair]
            partners[sender][receiver] = partners[receiver][sender] = number
    return partners, links


def _numbered(keys: Iterable[K], first: K) -> tuple[list[int], list[K]]:
    """A number for each key, 0 for `first`, equal ones for equal keys; and the keys by their number."""
    numbers: defaultdict[K, int] = defaultdict(count().__next__)
    numbers[first]
    return [numbers[key] for key in keys], list(numbers)


def _numbering(schedule: Schedule) -> Callable[[Sequence[Action]], tuple[list[int | None], list[int | None]]]:
    """The numbers of the messages that passes make and wait for; see `compile_blocking`."""
    m, placement = schedule.m, schedule.placement
    stages = len(placement.ranks)
    # By kind of pass and stage, the number of the first microbatch's message.
    outputs: dict[str, list[int | None]] = {kind: [None] * stages for kind in (*KINDS, *VOCABULARY_KINDS)}
    inputs: dict[str, list[int | None]] = {kind: [None] * stages for kind in (*KINDS, *VOCABULARY_KINDS)}
    for stage in compress(range(stages), placement.sent):
        outputs["F"][stage] = inputs["F"][stage + 1] = stage * m
        for kind in "BI":
            outputs[kind][stage + 1] = inputs[kind][stage] = (stages + stage) * m

    return lambda actions: (
        [None if (start := outputs[kind][stage]) is None else start + i for kind, stage, i in actions],
        [None if (start := inputs[kind][stage]) is None else start + i for kind, stage, i in actions],
    )


def _in_order(ranks: Sequence[Sequence[object]], partners: Sequence[Iterable[int]]) -> tuple[list[int], list[int]]:
    """Sort the exchanges so that each comes after the arrival of all its partners, by an execution that ignores time.

    Also returns, for each exchange, the step before it on its rank: 1 + the place in that order of the rank's exchange
    before, 0 at its first.
    """
    following = [0, *accumulate(len(row) + 1 for row in ranks)]  # by rank its next exchange
    ends = [end - 1 for end in following[1:]]
    arrived = [-1] * following.pop()
    for number in following:
        arrived[number] = 0
    waiting: defaultdict[int, list[int]] = defaultdict(list)  # the ranks that wait, by the exchange they wait for
    order: list[int] = []
    ready = list(range(len(ranks)))
    while ready:
        rank = ready.pop()
        number, end = following[rank], ends[rank]
        while number < end:
            for other in partners[number]:
                if arrived[other] < 0:
                    waiting[other].append(rank)
                    break
            else:
                order.append(number)
                number += 1
                arrived[number] = len(order)
                if number in waiting:
                    ready += waiting.pop(number)
                continue
            break
        following[rank] = number
    stuck = [rank for rank, end in enumerate(ends) if following[rank] < end]
    if stuck:
        raise ValueError(f"program deadlocks on ranks {stuck}; needs matching sends and receives")
    return order, arrived


def execute_blocking(events: Events, costs: Costs) -> tuple[list[int], list[int]]:
    """When each step ends: its rank has exchanged its messages and run the passes after it; in picoseconds.

    Also returns the durations of `Events.times`.
    A message starts when both sides have arrived; a rank goes on when all its messages are done.
    """
    durations, delays = events.times(costs)
    steps = zip(map(delays.__getitem__, events.kind), events.before, *events.partners, strict=True)
    next(steps)  # the start
    done = [0]
    if len(events.partners) > 2:
        for after, *awaited in steps:
            done.append(max([done[step] + delay for step, delay in zip(awaited, after, strict=True)]))
        return done, durations
    for (alone, with_first, with_second), before, first, second in steps:  # the same, several times as fast
        alone += done[before]
        with_first += done[first]
        if with_first > alone:
            alone = with_first
        with_second += done[second]
        done.append(with_second if with_second > alone else alone)
    return done, durations
