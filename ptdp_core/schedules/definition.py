"""The definition of a pipeline schedule for all sizes (p, m, v): everything about it is in one `Definition`.

A new schedule is a module of `ptdp_core/schedules/zoo` that calls its definition `SCHEDULE`; everything else (the
configurations, the simulator, the engine, the command line, the drawings, the tests) finds it through `registry.py`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain, count, repeat
from operator import itemgetter
from typing import Any

from ptdp_core.schedules.actions import VOCABULARY_KINDS, Cell, Fused, Pass, Schedule, Vocabulary, as_action
from ptdp_core.schedules.placement import StagePlacement, looped, wave

Time = int | Fraction
Order = Sequence[Sequence[Pass]]
Formula = Callable[[int, int, int, Time, Time, Time], Time | None]  # of p, m, v, t_f, t_b, t_w


@dataclass(frozen=True)
class Definition:
    """A pipeline schedule for p pipeline ranks, m microbatches and v model chunks per rank.

    - `name` is what configurations and the command line call it, `title` what figures call it. `year` and `reference`
      say where it was published.
    - `order(p, m, v)` returns the passes of each rank, in the order in which the rank runs them; a forward and a
      backward pass that run together are a `Fused` pair.
    - `placement(p, v)` says which rank holds which stages of the model.
    - `chunks` is the smallest and the largest v that the schedule exists for; None as the largest means any.
    - `problem(p, m, v)` returns the text of an error if the schedule does not exist for these sizes, otherwise "".
    - `splits` is true if backward passes are split into I (the input's gradient) and W (the weights' gradients).
    - `fuses` is true if some passes are `Fused` pairs.
    - `exchanges` says how messages are grouped in a blocking program; `lowering.lower` lists the ways.
    - `period(p)` is the number of microbatches after which the steady state repeats itself: a batch with that many
      microbatches more has the same order with one more repetition. None stands for no known steady state.
    - `bubble(p, m, v, t_f, t_b, t_w)` is the published formula for a rank's idle time in one batch, where a chunk's
      forward pass takes t_f and its backward pass t_b, of which t_w is spent on the weights' gradients. It has to be
      exact while t_w <= t_f and t_w <= t_b - t_w, and returns None for sizes and times that it does not cover. A fused
      pair takes t_f + t_b: what it hides depends on the model.
    - `own_bubble(...)` takes the same arguments and counts only the time between a rank's own first and last pass, on
      the rank that idles most. Zero-bubble papers count so, since their optimizer steps need no pipeline flush. Without
      it, `bubble` stands for both.
    - `stash(p, m, v)` is the published formula for `checks.peak_stash`, in chunks on each rank. Where backward passes
      are split, a rank may hold less than it says.
    - `published` are bubble, activation memory and message volume as its authors compare them with 1F1B's, if F, I and
      W take equally long.
    - `finding` is a sentence on how the execution differs from the authors' formula, if it does.
    - `shared(p, m, v, method)` is `order` with passes of a vocabulary that all ranks share by a method of
      `vocabulary.METHODS`; None for a schedule without such passes.
    - `vocabulary` is that method, of a schedule that has them, and otherwise "".
    - `sizes` are p, m and v of a schedule that was read from one table, which exists for no other sizes.
    """

    name: str
    title: str
    year: int
    reference: str
    order: Callable[[int, int, int], Sequence[Sequence[Pass | Fused]]]
    placement: Callable[[int, int], StagePlacement] = looped
    chunks: tuple[int, int | None] = (1, 1)
    problem: Callable[[int, int, int], str] = lambda p, m, v: ""
    splits: bool = False
    fuses: bool = False
    exchanges: str = "derived"
    period: Callable[[int], int] | None = None
    bubble: Formula | None = None
    own_bubble: Formula | None = None
    stash: Callable[[int, int, int], Sequence[int]] | None = None
    published: tuple[str, str, str] | None = None
    finding: str = ""
    shared: Callable[[int, int, int, str], Order] | None = None
    vocabulary: str = ""
    sizes: tuple[int, int, int] | None = None

    def has_chunks(self, v: int) -> bool:
        """Whether the schedule exists for v model chunks per rank."""
        least, most = self.chunks
        return v >= least and (most is None or v <= most)

    def passes(self, p: int, m: int, v: int) -> int:
        """The number of actions in the table for these sizes, on all ranks together."""
        of_stages = (3 if self.splits else 2) * p * m * v
        return of_stages + len(VOCABULARY_KINDS) * p * m if self.vocabulary else of_stages

    def table(self, p: int, m: int, v: int) -> Schedule:
        """The schedule's table for sizes that it exists for (`registry.build` checks them first)."""
        rows: Any = self.order(p, m, v)
        placement = self.placement(p, v)
        if self.fuses:
            return Schedule.of_cells(self.name, placement, m, rows, self.exchanges)
        ranks = tuple([tuple(map(as_action, row)) for row in rows])  # no pair has to be looked for
        vocabulary = Vocabulary.of(placement, self.vocabulary) if self.vocabulary else None
        return Schedule(self.name, placement, m, ranks, self.exchanges, vocabulary=vocabulary)


