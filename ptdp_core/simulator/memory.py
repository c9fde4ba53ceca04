"""The memory of one GPU: model states and activations, in bytes (Sections 2.2 and 3.5).

fp16 training with Adam keeps 2 bytes a parameter for the weight, 2 for its gradient and 12 for the optimizer (fp32
weight, momentum, variance); fp32 training keeps 4, 4 and 8. Activations are counted in fp16 and scaled to the cluster's
precision at the end. In the optimizer step, when there are no activations, 16-bit gradients are unscaled into 4 further
bytes, unless they are summed in fp32 (4 bytes in place of 2).
"""

from collections.abc import Iterable
from itertools import pairwise
from operator import mul
from typing import NamedTuple

from ptdp_core.config import LayerKind, ParallelConfig, TrainingConfig
from ptdp_core.layers.blocks import heads_of, layer_of
from ptdp_core.layers.parts import Block
from ptdp_core.layers.techniques import RECIPES, offloaded, recomputed
from ptdp_core.layout import RankKinds, RankSizes, trained, vocabulary_rows
from ptdp_core.schedules import MESSAGES_AT_ONCE, Moment, build, definition, most_scored
from ptdp_core.schedules.vocabulary import AHEAD
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.kernels import FP16_BYTES
from ptdp_core.simulator.optimizers import OPTIMIZERS
from ptdp_core.simulator.software import PAPER, Software

FP32_GRADIENT_BYTES = FP32_BYTES = 4
LOGIT_BYTES = 10  # per logit: in fp16 (2), in fp32 (4), and its softmax (4)
FUSED_LOGIT_BYTES = 4  # in fp16, and its gradient, where the loss is fused


def state_bytes(
    element_bytes: int, software: Software, sharded: bool = False, optimizer: str = "adam"
) -> tuple[int, int, int]:
    """Bytes per parameter of weight, gradient and optimizer states, for weights of `element_bytes` bytes.

    Adam keeps momentum and variance in at least fp32, and so wide a weight if the model's is narrower; others are
    `OPTIMIZERS`. All `sharded` (ZeRO-3) Adam's are 16 bytes: a narrow weight is beside the wide one (and its gradient
    so), or made of it.
    """
    if sharded and optimizer == "adam":
        return (4, 4, 8) if software.fsdp else (WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES)
    row, wide = OPTIMIZERS[optimizer], max(element_bytes, FP32_BYTES)  # what is wide is no narrower than the weight
    moment = max(row.moment_bytes, element_bytes) if row.moment_bytes == FP32_BYTES else row.moment_bytes
    usual = wide if software.fp32_gradients else element_bytes
    return element_bytes, row.gradient_bytes or usual, row.moments * moment + row.master_bytes * (element_bytes < wide)


WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = state_bytes(FP16_BYTES, PAPER)


class LayerBytes(NamedTuple):
    """Bytes of a layer and a microbatch on a GPU.

    - `input`: bsh in fp16 (A_input of Section 3.5), which recomputation keeps; with sequence parallelism 1/t of it
    - `intermediate`: all that its backward pass needs (A_intermediate). In units of bsh bytes a GPT needs 10 replicated
      (inputs of layer norms and linears, dropout masks), 24/t sharded (query, key, value, context, 4h-wide tensors),
      and those of the attention core: eq. 2 of Korthikanti et al. 2022. With sequence parallelism the 10 are sharded,
      too: sbh/t (34 + 5as/h), their eq. 4
    - `kept`: what is kept of these between its passes: with full recomputation the input, with selective all but that
      of the recomputed modules: of the attention core 5as/(ht), 2as/(ht) without dropout
    - `moved`: what of `kept` waits in the host's memory, in each layer that offloads it
    - `deferred`: what is kept between I and W: inputs and output gradients of linears, 8 + 24/t of a GPT. Recomputation
      changes nothing, as W uses what I has recomputed, nor does sequence parallelism: W uses the inputs that I gathered
    - `working`: what exists only while a backward pass goes through it, at the larger of two moments. In the MLP, all
      recomputed intermediates and the gradients of its wide tensors are there (16/t, and those of experts). In the
      attention, the MLP's intermediates are gone (5 and that many); a gradient of the scores is there, if they are
      written, and with selective recomputation the attention core. With sequence parallelism gradients between layers
      are 1/t, but a linear's whole input and the gradient of it, or of the whole output, are there beside them. Of what
      was offloaded, that of this layer and of the next one, which is on its way
    """

    input: int
    intermediate: int
    kept: int
    deferred: float
    working: int
    moved: int = 0


