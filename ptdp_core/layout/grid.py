"""The grid of p*t*d ranks and its groups (Section 3.1): tensor rank fastest, then data rank, then pipeline rank."""

from dataclasses import dataclass
from typing import NamedTuple

from ptdp_core.config import ParallelConfig


class Coordinates(NamedTuple):
    """The place of a rank on the grid: its pipeline, data and tensor rank."""

    pp: int
    dp: int
    tp: int


@dataclass(frozen=True)
class RankGrid:
    """The n = p*t*d ranks. Rank r = (pp*d + dp)*t + tp, so that a tensor-parallel group is t neighbouring ranks."""

    p: int
    t: int
    d: int

    def __post_init__(self) -> None:
        for name in ("p", "t", "d"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is not positive; needs {name} >= 1; try {name}=1")

    @classmethod
    def of(cls, parallel: ParallelConfig) -> "RankGrid":
        """The grid of a configuration."""
        return cls(parallel.p, parallel.t, parallel.d)

    @property
    def n(self) -> int:
        """The number of ranks."""
        return self.p * self.t * self.d

    def rank(self, pp: int, dp: int, tp: int) -> int:
        """The rank at these coordinates. Raises ValueError outside the grid."""
        for name, value, size in (("pp", pp, self.p), ("dp", dp, self.d), ("tp", tp, self.t)):
            if not 0 <= value < size:
                raise ValueError(f"{name}={value} is outside the grid; needs 0 <= {name} < {size}; try {name}=0")
        return (pp * self.d + dp) * self.t + tp

    def coordinates(self, rank: int) -> Coordinates:
        """The coordinates of a rank, the inverse of `rank`. Raises ValueError outside the grid."""
        if not 0 <= rank < self.n:
            raise ValueError(f"rank={rank} is outside the grid; needs 0 <= rank < p*t*d={self.n}; try rank=0")
        return Coordinates(rank // (self.d * self.t), rank // self.t % self.d, rank % self.t)

    def tensor_group(self, pp: int, dp: int) -> tuple[int, ...]:
        """The t ranks that share the layers of a stage, in the order of their slices."""
        return tuple(self.rank(pp, dp, tp) for tp in range(self.t))

    def data_group(self, pp: int, tp: int) -> tuple[int, ...]:
        """The d ranks that hold the same parameters, in the order of their ring."""
        return tuple(self.rank(pp, dp, tp) for dp in range(self.d))

    def pipeline(self, dp: int, tp: int) -> tuple[int, ...]:
        """The p ranks that a tensor goes through, in the order of their stages."""
        return tuple(self.rank(pp, dp, tp) for pp in range(self.p))

    def expert_group(self, rank: int, e: int, etp: int) -> tuple[int, ...]:
        """The e ranks among which this one's experts' tokens are exchanged, in the order of their experts.

        The d*t ranks of a pipeline rank are regrouped for experts, in Megatron-LM's order: the etp ranks that share an
        expert are neighbours, then come the e ranks of other experts, then the replicas. With etp = t an expert group
        is e consecutive data ranks of one tensor rank.
        """
        first, local = self._of_pipeline_rank(rank)
        replica, tensor = local // (e * etp), local % etp
        return tuple(first + (replica * e + ep) * etp + tensor for ep in range(e))

    def expert_data_group(self, rank: int, e: int, etp: int) -> tuple[int, ...]:
        """The d*t/(e*etp) ranks that hold the same part of the same experts as this one."""
        first, local = self._of_pipeline_rank(rank)
        return tuple(range(first + local % (e * etp), first + self.d * self.t, e * etp))

    def _of_pipeline_rank(self, rank: int) -> tuple[int, int]:
        """The first rank of a rank's pipeline rank, and the rank's number in it."""
        local = rank % (self.d * self.t)
        return rank - local, local

    def tensor_groups(self) -> tuple[tuple[int, ...], ...]:
        """All p*d tensor-parallel groups."""
        return tuple(self.tensor_group(pp, dp) for pp in range(self.p) for dp in range(self.d))

    def data_groups(self) -> tuple[tuple[int, ...], ...]:
        """All p*t data-parallel groups."""
        return tuple(self.data_group(pp, tp) for pp in range(self.p) for tp in range(self.t))

    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        """All d*t pipelines."""
        return tuple(self.pipeline(dp, tp) for dp in range(self.d) for tp in range(self.t))

    def leaves_node(self, pp: int, other: int, gpus_per_node: int) -> bool:
        """Whether any rank of pipeline rank pp has its peer on another pipeline rank on another node."""
        ranks, peers = (range(i * self.d * self.t, (i + 1) * self.d * self.t) for i in (pp, other))
        return any(
            node_of(rank, gpus_per_node) != node_of(peer, gpus_per_node)
            for rank, peer in zip(ranks, peers, strict=True)
        )


def node_of(rank: int, gpus_per_node: int) -> int:
    """The node of a rank: nodes hold consecutive ranks."""
    return rank // gpus_per_node
