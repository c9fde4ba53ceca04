"""The communication between ranks: collectives of a stage and of a step, and messages between pipeline stages.

Sizes are in elements. `Collective.element` is their kind, from which the precision of a run gives the bytes. Those of a
layer are its block's (`layers.blocks.layer_of`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from ptdp_core.config import LayerKind, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import LayerRun, ends, layer_of
from ptdp_core.layers.parts import (
    ACTIVATION,
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    COLUMN,
    FP32,
    GRADIENT,
    REDUCE,
    REDUCE_SCATTER,
    ROW,
    WEIGHT,
    Collective,
    Parameter,
    PassCollectives,
)
from ptdp_core.layers.techniques import modules_of, trained_elements
from ptdp_core.layout.grid import RankGrid
from ptdp_core.layout.stages import RankSizes, rank_kinds, stage_kinds, table_elements


def all_reduces(parameters: Iterable[Parameter]) -> tuple[int, int]:
    """The number of all-reduces of activations in these linears, forward and backward (Figure 5).

    The partial sums of a row-parallel matrix are reduced by a g in the forward pass. The gradient of the replicated
    input of a column-parallel matrix is reduced by an f in the backward pass.
    """
    splits = [parameter.split for parameter in parameters if parameter.is_matrix]
    return splits.count(ROW), splits.count(COLUMN)


def recomputation_gathers(config: TrainingConfig, layers: int) -> tuple[Collective, ...]:
    """The all-gathers that restore the inputs of recomputed blocks of which each tensor rank keeps 1/t.

    A chunk of `layers` layers needs one per block and microbatch, in the backward pass."""
    model, parallel = config.local_model, config.parallel
    if not parallel.distribute_checkpointed_activations:
        return ()
    gathered = Collective(ALL_GATHER, "tp", model.seq * parallel.b * model.hidden)
    return (gathered,) * -(-layers // parallel.checkpoint_layers)


class LayerPasses(NamedTuple):
    """The collectives of a layer's passes, and those that recomputation repeats in its backward pass."""

    forward: tuple[Collective, ...]
    backward: tuple[Collective, ...]
    recomputed: tuple[Collective, ...]


def layer_passes(config: TrainingConfig, *groups: str, kind: LayerKind | None = None) -> LayerPasses:
    """The collectives of a layer over these groups: 'tp', 'cp' or 'ep'.

    What a recomputed layer gathers from context ranks is what its backward pass needs, so that 'all_gather' repeats
    none of these. The attention core, which selective recomputation repeats, is between those of 'all_to_all'.
    """
    parallel, layer = config.parallel, layer_of(config, kind)
    forward, backward = layer.collectives
    again: tuple[Collective, ...] = ()
    if modules := config.recomputed_modules(kind):
        again = modules_of(layer, modules).collectives.forward
    elif parallel.recompute == "full":
        kept = "cp" if parallel.context_exchange == "all_gather" else ""
        again = tuple([call for call in forward if call.group != kept])
    calls = [tuple([call for call in of if call.group in groups]) for of in (forward, backward, again)]
    return LayerPasses(*calls)


def stage_passes(config: TrainingConfig, stage: int) -> PassCollectives:
    """The collectives of activations in a stage's forward and backward pass of a microbatch, over tp and over cp.

    The backward pass includes the recomputed forward pass. Stage 0 also embeds; the last stage also computes logits
    and loss, whose reductions of single numbers per token are left out.
    """
    model, parallel, groups = config.model, config.parallel, ("tp", "cp")
    stages = stage_kinds(config)
    forward: tuple[Collective, ...] = ()
    backward: tuple[Collective, ...] = ()
    for kind, count in zip(model.layer_kinds, stages[stage], strict=True):
        calls = layer_passes(config, *groups, kind=kind)
        forward += calls.forward * count
        backward = (*calls.recomputed, *calls.backward) * count + backward
    for end, place in zip(ends(config.local_model, LayerRun.of(parallel)), (0, len(stages) - 1), strict=True):
        if stage == place:
            into, out_of = end.collectives
            forward += tuple(call for call in into if call.element == ACTIVATION)
            backward += out_of
    return PassCollectives(forward, backward)