def moved_bytes(parallel: ParallelConfig, layer: Block, modules: tuple[str, ...]) -> int:
    """Bytes in fp16 that a layer moves to the host's memory in its forward pass, and back in its backward pass.

    `modules` are those that it recomputes, of which there is less to move.
    """
    left = recomputed(layer, modules)
    return left.kept_bytes - offloaded(left, parallel.offloaded_modules).kept_bytes


def layer_bytes(config: TrainingConfig) -> LayerBytes:
    """The bytes of a layer: of the usual kind, or where kinds differ in what they keep, of all layers in the mean.

    Of what exists only in a layer's backward pass the layer with most counts.
    """
    model = config.model
    if not model.layer_pattern and not config.parallel.attention_kernels:
        return _kind_bytes(config, model.usual_kind)
    of_kinds = [_kind_bytes(config, kind) for kind in model.layer_kinds]
    numbers = model.kind_of_layers or (0,)
    kept, deferred, moved = (
        sum([getattr(of_kinds[number], name) for number in numbers]) / len(numbers)
        for name in ("kept", "deferred", "moved")
    )
    intermediate, working = (max(getattr(each, name) for each in of_kinds) for name in ("intermediate", "working"))
    return LayerBytes(of_kinds[0].input, intermediate, round(kept), deferred, working, round(moved))


def _kind_bytes(config: TrainingConfig, kind: LayerKind) -> LayerBytes:
    model, parallel, layer = config.local_model, config.parallel, layer_of(config, kind)
    between = 2 * model.seq * parallel.b * model.hidden // parallel.sequence_shards
    intermediate = layer.kept_bytes
    gradients = sum([part.gradients for part in layer.parts if part.name.startswith("mlp")])
    of_mixer = sum([part.gradients for part in layer.parts]) - gradients
    in_mlp, in_attention, kept = gradients, of_mixer, intermediate
    if parallel.c > 1:
        in_attention += exchanged_bytes(config)
    if kind.mlp:
        in_attention -= (5 if model.dropout else 4) * between // 2 + gradients
    modules = config.recomputed_modules(kind)
    if modules:
        left = recomputed(layer, modules)
        again = [before.kept_bytes - after.kept_bytes for before, after in zip(layer.parts, left.parts, strict=True)]
        of_mlp = sum([size for size, part in zip(again, layer.parts, strict=True) if part.name.startswith("mlp")])
        kept, in_mlp, in_attention = left.kept_bytes, in_mlp + of_mlp, in_attention + sum(again)
    working = 2 * between + int(max(in_mlp, in_attention))
    if parallel.sequence_shards > 1:
        working += 2 * parallel.sequence_shards * between
    if parallel.recompute == "full":
        working += parallel.checkpoint_layers * intermediate
        kept = between
    moved = moved_bytes(parallel, layer, modules) if parallel.offload else 0
    return LayerBytes(
        between, intermediate, kept, sum([part.deferred for part in layer.parts]), working + 2 * moved, moved
    )


def exchanged_bytes(config: TrainingConfig) -> int:
    """Bytes of context parallelism's exchange in the backward pass of a layer's attention, for c > 1.

    Keys and values of the whole sequence and their gradients, or of a ring those that come and go, or what is sent in
    an all-to-all, and received.
    """
    parallel, model, heads = config.parallel, config.local_model, heads_of(config.model)
    own = 2 * model.seq * parallel.b * heads.keys_and_values
    sizes = {"all_gather": 2 * parallel.c * own, "ring": 4 * own}
    both = 2 * 2 * model.seq * parallel.b * (heads.all + heads.context)
    return sizes.get(parallel.context_exchange, both) // parallel.t


