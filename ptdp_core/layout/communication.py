"""The communication between ranks: collectives of a layer and of a step, and messages between pipeline stages.

Sizes are in elements. `Collective.element` is their kind, from which the precision of a run gives the bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NamedTuple

from ptdp_core.config import ModelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layout.grid import RankGrid
from ptdp_core.layout.parameters import (
    COLUMN,
    ROW,
    Parameter,
    expert_elements,
    partial_elements,
    rank_elements,
    table_elements,
    usual_layer,
)
from ptdp_core.layout.stages import rank_kinds, stage_layers

ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER = "all_reduce", "reduce_scatter", "all_gather"
ALL_TO_ALL, RING = "all_to_all", "ring"
ACTIVATION, WEIGHT, GRADIENT, FP32 = "activation", "weight", "gradient", "fp32"


class Collective(NamedTuple):
    """One collective: its operation, its group, its size.

    The group is 'tp', 'cp', 'dp' (with context parallelism the d*c ranks that hold the same weights), 'ep' (those with
    different experts), 'edp' (those with the same experts), or 'embedding' (the pipeline ranks of the two stages that
    share the embedding). `elements` is the size of the whole tensor, of an
    all-to-all of what a rank holds. A 'ring' passes every rank's part on to all others, one neighbour at a time, as an
    all-gather does, but each part is used and let go. `element` is the kind of its elements: 'activation' (or its
    gradient), 'weight', 'gradient' (of a weight, as it is reduced), or 'fp32', which does not depend on the precision.
    """

    operation: str
    group: str
    elements: int
    element: str

    @property
    def rounds(self) -> int:
        """How often it goes around a ring: an all-reduce twice, as a reduce-scatter and an all-gather do together."""
        return 2 if self.operation == ALL_REDUCE else 1

    def sent(self, ranks: int) -> float:
        """Elements each of `ranks` sends on a ring: (k-1)/k of the tensor, twice for an all-reduce (Section 3.3.1).

        Of what it holds a rank sends as much in an all-to-all: all but its own part.
        """
        return self.elements * self.rounds * (ranks - 1) / ranks


class PassCollectives(NamedTuple):
    """The collectives of one microbatch's forward and backward pass, in their order."""

    forward: tuple[Collective, ...]
    backward: tuple[Collective, ...]


def all_reduces(parameters: Iterable[Parameter]) -> tuple[int, int]:
    """The number of all-reduces of activations in these linears, forward and backward (Figure 5).

    The partial sums of a row-parallel matrix are reduced by a g in the forward pass. The gradient of the replicated
    input of a column-parallel matrix is reduced by an f in the backward pass.
    """
    splits = [parameter.split for parameter in parameters if parameter.is_matrix]
    return splits.count(ROW), splits.count(COLUMN)


class _OfActivations(NamedTuple):
    """The collectives of activations [s, b, h], or of their gradients, in a tensor-parallel group."""

    reduced: Collective
    gathered: Collective
    scattered: Collective

    @classmethod
    def of(cls, model: ModelConfig, b: int) -> "_OfActivations":
        elements = model.seq * b * model.hidden
        operations = ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER
        return cls(*(Collective(operation, "tp", elements, ACTIVATION) for operation in operations))


@lru_cache(maxsize=256)
def layer_passes(
    model: ModelConfig, b: int, t: int, sequence_parallel: bool = False, whole_experts: bool = False
) -> PassCollectives:
    """The tensor-parallel collectives of a transformer layer (Section 2.3); none if t = 1.

    With sequence parallelism (Korthikanti et al. 2022) the input of a column-parallel matrix is gathered
    before it, and the partial sums of a row-parallel one are reduce-scattered; their gradients go the other way. Only
    1/t of a gathered input is kept, so that the backward pass gathers it again for the weight's gradient. Experts and
    the one that all tokens share are one such pair; of `whole_experts` (etp = 1) tensor ranks send their own tokens.
    """
    if t == 1:
        return PassCollectives((), ())
    call = _OfActivations.of(model, b)
    routed = not whole_experts and not model.shared_expert_ffn_hidden
    forward, backward = all_reduces(item for item in usual_layer(model) if routed or not item.stacked)
    backward -= model.kv_latent > 0  # the gradients of both latents together are less than those of one input
    if not sequence_parallel:
        return PassCollectives((call.reduced,) * forward, (call.reduced,) * backward)
    again = backward - (model.experts > 0 and not whole_experts)  # what goes to experts is kept
    return PassCollectives(
        (call.gathered, call.scattered) * forward,
        (call.gathered, call.gathered, call.scattered) * again + (call.gathered, call.scattered) * (backward - again),
    )


