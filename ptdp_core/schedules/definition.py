"""The definition of a pipeline schedule for all sizes (p, m, v): everything about it is in one `Definition`.

A new schedule is a module of `ptdp_core/schedules/zoo` that calls its definition `SCHEDULE`; everything else (the
configurations, the simulator, the engine, the command line, the drawings, the tests) finds it through `registry.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import chain, repeat
from typing import Any

from ptdp_core.schedules.actions import Action, Schedule
from ptdp_core.schedules.placement import StagePlacement, looped, wave

Time = int | Fraction
Order = Sequence[Sequence[Action]]
Formula = Callable[[int, int, int, Time, Time, Time], Time | None]  # of p, m, v, t_f, t_b, t_w


@dataclass(frozen=True)
class Definition:
    """A schedule of p pipeline ranks, m microbatches and v model chunks per rank, for every p, m and v it exists for.

    - `name` in configurations and on the command line, `title` in figures; `year` and `reference` of its publication
    - `order(p, m, v)`: the actions of each rank, in their order
    - `placement(p, v)`: which rank holds which stages
    - `chunks`: the least and the most v (None: any more)
    - `problem(p, m, v)`: why it does not exist for these sizes, as the text of an error; empty if it exists
    - `splits`: whether backward passes are split into I and W
    - `exchanges`: how its messages are grouped in a blocking program (`lowering.lower`)
    - `period(p)`: microbatches after which the steady state repeats itself: with so many microbatches more, the order
      has one more repetition, and is otherwise the same. None: no steady state, or none that is known
    - `bubble(p, m, v, t_f, t_b, t_w)`: the formula for each rank's idle time, if a chunk's forward pass takes t_f and
      its backward pass t_b, of which t_w for the weights' gradients; exact while t_w <= t_f and t_w <= t_b - t_w. None
      for what it does not cover
    - `own_bubble(...)`: the same from each rank's first pass to its own last one, of the rank that idles most: what is
      left if optimizer steps need no flush, which is what the zero-bubble papers count. Not given: the same
    - `stash(p, m, v)`: the formula for `checks.peak_stash`; where backward passes are split, a rank may hold less
    - `published`: bubble, activation memory and message volume over 1F1B's at equal times of F, I and W, by its authors
    - `finding`: what its authors' formula says otherwise than its execution, if anything
    - `sizes`: the only p, m and v it exists for, if it is a table
    """

    name: str
    title: str
    year: int
    reference: str
    order: Callable[[int, int, int], Order]
    placement: Callable[[int, int], StagePlacement] = looped
    chunks: tuple[int, int | None] = (1, 1)
    problem: Callable[[int, int, int], str] = lambda p, m, v: ""
    splits: bool = False
    exchanges: str = "derived"
    period: Callable[[int], int] | None = None
    bubble: Formula | None = None
    own_bubble: Formula | None = None
    stash: Callable[[int, int, int], Sequence[int]] | None = None
    published: tuple[str, str, str] | None = None
    finding: str = ""
    sizes: tuple[int, int, int] | None = None

    def has_chunks(self, v: int) -> bool:
        """Whether it exists for v model chunks per rank."""
        least, most = self.chunks
        return v >= least and (most is None or v <= most)

    def passes(self, p: int, m: int, v: int) -> int:
        """The number of actions in its table, on all ranks together."""
        return (3 if self.splits else 2) * p * m * v

    def table(self, p: int, m: int, v: int) -> Schedule:
        """Its table for these sizes, for which it has to exist."""
        ranks = tuple(map(tuple, self.order(p, m, v)))
        return Schedule(self.name, self.placement(p, v), m, ranks, self.exchanges)


def of_table(table: Schedule) -> Definition:
    """A schedule that exists for the p, m and v of one table only."""
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
        order=lambda p, m, v: table.ranks,
        placement=lambda p, v: table.placement,
        chunks=(table.v, table.v),
        problem=problem,
        splits=table.is_split,
        exchanges=table.exchanges,
        sizes=sizes,
    )


# A schedule with split backward passes on a V of stages, each microbatch like the one before it.
split_on_v = partial(Definition, placement=wave, chunks=(2, 2), splits=True, period=lambda p: 1)


# A table may hold 100,000 actions, and a NamedTuple's own constructor costs more than all the rest.
_action: Any = partial(tuple.__new__, Action)


def passes(kind: str, stages: int | Iterable[int], microbatches: Iterable[int]) -> list[Action]:
    """The passes of one kind for these microbatches, by one stage, or by several stages one after the other."""
    if isinstance(stages, int):
        stages = repeat(stages)
    return list(map(_action, zip(repeat(kind), stages, microbatches, strict=False)))


def in_turn(
    p: int, m: int, warmup: Callable[[int], int], v: int = 1, round_size: int | None = None
) -> list[list[Action]]:
    """Per rank `warmup(rank)` forward passes, then forward and backward passes in turn, then the remaining backward.

    A rank takes `round_size` microbatches (default: all m) through chunk 0, the same ones through chunk 1, and so on,
    then the next ones; backward with the chunks reversed. Stages are placed as `looped` does.
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


def split(actions: Iterable[Action], deferred: int) -> list[Action]:
    """Split every backward pass B into an I at its place and a W, which comes `deferred` backward passes later.

    The W of the last `deferred` passes stand at the end."""
    row: list[Action] = []
    weights: list[Action] = []
    for action in actions:
        if action.kind == "F":
            row.append(action)
        else:
            row.append(action._replace(kind="I"))
            weights.append(action._replace(kind="W"))
            if len(weights) > deferred:
                row.append(weights[-1 - deferred])
    return row + weights[max(len(weights) - deferred, 0) :]


def numbered(words: Iterable[str], stages: Sequence[int]) -> list[Action]:
    """Passes from words of kind and chunk, such as 'F0' or 'I1': each of the chunk's next microbatch.

    'W' without a chunk is that of the oldest I whose W is to come.
    """
    done: Counter[tuple[bool, str]] = Counter()  # forward passes, and backward ones, by chunk
    deferred: list[tuple[str, Action]] = []
    row = []
    for kind, chunk in ((word[0], word[1:]) for word in words):
        if kind == "W":
            oldest = next(item for item in deferred if chunk in ("", item[0]))
            deferred.remove(oldest)
            row.append(oldest[1])
            continue
        action = Action(kind, stages[int(chunk)], done[kind == "F", chunk])
        done[kind == "F", chunk] += 1
        row.append(action)
        if kind == "I":
            deferred.append((chunk, action._replace(kind="W")))
    return row