def stash_bytes(config: TrainingConfig, cluster: Cluster, layers: int, layer: LayerBytes) -> int:
    """Bytes that a chunk of so many layers keeps of one microbatch between its forward and its backward pass.

    With full recomputation the inputs of every `checkpoint_layers` layers, tensors of one size, or 1/t of each.
    Otherwise tensors of many sizes, of which the caching allocator can fill only a part of the memory.
    """
    parallel = config.parallel
    if parallel.recompute != "full":
        moved = min(parallel.offload_layers or layers, layers) * layer.moved
        return round((layers * layer.kept - moved) / cluster.allocator_efficiency)
    kept = layer.kept // (parallel.t if parallel.distribute_checkpointed_activations else 1)
    return -(-layers // parallel.checkpoint_layers) * kept


def deferred_bytes(
    config: TrainingConfig, cluster: Cluster, layers: int, computes_loss: bool, layer: LayerBytes
) -> int:
    """Bytes that a chunk of so many layers keeps of one microbatch for its deferred weight gradients (between I and W).

    On the last stage those of the output layer are among them, unless all pipeline ranks share it.
    """
    computes_loss = computes_loss and not config.parallel.vocabulary
    tokens = config.local_model.seq * config.parallel.b
    rows = vocabulary_rows(config)
    logits = 2 * tokens * (config.model.hidden + rows) if computes_loss else 0
    return round((layers * layer.deferred + logits) / cluster.allocator_efficiency)


def working_bytes(config: TrainingConfig, computes_loss: bool, layer: LayerBytes, software: Software = PAPER) -> int:
    """Bytes of activations that exist only while a backward pass goes through one layer, or through the logits.

    Where all pipeline ranks share the vocabulary, each has its part of the logits, and beside either of these what
    other microbatches keep between S and T, as if the rank had most of them at both moments.
    """
    parallel = config.parallel
    if not computes_loss and not parallel.vocabulary:
        return layer.working
    each = FUSED_LOGIT_BYTES if software.fused_cross_entropy else LOGIT_BYTES
    if software.logits_in_place:
        each = FP16_BYTES
    tokens = config.local_model.seq * parallel.b
    logits = each * tokens * vocabulary_rows(config)
    if not parallel.vocabulary:
        return max(layer.working, logits)
    scored = most_scored(build(parallel.schedule, parallel.p, parallel.m, parallel.v))
    kept = scored_bytes(config, software)
    return max(layer.working + scored * kept, logits + (scored - 1) * kept)


def scored_bytes(config: TrainingConfig, software: Software) -> int:
    """Bytes that a rank keeps of a microbatch between S and T: the last stage's output, and the exponentials of logits.

    These are in fp32, or where the loss is fused in the model's precision.
    """
    each = FP16_BYTES if software.fused_cross_entropy else FP32_BYTES
    width = FP16_BYTES * config.model.hidden + each * vocabulary_rows(config)
    return config.local_model.seq * config.parallel.b * width


def updated(config: TrainingConfig, parameters: float, of_experts: float = 0.0) -> float:
    """The parameters that a GPU updates: of all, and of experts, its part of the states (`state_shards`)."""
    shards, expert_shards = config.parallel.state_shards
    return (parameters - of_experts) / shards + of_experts / expert_shards


def gathered_bytes(config: TrainingConfig, cluster: Cluster, software: Software) -> int:
    """Bytes of what ZeRO-3 has gathered beside its shards.

    Section 5.2's program has a layer's largest matrix: weight, gradient, send buffer. FSDP has the weights of a layer
    and of the next, and the gradients of one, once as they are computed and once as they are reduced; adapters have
    hardly any.
    """
    parallel, width = config.parallel, cluster.element_bytes
    held = [item.held(parallel.t, parallel.expert_parts) for item in layer_of(config).parameters]
    if not software.fsdp:
        return 3 * width * max(held)
    return (2 * width if parallel.lora_rank else 3 * width + cluster.gradient_bytes) * sum(held)


def fullest_moment(
    config: TrainingConfig,
    cluster: Cluster,
    sizes: RankSizes,
    layer: LayerBytes,
    front: Iterable[Moment],
    computes_loss: bool,
    sent: int,
) -> tuple[int, int]:
    """Bytes in fp16 of what a rank stashes and defers at the fullest moment of its front, and of outputs kept beside.

    A moment (`schedules.stash_fronts`) counts, for chunks of each length, the longest first, the microbatches that are
    stashed, and those that are deferred. Of each that is stashed an output of `sent` bytes is there, too.
    """
    splits, held = definition(config.parallel.schedule).splits, list[int]()
    for layers in sorted(set(sizes.chunks), reverse=True):
        deferred = deferred_bytes(config, cluster, layers, computes_loss, layer) if splits else 0
        held += stash_bytes(config, cluster, layers, layer), deferred
    both = [(sum(map(mul, held, moment)), sent * sum(moment[::2])) for moment in front]
    return max(both, key=sum)


def whole_share(parallel: ParallelConfig, sizes: RankSizes) -> float:
    """Of a rank's gradients the share that is whole beside its part of the sum, with ZeRO-2 reduced less often.

    With interleaved chunks a round of at most p microbatches fills two of them: one is being reduced meanwhile. They
    are neighbours, the two with most parameters.
    """
    if parallel.reduce_every > parallel.p or parallel.v < 3:
        return 1.0
    of_layer = (sizes.parameters - sum(sizes.ends)) / sum(sizes.chunks)
    chunks = [layers * of_layer for layers in sizes.chunks]
    chunks[0] += sizes.ends[0]
    chunks[-1] += sizes.ends[1]
    return max(map(sum, pairwise([*chunks, chunks[0]]))) / sizes.parameters


def rank_memory(
    config: TrainingConfig,
    cluster: Cluster,
    sizes: RankSizes,
    layer: LayerBytes,
    front: Iterable[Moment],
    computes_loss: bool,
    software: Software,
) -> dict[str, int]:
    """Bytes by use on one GPU of a pipeline rank at its memory peak.

    `layer` are those of each of its layers, `front` the moments of the rank (`schedules.stash_fronts`): what it holds
    of chunks of each length. The peak is in a backward pass, or in the optimizer step. Of ZeRO-2 gradients that are
    being reduced are not counted.
    """
    parallel = config.parallel
    parameters, of_experts = sizes.parameters, sizes.experts
    taught, own_experts = trained(config, parameters, of_experts)
    own = updated(config, taught, own_experts)
    buffers = MESSAGES_AT_ONCE[definition(parallel.schedule).exchanges]
    if parallel.vocabulary:  # embedded tokens, and the gradients of the last stage's output and the first one's input
        buffers += AHEAD + 2
    sharded = parallel.data_parallel == "zero3"
    weight, gradient, optimizer = state_bytes(cluster.element_bytes, software, sharded, parallel.optimizer_states)
    whole = taught * whole_share(parallel, sizes) if parallel.reduce_every > 1 else 0.0
    weights = round(weight * parameters)
    if sharded:  # frozen weights stay as narrow as they are
        frozen = updated(config, parameters, of_experts) - own
        weights = round(weight * own + cluster.element_bytes * frozen) + gathered_bytes(config, cluster, software)
    kept_casts = software.kept_casts and parallel.fp8_recipe != "none"
    states = {
        "weights": weights + (round(RECIPES[parallel.fp8_recipe].written * sizes.cast) if kept_casts else 0),
        "gradients": round(gradient * (own + whole if sharded or parallel.data_parallel == "zero2" else taught)),
        "optimizer": 0 if "optimizer" in parallel.offload else round(optimizer * own),
    }
    sent = 0 if parallel.p == 1 or software.freed_outputs else layer.input
    stashed, outputs = fullest_moment(config, cluster, sizes, layer, front, computes_loss, sent)
    backward = {
        "stashed_activations": stashed,
        "working_activations": working_bytes(config, computes_loss, layer, software),
        # one buffer for each message on its way, and the outputs that are sent and not yet freed
        "boundary_buffers": buffers * layer.input + outputs if parallel.p > 1 else 0,
    }
    backward = {use: round(size * cluster.element_bytes / FP16_BYTES) for use, size in backward.items()}
    unscales = (
        gradient < FP32_GRADIENT_BYTES and not sharded and not OPTIMIZERS[parallel.optimizer_states].gradient_bytes
    )
    unscaled = round(FP32_GRADIENT_BYTES * own) if unscales else 0
    if sum(backward.values()) >= unscaled:
        return states | backward | {"unscaled_gradients": 0}
    return states | dict.fromkeys(backward, 0) | {"unscaled_gradients": unscaled}


def fullest_memory(
    config: TrainingConfig,
    cluster: Cluster,
    software: Software,
    kinds: RankKinds,
    layer: LayerBytes,
    fronts: Iterable[Iterable[Moment]],
) -> dict[str, int]:
    """The bytes by use on the fullest GPU at its peak, which is in the fronts of the first `kinds` of pipeline ranks.

    These are the `schedules.stash_fronts` of all ranks of a kind together; `layer` are the bytes of its layers.
    """
    last = config.parallel.placement.last
    memories = [
        rank_memory(config, cluster, sizes, layer, front, rank == last, software)
        for rank, sizes, front in zip(kinds.ranks, kinds.sizes, fronts, strict=False)
    ]
    return max(memories, key=lambda memory: sum(memory.values()))
