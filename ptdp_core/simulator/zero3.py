"""ZeRO-3: all states sharded over the GPUs that would else hold the same; a weight is gathered just before its use.

Two programs do so. The baseline of Section 5.2, without model parallelism, gathers each parameter tensor in fp16 for
the forward pass, for its recomputation and for the backward pass, and reduces gradients once; that traffic is the same
however small the microbatches it could hide under. PyTorch's FSDP (`Software.fsdp`) also goes with tensor, context,
expert and pipeline parallelism, and may shard over a part of the replicas (HSDP, `ParallelConfig.zero3_shards`).
"""

from math import fsum

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import RankSizes, rank_sizes, stage_kinds, trained
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.network import group_of
from ptdp_core.simulator.stage_times import Stages, StageTimes
from ptdp_core.simulator.step import reduced_bytes


def sharded_stages(config: TrainingConfig, model: CostModel) -> Stages:
    """The times of the stages, with what communication adds to their passes.

    Raises ConfigurationError for what the baseline cannot do.
    """
    stages, parallel, software = model.stages(config), config.parallel, model.software
    if not software.fsdp:
        config.check_zero3_alone()
        (only,) = stages
        busy = parallel.m * (only.forward + only.backward - only.fetch)
        wire = communication_bytes(config, model, rank_sizes(config)[0]) / model.cluster.zero3_bandwidth
        exposed = max(wire, busy * model.cluster.zero3_interference) - busy
        return Stages((only._replace(sharding_backward=exposed / parallel.m),))
    kinds = stage_kinds(config)
    sharded: list[StageTimes] = list(stages)
    for held, sizes in zip(parallel.placement.stages, rank_sizes(config), strict=True):
        layers = sum(sum(kinds[stage]) for stage in held)
        mean = [size / max(1, layers) for size in (sizes.parameters, sizes.experts)]
        for stage in held:
            forward, backward = _added_by_fsdp(config, model, stages[stage], sum(kinds[stage]), *mean)
            sharded[stage] = stages[stage]._replace(sharding_forward=forward, sharding_backward=backward)
    return Stages(sharded)


def communication_bytes(config: TrainingConfig, model: CostModel, sizes: RankSizes) -> float:
    """Bytes a GPU sends in an iteration: (k-1)/k of the parameters for each gather and reduction over k shards."""
    parallel, width = config.parallel, model.cluster.element_bytes
    held = sizes.parameters - sizes.experts, sizes.experts
    size = fsum(each * (shards - 1) / shards for each, shards in zip(held, parallel.state_shards, strict=True))
    if model.software.fsdp:
        taught = trained(config, sizes.parameters, sizes.experts)[0] / sizes.parameters
        return size * (2 * width + taught * reduced_bytes(model, config)) * parallel.m
    gathers = 3 if parallel.recompute == "full" else 2
    return width * size * (gathers * parallel.m + 1)


def _added_by_fsdp(
    config: TrainingConfig, model: CostModel, stage: StageTimes, layers: int, parameters: float, of_experts: float
) -> tuple[float, float]:
    """Seconds that FSDP adds to a microbatch's forward and backward pass through a stage of so many `layers`.

    Each has so many parameters on a GPU, embedding and logits shared out among them. Layers are gathered and reduced
    one by one, by one communicator, so in turn. The first gather and the last reduction hide under nothing, the others
    under a layer's computation, which they slow down while they last. With `backward_post` a layer's gather waits for
    the reduction before it, and its computation for both. Before a reduction gradients are cast to its precision and
    divided. With adapters (LoRA) these alone are reduced.
    """
    if not layers:
        return 0.0, 0.0
    cluster, parallel = model.cluster, config.parallel
    width, wide = cluster.element_bytes, reduced_bytes(model, config)

    def one_way(element_bytes: int, parameters: float, of_experts: float) -> float:
        of_groups = zip(parallel.state_shards, (parallel.t, parallel.expert_parts), strict=True)
        group, same = (group_of(shards, cluster.gpus_per_node, apart) for shards, apart in of_groups)
        of_dense = model.network.one_way(group, element_bytes * (parameters - of_experts))
        return of_dense + (model.network.one_way(same, element_bytes * of_experts) if of_experts else 0.0)

    taught = trained(config, parameters, of_experts)
    gather, reduce = one_way(width, parameters, of_experts), one_way(wide, *taught)
    cast = model.kernels.streamed((width + 3 * wide) * taught[0]) * layers
    forward, backward = stage.layers_forward / layers, (stage.recompute + stage.layers_backward) / layers
    added = gather + _beyond(gather, forward, cluster) * (layers - 1)
    if model.software.backward_post:
        return added, (gather + reduce) * layers + cast
    return added, reduce + _beyond(gather + reduce, backward, cluster) * layers + cast


def _beyond(wire: float, computation: float, cluster: Cluster) -> float:
    """Seconds by which communication beside a computation outlasts it or slows it down."""
    return max(wire - computation, (cluster.zero3_interference - 1) * min(wire, computation))