def expert_passes(model: ModelConfig, b: int, e: int, shards: int = 1) -> PassCollectives:
    """The all-to-alls of a layer of experts: tokens go to the ranks of their k experts and back, and so do gradients.

    Every rank of an expert-parallel group sends k rows of h for each of its s*b tokens, or 1/`shards` of them, its own
    experts' among them, if none is dropped; those that it receives depend on the routing, but for the sum over the
    group. The exchange of the E numbers of tokens before each dispatch is left out.
    """
    if e == 1:
        return PassCollectives((), ())
    rows = model.seq * b * model.experts_per_token // shards
    sent = Collective(ALL_TO_ALL, "ep", rows * model.hidden, ACTIVATION)
    return PassCollectives((sent, sent), (sent, sent))


def recomputation_gathers(config: TrainingConfig, layers: int) -> tuple[Collective, ...]:
    """The all-gathers that restore the inputs of recomputed blocks of which each tensor rank keeps 1/t.

    A chunk of `layers` layers needs one per block and microbatch, in the backward pass."""
    model, parallel = config.local_model, config.parallel
    if not parallel.distribute_checkpointed_activations:
        return ()
    return (_OfActivations.of(model, parallel.b).gathered,) * -(-layers // parallel.checkpoint_layers)


def embedding_passes(model: ModelConfig, b: int, t: int, sequence_parallel: bool = False) -> PassCollectives:
    """The collectives of the embedding: each rank looks up its part of the vocabulary, and the rows are summed.

    With sequence parallelism each rank gets the sums of its part of the sequence only.
    """
    if t == 1:
        return PassCollectives((), ())
    call = _OfActivations.of(model, b)
    if sequence_parallel:
        return PassCollectives((call.scattered,), (call.gathered,))
    return PassCollectives((call.reduced,), ())


def logits_passes(model: ModelConfig, b: int, t: int, sequence_parallel: bool = False) -> PassCollectives:
    """The collectives of the output layer and the loss, which are split by vocabulary.

    In the forward pass the cross-entropy reduces the largest logit, the label's logit and the sum of exponentials of
    every token; in the backward pass the gradient of the output layer's replicated input is summed. With sequence
    parallelism that input is gathered, as that of any column-parallel matrix (`layer_passes`).
    """
    if t == 1:
        return PassCollectives((), ())
    call, per_token = _OfActivations.of(model, b), Collective(ALL_REDUCE, "tp", model.seq * b, FP32)
    if sequence_parallel:
        return PassCollectives((call.gathered, *(per_token,) * 3), (call.gathered, call.scattered))
    return PassCollectives((per_token,) * 3, (call.reduced,))


def context_passes(config: TrainingConfig) -> PassCollectives:
    """The collectives of a layer's attention over the context-parallel group; none if c = 1.

    Of the whole sequence's keys and values a rank keeps its own part. 'all_gather' gathers them before attention, and
    again in the backward pass, whose gradients of them are reduce-scattered. A 'ring' passes them around in both
    passes, in the backward pass with their gradients. An 'all_to_all' before attention cuts queries, keys and values by
    heads in place of the sequence, one after it cuts its result back, and their gradients go the other way.
    """
    model, parallel = config.local_model, config.parallel
    if parallel.c == 1:
        return PassCollectives((), ())
    tokens = model.seq * parallel.b
    keys_and_values = parallel.c * tokens * model.keys_and_values_width // parallel.t

    def call(operation: str, elements: int = keys_and_values) -> Collective:
        return Collective(operation, "cp", elements, ACTIVATION)

    if parallel.context_exchange == "all_gather":
        return PassCollectives((call(ALL_GATHER),), (call(ALL_GATHER), call(REDUCE_SCATTER)))
    if parallel.context_exchange == "ring":
        return PassCollectives((call(RING),), (call(RING), call(RING)))
    widths = model.qkv_width, model.attention_width
    into, out_of = (call(ALL_TO_ALL, tokens * width // parallel.t) for width in widths)
    return PassCollectives((into, out_of), (out_of, into))


def recomputed_context_passes(config: TrainingConfig) -> tuple[Collective, ...]:
    """The collectives of `context_passes` that a layer's recomputation repeats in the backward pass.

    What a recomputed layer gathers is what its backward pass needs, so that 'all_gather' repeats none. The attention
    core, which selective recomputation repeats, is between those of 'all_to_all'.
    """
    parallel = config.parallel
    repeats = parallel.recompute == "full" and parallel.context_exchange != "all_gather"
    return context_passes(config).forward if repeats else ()


def stage_passes(config: TrainingConfig, stage: int) -> PassCollectives:
    """The collectives of activations in a stage's forward and backward pass of a microbatch, over tp and over cp.

    The backward pass includes the recomputed forward pass. Stage 0 also embeds; the last stage also computes logits
    and loss, whose reductions of single numbers per token are left out.
    """
    model, parallel = config.local_model, config.parallel
    stages = stage_layers(model.all_layers, parallel.p * parallel.v, parallel.pipeline_layout)
    sizes = model, parallel.b, parallel.t, parallel.sequence_parallel
    layer, layers = layer_passes(*sizes, parallel.whole_experts), len(stages[stage])
    forward, backward = layer.forward * layers, layer.backward * layers
    if parallel.recompute == "full":
        backward += forward
    context = context_passes(config)
    forward += context.forward * layers
    backward += (*recomputed_context_passes(config), *context.backward) * layers
    for end, passes in ((0, embedding_passes), (len(stages) - 1, logits_passes)):
        if stage == end:
            into, out_of = passes(*sizes)
            forward += tuple(call for call in into if call.element == ACTIVATION)
            backward += out_of
    return PassCollectives(forward, backward)


def boundary_shape(model: ModelConfig, b: int, shards: int = 1) -> tuple[int, int, int]:
    """Shape of the activation between two layers, [s, b, h], or of one of its parts along the sequence."""
    return model.seq // shards, b, model.hidden


@dataclass(frozen=True)
class Boundary:
    """The tensor of one microbatch that one pipeline stage sends to the next, and its gradient, which is sent back.

    `shape` is the tensor as a rank holds it: [s, b, h], with sequence parallelism [s/t, b, h]; with context parallelism
    of s/c tokens in place of s. `shards` is the number of parts that it is cut into to be sent: 1, or t where
    scatter/gather is in effect (Section 4.1).
    """

    shape: tuple[int, ...]
    shards: int

    @classmethod
    def of(cls, config: TrainingConfig) -> "Boundary":
        """The boundary of a configuration. Scatter/gather needs p > 1 and t > 1, and to be asked for.

        With sequence parallelism it is void: tensor ranks hold different parts, which are sent and used as they are.
        """
        parallel = config.parallel
        scattered = parallel.scatter_gather and parallel.p > 1 and not parallel.sequence_parallel
        shape = boundary_shape(config.local_model, parallel.b, parallel.sequence_shards)
        return cls(shape, parallel.t if scattered else 1)

    @property
    def is_scattered(self) -> bool:
        """Whether scatter/gather is in effect: each tensor rank sends its part, and the receivers gather them."""
        return self.shards > 1

    @property
    def elements(self) -> int:
        """Elements of the tensor that a rank holds: bsh/c, with sequence parallelism bsh/(ct)."""
        return prod(self.shape)

    @property
    def message_shape(self) -> tuple[int, ...]:
        """The shape of what one GPU sends: the whole tensor, or a flat part of it."""
        return (self.elements // self.shards,) if self.is_scattered else self.shape

    @property
    def message_elements(self) -> int:
        """The number of elements that one GPU sends."""
        return prod(self.message_shape)

    @property
    def gather(self) -> Collective | None:
        """The all-gather that puts a received tensor together; None if it arrives whole."""
        return Collective(ALL_GATHER, "tp", self.elements, ACTIVATION) if self.is_scattered else None


def step_collectives(config: TrainingConfig) -> tuple[tuple[Collective, ...], ...]:
    """The collectives that each pipeline rank's GPUs run once an iteration, for gradients and the tied embedding.

    Gradients are reduced over d replicas, with context parallelism over d*c ranks, each of which has them from its part
    of the sequences. With a sharded optimizer each gets a part of the reduced gradients, and gathers the updated
    weights; with ZeRO-2 it keeps that part only, and reduces the gradients of every microbatch. Experts' gradients are
    reduced over the ranks that hold the same ones. With sequence
    parallelism a tensor rank has the gradients of whole parameters (of layer norms, biases, positions) from its part of
    the sequence only, and the tensor-parallel group sums them; also otherwise those of what only parts of its work
    use (`partial_elements`).
    """
    parallel, tied = config.parallel, set(config.tied_ranks or ())
    reductions = parallel.m if parallel.data_parallel == "zero2" else 1
    reducing = tied if len(tied) > 1 else set()
    embedding = Collective(ALL_REDUCE, "embedding", table_elements(config), GRADIENT)

    def data_parallel(elements: int, group: str, replicas: int) -> tuple[Collective, ...]:
        if replicas == 1 or not elements:
            return ()
        if parallel.sharded_optimizer:
            return (
                *(Collective(REDUCE_SCATTER, group, elements, GRADIENT),) * reductions,
                Collective(ALL_GATHER, group, elements, WEIGHT),
            )
        return (Collective(ALL_REDUCE, group, elements, GRADIENT),)

    kinds = rank_kinds(config)
    elements, experts, partial = rank_elements(config), expert_elements(config), partial_elements(config)
    by_kind = [
        (
            *data_parallel(elements[pp] - experts[pp], "dp", parallel.weight_replicas),
            *data_parallel(experts[pp], "edp", parallel.expert_replicas),
            *((Collective(ALL_REDUCE, "tp", partial[pp], GRADIENT),) if partial[pp] else ()),
            *((embedding,) if pp in reducing else ()),
        )
        for pp in kinds.ranks
    ]
    return tuple(by_kind[kind] for kind in kinds.of)


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


def boundary_transfers(
    grid: RankGrid, pp: int, following: int, dp: int, elements: int, scatter_gather: bool
) -> tuple[Transfer, ...]:
    """What pipeline rank pp of replica dp sends, for one boundary tensor, to the rank of the following stage.

    The tensor's gradient comes back likewise.

    Every tensor rank sends to its peer: the whole tensor, or with scatter/gather 1/t of it (Section 4.1).
    """
    t = grid.size("tp")
    share = _share(elements, t) if scatter_gather else 0
    return tuple(
        Transfer(
            grid.rank(pp=pp, dp=dp, tp=tp),
            grid.rank(pp=following, dp=dp, tp=tp),
            tp * share,
            (tp + 1) * share if scatter_gather else elements,
        )
        for tp in range(t)
    )


def gather_transfers(grid: RankGrid, pp: int, dp: int, elements: int) -> tuple[Transfer, ...]:
    """What the tensor ranks of receiving stage pp send one another until each has the whole tensor (Section 4.1)."""
    share, group = _share(elements, grid.size("tp")), grid.group("tp", pp=pp, dp=dp)
    return tuple(
        Transfer(source, destination, tp * share, (tp + 1) * share)
        for tp, source in enumerate(group)
        for destination in group
        if destination != source
    )


def _share(elements: int, t: int) -> int:
    if elements % t:
        raise ConfigurationError(
            f"t={t} does not divide a boundary tensor of {elements} elements; needs equal chunks; try t=1"
        )
    return elements // t
