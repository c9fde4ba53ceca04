"""The placement of the model's stages on pipeline ranks, which decides which boundaries between stages need a message.

A model split into p*v stages runs on p pipeline ranks, each of which holds v of them as its model chunks (Section
2.2.2). Stage g passes its output on to stage g + 1; where both are on one rank, nothing is sent.
"""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any

settled: Any = partial(field, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class StagePlacement:
    """A placement: `stages[r]` are the stages that pipeline rank r holds, ascending: its model chunks 0, 1, ..., v-1.

    What follows from it is computed once:

    - `p`, `v`: pipeline ranks, and model chunks of each
    - `ranks`: the rank of each stage, in the order of the model; `first` embeds, `last` computes the loss
    - `boundaries`: the ranks on both sides of each boundary between stages g and g+1, p*v - 1 pairs
    - `received`, `sent`: of each stage, whether its input comes from another rank, and whether its output goes to one
    - `sends`: for each rank, the messages that it sends for a microbatch: activations and gradients, to other ranks

    Raises `ValueError` unless every stage is on exactly one rank and all ranks have equally many.
    """

    stages: tuple[tuple[int, ...], ...]
    p: int = settled()
    v: int = settled()
    ranks: tuple[int, ...] = settled()
    first: int = settled()
    last: int = settled()
    boundaries: tuple[tuple[int, int], ...] = settled()
    received: tuple[bool, ...] = settled()
    sent: tuple[bool, ...] = settled()
    sends: tuple[int, ...] = settled()
    number: int = settled()

    def __post_init__(self) -> None:
        chunks = sorted({len(stages) for stages in self.stages})
        if len(chunks) != 1 or chunks == [0]:
            raise ValueError(
                f"stages={list(map(len, self.stages))} by rank; needs as many on every rank; try v=1 stage on each"
            )
        for rank, stages in enumerate(self.stages):
            if list(stages) != sorted(stages):
                raise ValueError(
                    f"stages={stages} of rank {rank} are not ascending; needs chunks in the order of the model; "
                    f"try {tuple(sorted(stages))}"
                )
        placed = sorted(stage for stages in self.stages for stage in stages)
        wrong = next((stage for stage, other in enumerate(placed) if stage != other), None)
        if wrong is not None:
            raise ValueError(
                f"stage={wrong} is on no rank, or one before it on two; needs stages 0 to {len(placed) - 1}, each on "
                "one rank; try looped(p, v)"
            )
        rank_of = {stage: rank for rank, stages in enumerate(self.stages) for stage in stages}
        ranks = tuple([rank_of[stage] for stage in range(len(placed))])
        boundaries = tuple(pairwise(ranks))
        crossed = [before != after for before, after in boundaries]
        received, sent = (False, *crossed), (*crossed, False)
        sends = tuple([sum([received[stage] + sent[stage] for stage in stages]) for stages in self.stages])
        vars(self).update(p=len(self.stages), v=chunks[0], ranks=ranks, first=ranks[0], last=ranks[-1])
        vars(self).update(boundaries=boundaries, received=received, sent=sent, sends=sends)
        vars(self).update(number=hash(self.stages))

    def __hash__(self) -> int:
        return self.number  # what is kept of placements is asked for with hundreds of stages

    def chunk_of(self, stage: int) -> int:
        """Which of its rank's v model chunks a stage is."""
        return self.stages[self.ranks[stage]].index(stage)

    @cached_property
    def crossings(self) -> tuple[int, ...]:
        """For each stage, how many of the boundaries before it are between two ranks."""
        return tuple(accumulate(self.received))


@lru_cache(maxsize=256)
def looped(p: int, v: int) -> StagePlacement:
    """The paper's placement, stage g on rank g mod p: chunk c of rank r is stage c*p + r (Section 2.2.2)."""
    return StagePlacement(tuple(tuple(range(r, p * v, p)) for r in range(p)))


@lru_cache(maxsize=256)
def wave(p: int, v: int) -> StagePlacement:
    """A placement that goes through the ranks down and up in turn, v times in all: with v = 2 it is a V.

    Odd chunks have the ranks reversed, so that the last stage of a chunk and the first of the next are on one rank.
    """
    return StagePlacement(tuple(tuple(c * p + (r if c % 2 == 0 else p - 1 - r) for c in range(v)) for r in range(p)))
