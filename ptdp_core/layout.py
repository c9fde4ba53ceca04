"""Where everything is: ranks on the grid, layers on stages, slices of parameters on tensor ranks, boundary messages.

    RankGrid           ranks of p*t*d GPUs: tensor rank fastest, then data rank, then pipeline rank (Section 3.1)
    chunk_layers       the layers of each model chunk of a pipeline rank (Section 2.2.2)
    layer_parameters   the parameters of a transformer layer, and which dimension is split (Section 2.3)
    Parameter.shard    which slice of it a tensor rank holds
    all_reduces        how many g and f operators a set of parameters makes (Figure 5)
    boundary_transfers, gather_transfers   which GPU sends which elements of a boundary tensor to which (Section 4.1)

Matrices are [outputs, inputs], as they are stored: column-parallel in the paper's Y = XA is dimension 0 here,
row-parallel is dimension 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, padded_vocab

COLUMN, ROW = 0, 1


class Coordinates(NamedTuple):
    """Where a rank is on the grid: its pipeline, data and tensor rank."""

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
        """How many ranks there are."""
        return self.p * self.t * self.d

    def rank(self, pp: int, dp: int, tp: int) -> int:
        """The rank at these coordinates. Raises ValueError outside the grid."""
        for name, value, size in (("pp", pp, self.p), ("dp", dp, self.d), ("tp", tp, self.t)):
            if not 0 <= value < size:
                raise ValueError(f"{name}={value} is outside the grid; needs 0 <= {name} < {size}; try {name}=0")
        return (pp * self.d + dp) * self.t + tp

    def coordinates(self, rank: int) -> Coordinates:
        """Where a rank is: `rank` backwards. Raises ValueError outside the grid."""
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

    def tensor_groups(self) -> tuple[tuple[int, ...], ...]:
        """All p*d tensor-parallel groups; `data_groups` gives p*t, `pipelines` d*t."""
        return tuple(self.tensor_group(pp, dp) for pp in range(self.p) for dp in range(self.d))

    def data_groups(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.data_group(pp, tp) for pp in range(self.p) for tp in range(self.t))

    def pipelines(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.pipeline(dp, tp) for dp in range(self.d) for tp in range(self.t))


def node_of(rank: int, gpus_per_node: int) -> int:
    """The node of a rank: nodes hold consecutive ranks."""
    return rank // gpus_per_node


def chunk_layers(layers: int, p: int, v: int, pp: int) -> tuple[range, ...]:
    """The layers of the v model chunks of pipeline rank pp; its chunk c is stage c*p + pp of p*v equal ones."""
    if layers % (p * v):
        raise ValueError(
            f"layers={layers} does not split into p*v={p}*{v} equal stages; needs a multiple of {p * v}; "
            f"try layers={-(-layers // (p * v)) * p * v}"
        )
    size = layers // (p * v)
    return tuple(range((c * p + pp) * size, (c * p + pp + 1) * size) for c in range(v))


@dataclass(frozen=True)
class Shard:
    """The slice [start, stop) along `split` of a parameter on one tensor rank, then `padding` more rows of zeros."""

    shape: tuple[int, ...]
    start: int
    stop: int
    padding: int

    @property
    def elements(self) -> int:
        """Elements held, padding included."""
        return prod(self.shape)


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor of the whole model, under the name it has everywhere.

    `split` is the dimension that tensor parallelism divides, None if every tensor rank holds all of it; `padded` is
    the size along it with padding (the vocabulary's). `copy` marks the second copy of the tied embedding, on
    the last pipeline rank.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    padded: int | None = None
    copy: bool = False

    @property
    def elements(self) -> int:
        """Elements of the whole tensor, without padding."""
        return prod(self.shape)

    def shard(self, t: int, tp: int) -> Shard:
        """What tensor rank tp of t holds. Raises ValueError if t does not divide the size along `split`."""
        if self.split is None:
            return Shard(self.shape, 0, self.shape[0], 0)
        whole = self.shape[self.split]
        padded = self.padded or whole
        if padded % t:
            raise ValueError(f"t={t} does not divide {padded} of {self.name}; needs equal slices; try t=1")
        size = padded // t
        start = min(tp * size, whole)
        stop = min(start + size, whole)
        shape = (*self.shape[: self.split], size, *self.shape[self.split + 1 :])
        return Shard(shape, start, stop, size - (stop - start))


def layer_parameters(model: ModelConfig, layer: int) -> tuple[Parameter, ...]:
    """The 12 parameters of a transformer layer, in the order of computation; slices of qkv are whole heads."""
    h, name = model.hidden, f"layers.{layer}"

    def linear(part: str, inputs: int, outputs: int, split: int) -> tuple[Parameter, Parameter]:
        weight = Parameter(f"{name}.{part}.weight", (outputs, inputs), split)
        # The bias of a row-parallel linear is added after the reduction: every rank has all of it.
        return weight, Parameter(f"{name}.{part}.bias", (outputs,), COLUMN if split == COLUMN else None)

    def norm(part: str) -> tuple[Parameter, Parameter]:
        return Parameter(f"{name}.{part}.weight", (h,)), Parameter(f"{name}.{part}.bias", (h,))

    return (
        *norm("attention_norm"),
        *linear("attention.qkv", h, 3 * h, COLUMN),
        *linear("attention.projection", h, h, ROW),
        *norm("mlp_norm"),
        *linear("mlp.up", h, 4 * h, COLUMN),
        *linear("mlp.down", 4 * h, h, ROW),
    )


def chunk_parameters(model: ModelConfig, layers: range, t: int) -> tuple[Parameter, ...]:
    """The parameters of a chunk: the first one embeds too, the last one has a norm and the tied output layer."""
    first, last = layers.start == 0, layers.stop == model.layers
    word = ("embedding.word.weight", (model.vocab, model.hidden), COLUMN, padded_vocab(model.vocab, t))
    found: list[Parameter] = []
    if first:
        found += [Parameter(*word), Parameter("embedding.position.weight", (model.seq, model.hidden))]
    for layer in layers:
        found += layer_parameters(model, layer)
    if last:
        found += [Parameter("norm.weight", (model.hidden,)), Parameter("norm.bias", (model.hidden,))]
        if not first:
            found.append(Parameter(*word, copy=True))
    return tuple(found)


def all_reduces(parameters: Iterable[Parameter]) -> tuple[int, int]:
    """All-reduces of activations that these linears make, forward and backward (Figure 5).

    Partial sums leave a row-parallel matrix through a g, which reduces going forward; a replicated input enters a
    column-parallel one through an f, which reduces its gradient going backward.
    """
    splits = [parameter.split for parameter in parameters if len(parameter.shape) == 2]
    return splits.count(ROW), splits.count(COLUMN)


class Transfer(NamedTuple):
    """Elements [start, stop) of a flattened tensor, from one rank to another."""

    source: int
    destination: int
    start: int
    stop: int

    @property
    def elements(self) -> int:
        """How many elements are sent."""
        return self.stop - self.start


def boundary_transfers(grid: RankGrid, pp: int, dp: int, elements: int, scatter_gather: bool) -> tuple[Transfer, ...]:
    """What stage pp of replica dp sends to the next one for one boundary tensor; its gradient comes back likewise.

    Every tensor rank sends to its peer: the whole tensor, or with scatter/gather 1/t of it (Section 4.1).
    """
    share = _share(elements, grid.t) if scatter_gather else 0
    return tuple(
        Transfer(
            grid.rank(pp, dp, tp),
            grid.rank((pp + 1) % grid.p, dp, tp),
            tp * share,
            (tp + 1) * share if scatter_gather else elements,
        )
        for tp in range(grid.t)
    )


def gather_transfers(grid: RankGrid, pp: int, dp: int, elements: int) -> tuple[Transfer, ...]:
    """What the tensor ranks of receiving stage pp send one another until each has the whole tensor (Section 4.1)."""
    share, group = _share(elements, grid.t), grid.tensor_group(pp, dp)
    return tuple(
        Transfer(source, destination, tp * share, (tp + 1) * share)
        for tp, source in enumerate(group)
        for destination in group
        if destination != source
    )


def _share(elements: int, t: int) -> int:
    if elements % t:
        raise ValueError(f"t={t} does not divide a boundary tensor of {elements} elements; needs equal chunks; try t=1")
    return elements // t