def vocabulary_exchanges(config: TrainingConfig) -> dict[str, Collective]:
    """The collectives of a microbatch over pipeline ranks that share the vocabulary, by the pass before each.

    E: the embedded tokens are summed on the first stage's rank. F: the last stage's output is sent to all. S: of each
    token all get three numbers of every rank. T, or S of vocab-2: the gradient of that output is summed on the last
    stage's rank. B: the gradient of the first stage's input is sent to all.
    """
    tokens = config.local_model.seq * config.parallel.b
    reduced, sent = (Collective(operation, "pp", tokens * config.model.hidden) for operation in (REDUCE, BROADCAST))
    gathered = Collective(ALL_GATHER, "pp", 3 * tokens * config.parallel.p, FP32)
    return {"E": reduced, "F": sent, "S": gathered, "T": reduced, "B": sent}


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
        model = config.local_model
        shape = model.seq // parallel.sequence_shards, parallel.b, model.hidden
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
        return (self.message_elements,) if self.is_scattered else self.shape

    @property
    def message_elements(self) -> int:
        """The number of elements that one GPU sends."""
        return self.elements // self.shards

    @property
    def gather(self) -> Collective | None:
        """The all-gather that puts a received tensor together; None if it arrives whole."""
        return Collective(ALL_GATHER, "tp", self.elements, ACTIVATION) if self.shards > 1 else None


def trained(config: TrainingConfig, parameters: float, of_experts: float) -> tuple[float, float]:
    """Of a GPU's parameters, and of those of experts, those that are trained: with LoRA the adapters' share of a layer.

    What adapters' own weights take is left out.
    """
    if not config.parallel.lora_rank:
        return parameters, of_experts
    parts = layer_of(config).parts
    whole = sum([item.elements for part in parts for item in part.parameters])
    return parameters * sum([trained_elements(part, config.parallel.lora_rank) for part in parts]) / whole, 0.0


def over_replicas(config: TrainingConfig, parameters: float, of_experts: float) -> list[Collective]:
    """The collectives of an iteration over the ranks that hold the same of so many parameters, some of experts.

    With a sharded optimizer each gets a part of the reduced gradients, and gathers the updated weights; with ZeRO-2 it
    keeps that part only, and reduces the gradients of every microbatch, or of `reduce_every`. ZeRO-3 does so layer by
    layer.
    """
    parallel, calls = config.parallel, list[Collective]()
    if parallel.data_parallel == "zero3":
        return calls
    for elements, group in ((parameters - of_experts, "dp"), (of_experts, "edp")):
        if parallel.groups[group].number == 1 or not elements:
            continue
        if parallel.sharded_optimizer:
            calls += [Collective(REDUCE_SCATTER, group, elements, GRADIENT)] * parallel.reductions
            calls.append(Collective(ALL_GATHER, group, elements, WEIGHT))
        else:
            calls.append(Collective(ALL_REDUCE, group, elements, GRADIENT))
    return calls


def over_parts(config: TrainingConfig, pp: int, sizes: RankSizes) -> list[Collective]:
    """The collectives of an iteration that sum gradients of which a pipeline rank's GPUs have parts.

    With sequence parallelism a tensor rank has the gradients of whole parameters (of layer norms, biases, positions)
    from its part of the sequence only; also otherwise those of what only parts of its work use (`RankSizes.partial`).
    The two ranks of a tied embedding sum those of both uses. With adapters (LoRA) all of these are frozen.
    """
    parallel, calls = config.parallel, list[Collective]()
    if parallel.lora_rank:
        return calls
    shared = sizes.whole if parallel.sequence_parallel else sizes.partial
    if shared and parallel.t > 1:
        calls.append(Collective(ALL_REDUCE, "tp", shared, GRADIENT))
    if (tied := config.tied_ranks) and pp in tied and tied[0] != tied[1]:
        calls.append(Collective(ALL_REDUCE, "embedding", table_elements(config), GRADIENT))
    return calls


def step_collectives(config: TrainingConfig) -> tuple[tuple[Collective, ...], ...]:
    """The `kind_collectives` of each pipeline rank."""
    by_kind = kind_collectives(config)
    return tuple([by_kind[kind] for kind in rank_kinds(config).of])


def kind_collectives(config: TrainingConfig) -> list[tuple[Collective, ...]]:
    """The collectives that the GPUs of each kind of pipeline ranks run once an iteration, for gradients and the tied
    embedding.

    Gradients are reduced over d replicas, with context parallelism over d*c ranks, each of which has them from its part
    of the sequences, and experts' over the ranks that hold the same ones. With adapters (LoRA) these alone have
    gradients.
    """
    kinds, by_kind = rank_kinds(config), []
    for pp, sizes in zip(kinds.ranks, kinds.sizes, strict=True):
        calls = over_replicas(config, *trained(config, sizes.parameters, sizes.experts))
        if config.parallel.lora_rank:  # adapters are a share
            calls = [call._replace(elements=round(call.elements)) for call in calls]
        by_kind.append((*calls, *over_parts(config, pp, sizes)))
    return by_kind


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
