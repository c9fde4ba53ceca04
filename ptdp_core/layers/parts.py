"""What a layer is made of: a `Part` for each operator, with all that is counted of it on one GPU for one microbatch.

`Work` is what a GPU computes, `Collective` what it exchanges with others, `Parameter` what it holds. Bytes are counted
in 16 bits an element (1 byte for a dropout mask) and scaled to a cluster's precision at the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from operator import add
from typing import NamedTuple

from ptdp_core.errors import ConfigurationError

Gemm = tuple[int, int, int, int]  # M, N, K, batch
COLUMN, ROW = 0, 1
SPLIT = {"outputs": COLUMN, "inputs": ROW, "": None}  # by `Linear.shared`
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all_reduce", "reduce_scatter", "all_gather"
ALL_TO_ALL, RING = "all_to_all", "ring"
BROADCAST, REDUCE = "broadcast", "reduce"
ACTIVATION, WEIGHT, GRADIENT, FP32 = "activation", "weight", "gradient", "fp32"
# Calls of the host for a collective that launch nothing: events recorded and waited for on two streams (4), work
# object, autograd function (f, g).
PER_COLLECTIVE = 6


class Collective(NamedTuple):
    """One collective: its operation, its group, its size.

    The group is 'tp', 'cp', 'dp' (with context parallelism the d*c ranks that hold the same weights), 'pp' (where
    pipeline ranks share the vocabulary), 'ep' (those with different experts), 'edp' (those with the same experts), or
    'embedding' (the pipeline ranks of the two stages that share the embedding). `elements` is the size of the whole
    tensor, of an all-to-all of what a rank holds. A 'ring' passes every rank's part on to all others, one neighbour at
    a time, as an all-gather does, but each part is used and let go. `element` is the kind of its elements: 'activation'
    (or its gradient), 'weight', 'gradient' (of a weight, as it is reduced), or 'fp32', which does not depend on the
    precision.
    """

    operation: str
    group: str
    elements: float
    element: str = ACTIVATION

    def sent(self, ranks: int) -> float:
        """Elements each of `ranks` sends on a ring: (k-1)/k of the tensor, twice for an all-reduce (Section 3.3.1).

        Of what it holds a rank sends as much in an all-to-all: all but its own part.
        """
        return self.elements * self.rounds * (ranks - 1) / ranks

    @property
    def rounds(self) -> int:
        """How often it goes around a ring: an all-reduce twice, as a reduce-scatter and an all-gather do together."""
        return 2 if self.operation == ALL_REDUCE else 1


def over_tensor_ranks(elements: int) -> tuple[Collective, Collective, Collective]:
    """An all-reduce, an all-gather and a reduce-scatter of activations, or of their gradients, over tensor ranks."""
    reduce, gather, scatter = (Collective(name, "tp", elements) for name in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER))
    return reduce, gather, scatter


class PassCollectives(NamedTuple):
    """The collectives of one microbatch's forward and backward pass, in their order."""

    forward: tuple[Collective, ...] = ()
    backward: tuple[Collective, ...] = ()


NO_COLLECTIVES = PassCollectives()


class FusedAttention(NamedTuple):
    """A pass of fused attention: FLOPs of its products, what the mask hides included, sequence and head size.

    `rows` are the queries of all heads that one kernel has, which it shares out among the multiprocessors; `kernel` is
    its generation (`config.ATTENTION_KERNELS`), if not the program's usual one.
    """

    flops: float
    seq: int
    head: int
    backward: bool
    rows: int
    kernel: str = ""