def of_table(table: Schedule) -> Definition:
    """Make a definition of one table: a schedule that exists for the table's own p, m and v only."""
    sizes = (table.p, table.m, table.v)

    def problem(*asked: int) -> str:
        if asked == sizes:
            return ""
        wanted, existing = (
            ", ".join(f"{letter}={size}" for letter, size in zip("pmv", s, strict=True)) for s in (asked, sizes)
        )
        return f"{wanted} with schedule={table.name!r}; needs the sizes of its table; try {existing}"

    return Definition(
        name=table.name,
        title=table.name,
        year=0,
        reference="a table",
        order=lambda p, m, v: table.cells,
        placement=lambda p, v: table.placement,
        chunks=(table.v, table.v),
        problem=problem,
        splits=table.is_split,
        fuses=bool(table.fused),
        exchanges=table.exchanges,
        vocabulary=table.vocabulary.method if table.vocabulary else "",
        sizes=sizes,
    )


# Definitions of schedules with split backward passes on a V of stages (two chunks a rank, the second one placed in the
# reverse order of ranks), in whose steady state every microbatch repeats the one before it.
split_on_v = partial(Definition, placement=wave, chunks=(2, 2), splits=True, period=lambda p: 1)


def passes(kind: str, stages: int | Iterable[int], microbatches: Iterable[int]) -> list[Pass]:
    """The passes of one kind for these microbatches, in order: all by one stage, or each by its own of `stages`."""
    if isinstance(stages, int):
        stages = repeat(stages)
    return list(zip(repeat(kind), stages, microbatches, strict=False))


def in_turn(
    p: int, m: int, warmup: Callable[[int], int], v: int = 1, round_size: int | None = None
) -> list[list[Pass]]:
    """Return the order of 1F1B and its relatives (Section 2.2): "one forward, one backward" after a warm-up.

    Rank r starts with `warmup(r)` forward passes, goes on with forward and backward passes in turn until the forward
    passes are used up, and ends with the remaining backward passes. Its v stages are those of `placement.looped`. In
    the forward direction `round_size` microbatches (default: all m) go through chunk 0, then the same ones through
    chunk 1 and so on, before the next round begins; in the backward direction the chunks come in reverse. With
    `round_size=p` this is the paper's interleaved schedule (Section 2.2.2).
    """
    size = round_size or m
    rounds = range(0, m, size)
    # Microbatches do not depend on the rank, and are the same forward and backward.
    microbatches = [i for first in rounds for _ in range(v) for i in range(first, first + size)]
    ranks = []
    for rank, stages in enumerate(looped(p, v).stages):
        chunks = [stage for stage in stages for _ in range(size)]
        forwards = passes("F", chunks * len(rounds), microbatches)
        backwards = passes("B", chunks[::-1] * len(rounds), microbatches)
        first_pair = warmup(rank)
        pairs = chain.from_iterable(zip(forwards[first_pair:], backwards, strict=False))
        ranks.append([*forwards[:first_pair], *pairs, *backwards[len(forwards) - first_pair :]])
    return ranks


def split(actions: Iterable[Pass], deferred: int) -> list[Pass]:
    """Split each backward pass B of a rank into an I, which takes its place, and a W, which may come later.

    A W follows the I that comes `deferred` backward passes after its own; the last `deferred` of them stand at the end.
    Zero-bubble schedules defer W so, to fill what would be waiting time (Qi et al., ICLR 2024, Section 2).
    """
    row: list[Pass] = []
    weights: list[Pass] = []
    for action in actions:
        kind, stage, microbatch = action
        if kind == "F":
            row.append(action)
        else:
            row.append(("I", stage, microbatch))
            weights.append(("W", stage, microbatch))
            if len(weights) > deferred:
                row.append(weights[-1 - deferred])
    return row + weights[max(len(weights) - deferred, 0) :]


def fused(actions: Iterable[Pass]) -> list[Cell]:
    """Fuse each forward pass of a rank with the backward pass B right after it, if there is one."""
    row: list[Cell] = []
    for action in map(as_action, actions):
        before = row[-1] if row else None
        if action.kind == "B" and before is not None and not isinstance(before, Fused) and before.kind == "F":
            row[-1] = Fused(before, action)
        else:
            row.append(action)
    return row


def numbered(words: Iterable[str], stages: Sequence[int]) -> list[Pass]:
    """Return the passes of a rank from words of kind and chunk, such as 'F0' or 'I1'; `stages` are its chunks' stages.

    The n-th F of a chunk is that of microbatch n - 1, and so is its n-th backward pass (B or I). A W belongs to the
    oldest I of its chunk whose W is still to come, a 'W' without a chunk to the oldest such I of all chunks.
    """
    chunks = [str(chunk) for chunk in range(len(stages))]
    numbers = {(forward, chunk): count() for forward in (True, False) for chunk in chunks}
    deferred: dict[str, deque[tuple[int, Pass]]] = {chunk: deque() for chunk in chunks}
    row: list[Pass] = []  # whose places stand with the deferred
    for word in words:
        kind, chunk = word[0], word[1:]
        if kind == "W":
            waiting = deferred[chunk] if chunk else min(filter(None, deferred.values()), key=itemgetter(0))
            row.append(waiting.popleft()[1])
            continue
        stage, microbatch = stages[int(chunk)], next(numbers[kind == "F", chunk])
        if kind == "I":
            deferred[chunk].append((len(row), ("W", stage, microbatch)))
        row.append((kind, stage, microbatch))
    return row
