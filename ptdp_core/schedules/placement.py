"""The placement of the model's stages on pipeline ranks, which decides which boundaries between stages need a message.

A model split into p*v stages runs on p pipeline ranks, each of which holds v of them as its model chunks (Section
2.2.2). Stage g passes its output on to stage g + 1; where both are on one rank, nothing is sent.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate


@dataclass(frozen=True)
class StagePlacement:
    """A placement: `stages[r]` are the stages that pipeline rank r holds, ascending: its model chunks 0, 1, ..., v-1.

    Raises `ValueError` unless every stage is on exactly one rank and all ranks have equally many.
    """

    stages: tuple[tuple[int, ...], ...]

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

    @property
    def p(self) -> int:
        """Pipeline ranks."""
        return len(self.stages)

    @property
    def v(self) -> int:
        """Model chunks of a rank."""
        return len(self.stages[0])

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """The rank of each stage, in the order of the model."""
        ranks = {stage: rank for rank, stages in enumerate(self.stages) for stage in stages}
        return tuple(ranks[stage] for stage in range(self.p * self.v))

    def rank_of(self, stage: int) -> int:
        """The pipeline rank that holds a stage."""
        return self.ranks[stage]

    def chunk_of(self, stage: int) -> int:
        """Which of its rank's v model chunks a stage is."""
        return self.stages[self.ranks[stage]].index(stage)

    @property
    def first(self) -> int:
        """The rank of the first stage, which embeds."""
        return self.ranks[0]

    @property
    def last(self) -> int:
        """The rank of the last stage, which computes the loss."""
        return self.ranks[-1]

    @cached_property
    def boundaries(self) -> tuple[tuple[int, int], ...]:
        """The ranks on both sides of each boundary between stages g and g+1: p*v - 1 pairs."""
        return tuple(zip(self.ranks, self.ranks[1:], strict=False))

    def is_received(self, stage: int) -> bool:
        """Whether a stage's input comes from another rank."""
        return stage > 0 and self.ranks[stage - 1] != self.ranks[stage]

    def is_sent(self, stage: int) -> bool:
        """Whether a stage's output goes to another rank."""
        return stage < len(self.ranks) - 1 and self.ranks[stage + 1] != self.ranks[stage]

    @cached_property
    def crossings(self) -> tuple[int, ...]:
        """For each stage, how many of the boundaries before it are between two ranks."""
        return tuple(accumulate((self.is_received(stage) for stage in range(len(self.ranks))), initial=0))[1:]

    def sends(self, rank: int) -> int:
        """The number of messages that a rank sends for each microbatch: activations and gradients, to other ranks."""
        return sum(
            [self.is_sent(boundary) for stage in self.stages[rank] for boundary in (stage - 1, stage) if boundary >= 0]
        )


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