class Work(NamedTuple):
    """The work of a GPU: GEMMs, bytes read and written by `kernels` memory-bound kernels, bytes of each collective.

    These are all-reduces, and one-way collectives (all-gathers and reduce-scatters), which go around a ring once.
    `wide_bytes` of the traffic are of elements that are fp32 in any precision; the rest counts 2 bytes an element.
    `host_calls` is the number of calls from Python or the autograd engine that launch no kernel. The products of fused
    `attention` are no GEMMs. `narrow_gemms` are GEMMs of narrower elements, with the name of these.
    """

    gemms: tuple[Gemm, ...] = ()
    traffic_bytes: float = 0.0
    kernels: int = 0
    all_reduce_bytes: tuple[float, ...] = ()
    one_way_bytes: tuple[float, ...] = ()
    wide_bytes: float = 0.0
    host_calls: int = 0
    attention: tuple[FusedAttention, ...] = ()
    narrow_gemms: tuple[tuple[str, Gemm], ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls of the host: a launch for each kernel and collective, and those that launch nothing."""
        collectives = len(self.all_reduce_bytes) + len(self.one_way_bytes)
        return len(self.gemms) + len(self.narrow_gemms) + self.kernels + collectives + self.host_calls

    def __add__(self, other: "Work") -> "Work":  # type: ignore[override]
        return Work(*map(add, self, other))


NOTHING = Work()


def total(works: Iterable[Work]) -> Work:
    """All of these works together."""
    return Work(*[reduce(add, column) for column in zip(NOTHING, *works, strict=True)])


class Parameter(NamedTuple):
    """A parameter tensor of the whole model, or of a layer. Matrices are [outputs, inputs], as they are stored.

    To split the columns of A in the paper's Y = XA is to split dimension 0 here, to split its rows is to split
    dimension 1. `split` is the dimension that tensor parallelism divides, None if every tensor rank holds all of it;
    `padded` is the size along it with padding (the vocabulary's). `tied` marks a word embedding that is also the output
    layer, and `copy` the second copy of it that the last stage holds where the first stage is on another rank.
    `stacked` marks the matrices of all experts [E, outputs, inputs], which expert parallelism divides; `split` is then
    of each matrix. `partial` marks what every tensor rank holds whole, though each computes a part of the gradient.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    padded: int | None = None
    tied: bool = False
    copy: bool = False
    stacked: bool = False
    partial: bool = False

    @property
    def dimension(self) -> int:
        """The dimension of the tensor that `split` is, 0 for a tensor that is not split."""
        return (self.split or 0) + self.stacked

    @property
    def elements(self) -> int:
        """Elements of the whole tensor, without padding."""
        return prod(self.shape)

    @property
    def is_matrix(self) -> bool:
        """Whether it is a weight matrix or a table, to which weight decay applies, and not a bias or a layer norm's."""
        return len(self.shape) > 1

    def held(self, t: int, expert_parts: int = 1) -> int:
        """Elements on each of t tensor ranks, padding included; of experts one of so many parts."""
        if self.stacked:
            return prod(self.shape) // expert_parts
        if self.split is None:
            return prod(self.shape)
        whole = self.shape[self.split]
        return prod(self.shape) // whole * (self.padded or whole) // t

    def shard(self, t: int, tp: int, e: int = 1, ep: int = 0) -> "ShardSpec":
        """The part that tensor rank tp of t holds, of experts also expert rank ep of e.

        Raises ConfigurationError if t or e does not divide it.
        """
        if self.split is None:
            return ShardSpec(self, self.shape, 0, self.shape[0])
        whole = self.shape[self.dimension]
        padded = self.padded or whole
        if padded % t:
            raise ConfigurationError(f"t={t} does not divide {padded} of {self.name}; needs equal slices; try t=1")
        size = padded // t
        start = min(tp * size, whole)
        shape = (*self.shape[: self.dimension], size, *self.shape[self.dimension + 1 :])
        if not self.stacked:
            return ShardSpec(self, shape, start, min(start + size, whole))
        if self.shape[0] % e:
            raise ConfigurationError(f"e={e} does not divide experts={self.shape[0]}; needs equal parts; try e=1")
        experts = self.shape[0] // e
        return ShardSpec(self, (experts, *shape[1:]), start, start + size, ep * experts)


@dataclass(frozen=True)
class ShardSpec:
    """The part of a parameter that one tensor rank holds, a tensor of `shape`.

    Along `parameter.split` it is the slice [start, stop) of the whole, followed by `padding` rows of zeros. A parameter
    that is not split is held whole; [start, stop) is then its first dimension. Of stacked matrices it is this slice of
    those from number `first_expert` on.
    """

    parameter: Parameter
    shape: tuple[int, ...]
    start: int
    stop: int
    first_expert: int = 0

    @property
    def elements(self) -> int:
        """The number of elements held, padding included."""
        return prod(self.shape)

    @property
    def padding(self) -> int:
        """The number of rows along the split dimension beyond the end of the whole tensor."""
        return self.shape[self.parameter.dimension] - (self.stop - self.start)

    def counts(self, tp: int) -> bool:
        """Whether sums over all ranks, such as the gradient norm, count this part on tensor rank tp.

        A parameter that all tensor ranks hold is counted on the first of them only, and a tied copy on none.
        """
        return not self.parameter.copy and (self.parameter.split is not None or tp == 0)


class Part(NamedTuple):
    """One operator of a layer on a GPU, and all that is counted of it for one microbatch.

    - `forward`, `backward`: its work without collectives; `weights` are those products of the backward pass that only
      the optimizer waits for; `unfused` is what both passes have more where each operator runs by itself
    - `f`, `g`: whether it begins with f, ends with g of Figure 5; `again`: whether, with sequence parallelism, its
      gathered input is gathered once more for the weights' gradients
    - `collectives`: what it exchanges; those of f and g come with `techniques.tensor_parallel`
    - `holds`, `inside`, `output`: bytes that are there until its backward pass: its input, what only it needs, and its
      output where later backward passes need it. With FP8 each of the `casts` linears that read the output keeps a
      cast of its own; beside these it stays in 16 bits, if something else reads it (`stays`)
    - `cast`: elements of its input and of its output's gradient, which FP8 casts; none if its products stay in 16 bits
    - `deferred`: bytes that a deferred weight gradient needs; `gradients`: bytes of its output's gradient, where that
      counts in the memory's peak
    - `parameters`: their names are those in the layer
    """

    name: str
    forward: Work = NOTHING
    backward: Work = NOTHING
    weights: Work = NOTHING
    unfused: tuple[Work, Work] = (NOTHING, NOTHING)
    f: bool = False
    g: bool = False
    again: bool = True
    collectives: PassCollectives = NO_COLLECTIVES
    holds: float = 0
    inside: float = 0
    output: float = 0
    casts: int = 0
    stays: bool = True
    cast: tuple[float, float] | None = None
    deferred: float = 0
    gradients: float = 0
    parameters: tuple[Parameter, ...] = ()

    @property
    def kept_bytes(self) -> float:
        """Bytes that it keeps from the forward to the backward pass."""
        return self.holds + self.inside + self.output

    @property
    def is_column_parallel(self) -> bool:
        """Whether it is a linear that all tokens go through and whose outputs tensor ranks share out."""
        return any(item.split == COLUMN and item.is_matrix and not item.stacked for item in self.parameters)


def communicated(calls: Iterable[Collective], host_calls: int = 0) -> Work:
    """The bytes of these collectives, counted in 16 bits, except those that are fp32 in every precision."""
    sizes = [((4.0 if call.element == FP32 else 2.0) * call.elements, call.operation) for call in calls]
    return Work(
        all_reduce_bytes=tuple([size for size, operation in sizes if operation == ALL_REDUCE]),
        one_way_bytes=tuple([size for size, operation in sizes if operation != ALL_REDUCE]),
        host_calls=host_calls,
    )


@dataclass(frozen=True)
class Block:
    """A layer, or an end of the model, as the tuple of its parts, and what these add up to.

    `modules` is the number of calls of modules that are made of several parts; 0 at an end of the model, whose calls
    that launch nothing are not counted.
    """

    parts: tuple[Part, ...]
    modules: int = 0

    @cached_property
    def collectives(self) -> PassCollectives:
        """The collectives of both passes in their order."""
        return PassCollectives(
            tuple([call for part in self.parts for call in part.collectives.forward]),
            tuple([call for part in reversed(self.parts) for call in part.collectives.backward]),
        )

    @cached_property
    def forward(self) -> Work:
        """The work of the forward pass, with the collectives of its tensor-parallel group."""
        calls = [call for call in self.collectives.forward if call.group == "tp"]
        host = self.modules + PER_COLLECTIVE * len(calls) if self.modules else 0
        return total((*[part.forward for part in self.parts], communicated(calls, host)))

    @cached_property
    def backward(self) -> Work:
        """The work of the backward pass, likewise. Autograd accumulates each parameter's gradient with a call."""
        calls = [call for call in self.collectives.backward if call.group == "tp"]
        host = len(self.parameters) + PER_COLLECTIVE * len(calls) if self.modules else 0
        return total((*[part.backward for part in self.parts], communicated(calls, host)))

    @cached_property
    def weights(self) -> Work:
        """The part of `backward` that only the optimizer waits for: the GEMMs for the weights' gradients.

        Gradients of biases and layer norms come with those of the inputs, from the same reads.
        """
        return total([part.weights for part in self.parts])

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters in the order of computation."""
        return tuple([parameter for part in self.parts for parameter in part.parameters])

    @cached_property
    def kept_bytes(self) -> int:
        """Bytes that are kept from the forward to the backward pass."""
        return round(sum([part.kept_bytes for part in self.parts]))
