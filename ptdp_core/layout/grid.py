"""Grids of ranks: a list of axes, along which ranks are counted, and the groups of ranks along some of them.

That of a training run is p*c*t*d ranks: tensor rank fastest, then context rank, data rank and pipeline rank (Section
3.1; context parallelism came after the paper, and c = 1 there).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from ptdp_core.config import ParallelConfig


@dataclass(frozen=True)
class RankGrid:
    """Ranks counted along `axes`, (name, size) each, from the slowest to the fastest.

    Rank r = ((pp*d + dp)*c + cp)*t + tp in the grid of a run: a tensor-parallel group is t neighbouring ranks.
    """

    axes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        for name, size in self.axes:
            if size < 1:
                raise ValueError(f"{size} ranks along {name} are not positive; needs at least 1; try 1")

    @classmethod
    def sized(cls, p: int = 1, t: int = 1, d: int = 1, c: int = 1) -> "RankGrid":
        """The grid of a run with these sizes."""
        return cls((("pp", p), ("dp", d), ("cp", c), ("tp", t)))

    @classmethod
    def of(cls, parallel: ParallelConfig) -> "RankGrid":
        """The grid of a configuration."""
        return cls.sized(parallel.p, parallel.t, parallel.d, parallel.c)

    @cached_property
    def n(self) -> int:
        """The number of ranks."""
        return prod(size for _, size in self.axes)

    def size(self, *axes: str) -> int:
        """The number of ranks of a group along these axes."""
        return prod(size for name, size in self.axes if name in axes)

    def rank(self, **place: int) -> int:
        """The rank at this place, 0 along axes that are not named. Raises ValueError outside the grid."""
        rank = 0
        for name, size in self.axes:
            at = place.get(name, 0)
            if not 0 <= at < size:
                raise ValueError(f"{name}={at} is outside the grid; needs 0 <= {name} < {size}; try {name}=0")
            rank = rank * size + at
        return rank

    def coordinates(self, rank: int) -> dict[str, int]:
        """The place of a rank along each axis, the inverse of `rank`. Raises ValueError outside the grid."""
        if not 0 <= rank < self.n:
            raise ValueError(f"rank={rank} is outside the grid; needs 0 <= rank < {self.n}; try rank=0")
        at = []
        for _, size in reversed(self.axes):
            rank, along = divmod(rank, size)
            at.append(along)
        return self._named(reversed(at))

    def group(self, *axes: str, **place: int) -> tuple[int, ...]:
        """The ranks along these axes at this place of the others, in the order of ranks.

        `group("tp")` are the ranks that share the layers of a stage, in the order of their slices, `group("pp")` those
        that a tensor goes through, `group("dp", "cp")` those that hold the same parameters.
        """
        along = [range(size) if name in axes else (place.get(name, 0),) for name, size in self.axes]
        return tuple(self.rank(**self._named(at)) for at in product(*along))

    def groups(self, *axes: str) -> tuple[tuple[int, ...], ...]:
        """All groups along these axes: every rank is in one of them."""
        others = [range(1 if name in axes else size) for name, size in self.axes]
        return tuple(self.group(*axes, **self._named(at)) for at in product(*others))

    def _named(self, at: Iterable[int]) -> dict[str, int]:
        return {name: value for (name, _), value in zip(self.axes, at, strict=True)}

    def expert_group(self, rank: int, e: int, etp: int) -> tuple[int, ...]:
        """The e ranks among which this one's experts' tokens are exchanged, in the order of their experts.

        The d*c*t ranks of a pipeline rank are regrouped for experts, in Megatron-LM's order: the etp ranks that share
        an expert are neighbours, then come the e ranks of other experts, then the replicas. With etp = t an expert
        group is e consecutive data (or context) ranks of one tensor rank.
        """
        first, local = self._of_pipeline_rank(rank)
        replica, tensor = local // (e * etp), local % etp
        return tuple(first + (replica * e + ep) * etp + tensor for ep in range(e))

    def expert_data_group(self, rank: int, e: int, etp: int) -> tuple[int, ...]:
        """The d*c*t/(e*etp) ranks that hold the same part of the same experts as this one."""
        first, local = self._of_pipeline_rank(rank)
        return tuple(range(first + local % (e * etp), first + self.size("dp", "cp", "tp"), e * etp))

    def _of_pipeline_rank(self, rank: int) -> tuple[int, int]:
        """The first rank of a rank's pipeline rank, and the rank's number in it."""
        local = rank % self.size("dp", "cp", "tp")
        return rank - local, local


def node_of(rank: int, gpus_per_node: int) -> int:
    """The node of a rank: nodes hold consecutive ranks."""
    return rank // gpus_per_node
