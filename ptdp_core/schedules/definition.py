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

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.placement import StagePlacement, looped

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

    def has_chunks(self, v: int) -> bool:
        """Whether it exists for v model chunks per rank."""
        least, most = self.chunks
        return v >= least and (most is None or v <= most)

    def passes(self, p: int, m: int, v: int) -> int:
        """The number of actions in its table, on all ranks together."""
        return (3 if self.splits else 2) * p * m * v


# A table may hold 100,000 actions, and a NamedTuple's own constructor costs more than all the rest.
_action: Any = partial(tuple.__new__, Action)


def passes(kind: str, stages: int | Iterable[int], microbatches: Iterable[int]) -> list[Action]:
    """The passes of one kind for these microbatches, by one stage, or by several stages one after the other."""
    if isinstance(stages, int):
        stages = repeat(stages)
    return list(map(_action, zip(repeat(kind), stages, microbatches, strict=False)))


def with_warmup(forwards: list[Action], backwards: list[Action], warmup: int) -> list[Action]:
    """An order with `warmup` forward passes, then forward and backward passes in turn, then the remaining backward."""
    steady = len(forwards) - warmup
    pairs = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return [*forwards[:warmup], *pairs, *backwards[steady:]]


def split(actions: Iterable[Action], deferred: int) -> list[Action]:
    """The actions with every B as an I, and its W after the I of `deferred` passes later; the last W at the end."""
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
