"""What an iteration does once, after its pipeline flush: it reduces gradients, steps, and gathers the weights.

All times in seconds. `parameters` are those that a GPU holds and trains, `of_experts` those of experts among them.
"""

from math import fsum

from ptdp_core.config import TrainingConfig
from ptdp_core.layers.blocks import layer_of
from ptdp_core.layers.parts import WEIGHT, Collective
from ptdp_core.layout import RankSizes, over_parts, over_replicas, rank_kinds, trained
from ptdp_core.schedules import definition
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.kernels import FP16_BYTES
from ptdp_core.simulator.memory import state_bytes, updated
from ptdp_core.simulator.network import Group, group_of
from ptdp_core.simulator.optimizers import OPTIMIZERS, orthogonalisation
from ptdp_core.simulator.stage_times import Stages

# The bytes moved per parameter to flatten gradients into the all-reduce's buffer and back.
GRADIENT_COPY_BYTES = 12
# Parameters of a bucket of gradients or weights, at least and for each replica (Megatron-Core, ddp_config.bucket_size).
LEAST_BUCKET, BUCKET_FOR_EACH_REPLICA = 40e6, 1e6


def after_the_flush(
    model: CostModel, config: TrainingConfig, stages: Stages
) -> tuple[list[float], list[float], list[float]]:
    """The seconds by pipeline rank to reduce gradients, to step, and to gather what other replicas updated."""
    kinds = rank_kinds(config)
    times = [of_rank(model, config, stages, *rank) for rank in zip(kinds.ranks, kinds.sizes, strict=True)]
    reductions, steps, gathers = ([times[kind][part] for kind in kinds.of] for part in range(3))
    return reductions, steps, gathers


def of_rank(
    model: CostModel, config: TrainingConfig, stages: Stages, rank: int, sizes: RankSizes
) -> tuple[float, float, float]:
    """The seconds in which a pipeline rank's GPUs reduce gradients, step, and gather what other replicas updated."""
    parameters, of_experts = trained(config, sizes.parameters, sizes.experts)
    first, last = first_and_last(config, stages, rank)
    reduction = gradient_reduction(model, config, parameters, last, of_experts)
    for call in over_parts(config, rank, sizes):
        # Without sequence parallelism tensor ranks have parts of a few small parameters only, whose sum is left out.
        if call.group != "tp" or config.parallel.sequence_parallel:
            reduction += collective_seconds(model, config, call)
    held = config, parameters, of_experts
    return reduction, optimizer_step(model, *held), weight_gather(model, *held, first)


def first_and_last(config: TrainingConfig, stages: Stages, rank: int) -> tuple[float, float]:
    """Seconds of a rank's first forward passes, and of its last backward passes, one of each of its stages.

    Beside these, weights are gathered and gradients reduced: beside none where passes are split, as no layer's
    gradients are complete before the last W.
    """
    held, (forward, backward) = config.parallel.placement.stages[rank], stages.seconds
    splits = definition(config.parallel.schedule).splits
    return fsum([forward[stage] for stage in held]), 0.0 if splits else fsum([backward[stage] for stage in held])


def collective_seconds(model: CostModel, config: TrainingConfig, call: Collective) -> float:
    """Seconds of one of `layout.step_collectives`: an all-reduce, or one way half of it.

    Those of gradients over replicas, and of a tied embedding's over its two ranks, have an HCA's rate of their own.
    """
    parallel, node = config.parallel, model.cluster.gpus_per_node
    tied = call.group == "embedding"
    group = Group(2, 2 if parallel.n <= node else 1) if tied else model.group(parallel, call.group)
    width = model.cluster.element_bytes if call.element == WEIGHT else reduced_bytes(model, config)
    return model.network.all_reduce(group, width * call.elements, gradients=call.group != "tp") * call.rounds / 2


def gradient_reduction(
    model: CostModel, config: TrainingConfig, parameters: float, last_backward: float, of_experts: float = 0.0
) -> float:
    """Exposed seconds of reducing a GPU's gradients over its d*c replicas before the optimizer step.

    Those `of_experts` among the parameters are reduced over the ranks that hold the same experts.

    'local' is exposed in full; 'torch' overlaps with the last microbatch's backward pass, whose time is given. A
    sharded optimizer reduce-scatters the gradients, which is the first half of a ring's all-reduce. 'zero2' does so
    after every `reduce_every` microbatches, and overlaps each with the backward passes of as many; of more than one
    nothing hides the last model chunk's.
    """
    parallel, in_buckets = config.parallel, model.software.overlapped_data_parallel
    if parallel.data_parallel == "zero3":
        return _reduced_over_shards(model, config, parameters, of_experts)
    reductions = {call for call in over_replicas(config, parameters, of_experts) if call.element != WEIGHT}
    reduce = fsum([collective_seconds(model, config, call) for call in reductions])
    copies = gradient_copies(model, config, parameters)
    if parallel.data_parallel == "local":
        return (_beside(model, config, reduce, parameters, last_backward) if in_buckets else reduce) + copies
    times, every = parallel.reductions, parallel.reduce_every
    exposed = times * max(0.0, reduce - every * last_backward)
    if every > 1:
        exposed = max(exposed, reduce / parallel.v)
    slowed = model.taken * (times * reduce - exposed) if in_buckets else 0.0
    return exposed + slowed + copies


def _reduced_over_shards(model: CostModel, config: TrainingConfig, parameters: float, of_experts: float) -> float:
    """Seconds to all-reduce a GPU's shard of the gradients over the copies of the shards (HSDP)."""
    parallel, seconds, held = config.parallel, 0.0, (parameters - of_experts, of_experts)
    groups = parallel.groups["dp"], parallel.groups["edp"]
    for each, (ranks, apart), shards in zip(held, groups, parallel.state_shards, strict=True):
        group = group_of(ranks // shards, model.cluster.gpus_per_node, apart * shards)
        size = reduced_bytes(model, config) * each / shards
        seconds += model.network.all_reduce(group, size, gradients=True) if each else 0.0
    return seconds


def _beside(model: CostModel, config: TrainingConfig, seconds: float, parameters: float, computation: float) -> float:
    """What a collective over a GPU's parameters adds to a computation beside it, bucket by bucket.

    Nothing hides the bucket that is ready last, or needed first; the others hide under the computation, which
    they slow down by their share of the multiprocessors.
    """
    bucket = max(LEAST_BUCKET, BUCKET_FOR_EACH_REPLICA * config.parallel.groups["dp"].number)
    alone = seconds * bucket / max(bucket, parameters)
    hidden = min(seconds - alone, computation)
    return seconds - hidden * (1 - model.taken)


def gradient_copies(model: CostModel, config: TrainingConfig, parameters: float) -> float:
    """Seconds to flatten a GPU's gradients into the all-reduce's buffer and back; none without replicas.

    With whole experts on tensor ranks (etp = 1) others may have the same experts, but no other weights.
    """
    groups = config.parallel.groups
    copied = groups["dp"].number > 1 or groups["edp"].number > 1
    return model.kernels.streamed(GRADIENT_COPY_BYTES * parameters) if copied else 0.0


def weight_gather(
    model: CostModel, config: TrainingConfig, parameters: float, of_experts: float = 0.0, first_forward: float = 0.0
) -> float:
    """Seconds to gather the weights that other replicas updated, with a sharded optimizer: half an all-reduce.

    With `overlapped_data_parallel` only what the next iteration's first forward pass does not hide.
    """
    if not config.parallel.sharded_optimizer:
        return 0.0
    gathers = [call for call in over_replicas(config, parameters, of_experts) if call.element == WEIGHT]
    gather = fsum([collective_seconds(model, config, call) for call in gathers])
    return (
        _beside(model, config, gather, parameters, first_forward) if model.software.overlapped_data_parallel else gather
    )


def optimizer_step(model: CostModel, config: TrainingConfig, parameters: float, of_experts: float = 0.0) -> float:
    """Seconds of the optimizer's step over the parameters that a GPU updates (`memory.updated`).

    States that wait in the host's memory come and go meanwhile, or for longer.
    """
    own, chosen = updated(config, parameters, of_experts), config.parallel.optimizer_states
    sharded, width = config.parallel.data_parallel == "zero3", model.cluster.element_bytes
    kept = state_bytes(width, model.software, sharded, chosen)
    moved = model.cluster.optimizer_bytes
    if chosen != "adam":
        moved *= sum(kept) / sum(state_bytes(width, model.software, sharded))
    step = model.kernels.streamed(moved * own)
    if OPTIMIZERS[chosen].orthogonal:
        step += _orthogonalised(model, config, parameters, own)
    return max(step, kept[2] * own / model.host_bandwidth(config)) if "optimizer" in config.parallel.offload else step


def _orthogonalised(model: CostModel, config: TrainingConfig, parameters: float, own: float) -> float:
    """Seconds to make the momentum of `own` parameters orthogonal, matrix by matrix, after a gather of all.

    Tensor ranks take the parts that they have (of experts whole ones), replicas with sharded states so many each.
    Tables of words, which are left to Adam, are counted as if they were among them.
    """
    parallel, layer = config.parallel, layer_of(config)
    seconds = elements = 0.0
    for item in layer.parameters:
        if item.is_matrix:
            *stack, outputs, inputs = item.shape
            parts = [outputs, inputs]
            if item.split is not None:
                parts[item.split] //= parallel.expert_tensor_ranks if stack else parallel.t
            number = stack[0] // parallel.e if stack else 1
            seconds += number * fsum(model.kernels.gemm(*gemm) for gemm in orthogonalisation(*parts))
            elements += number * parts[0] * parts[1]
    gathered = model.network.one_way(model.group(parallel, "dp"), FP16_BYTES * parameters) if own < parameters else 0.0
    return seconds * own / elements + gathered


def reduced_bytes(model: CostModel, config: TrainingConfig) -> int:
    """Bytes of a gradient that is reduced: the optimizer's, or else the program's.

    That is the cluster file's, unless its program sums in fp32 and this one does not.
    """
    narrower = model.cluster.software.fp32_gradients and not model.software.fp32_gradients
    usual = model.cluster.element_bytes if narrower else model.cluster.gradient_bytes
    return OPTIMIZERS[config.parallel.optimizer_states].gradient_bytes or usual
