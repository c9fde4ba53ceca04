"""ZeRO-3 without model parallelism, the baseline of Section 5.2: all states sharded over d = n data-parallel GPUs.

Every GPU computes whole layers for its own microbatches and gathers each parameter tensor in fp16 just before use: for
the forward pass, for its recomputation and for the backward pass; gradients are reduce-scattered. That traffic is the
same however small the microbatches it could hide under.
"""

from collections.abc import Mapping
from math import fsum

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import parameters
from ptdp_core.layout import layer_parameters
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.estimate import BUBBLE_CAUSES, PHASES, Estimate
from ptdp_core.simulator.kernels import FP16_BYTES
from ptdp_core.simulator.memory import (
    GRADIENT_BYTES,
    OPTIMIZER_BYTES,
    WEIGHT_BYTES,
    layer_bytes,
    stash_bytes,
    working_bytes,
)
from ptdp_core.simulator.network import data_group
from ptdp_core.simulator.software import Software


def simulate_zero3(config: TrainingConfig, model: CostModel) -> Estimate:
    """One iteration of ZeRO-3: computation and communication at the same time, then the sharded optimizer step.

    The phase `data_parallel` holds what communication adds: the part it outlasts the computation, or slows it by.
    """
    cluster, parallel = model.cluster, config.parallel
    (stage,) = model.stages(config)
    compute = {
        "forward": stage.layers_forward * parallel.m,
        "recompute": stage.recompute * parallel.m,
        "backward": stage.layers_backward * parallel.m,
        "embedding_and_logits": (stage.extra_forward + stage.extra_backward) * parallel.m,
    }
    sent = communication_bytes(config, model)
    host = cluster.iteration_host_time + stage.fetch * parallel.m
    busy, wire = fsum(compute.values()), sent / cluster.zero3_bandwidth
    exposed = max(wire, busy * cluster.zero3_interference) - busy
    if model.software.fsdp:
        exposed = fsdp_exposed(config, model, compute)
    shard = parameters(config.model) / parallel.d
    phases = dict.fromkeys(PHASES, 0.0) | compute
    phases |= {"data_parallel": exposed, "optimizer": model.optimizer(config, shard), "host": host}
    memory = zero3_memory(config, cluster, model.software)
    peak = sum(memory.values())
    return Estimate(
        config=config,
        cluster=cluster.name,
        peak_flops=cluster.peak_flops,
        iteration_time=fsum(phases.values()),
        phase_times=phases,
        bubble_fraction=0.0,
        peak_memory=peak,
        memory_bytes=memory,
        traffic={"pipeline": 0, "tensor": 0, "data": round(sent), "embedding": 0},
        fits=peak <= cluster.usable_memory,
        bubble_times=dict.fromkeys(BUBBLE_CAUSES, 0.0),
    )


def communication_bytes(config: TrainingConfig, model: CostModel) -> float:
    """Bytes a GPU sends in an iteration: (d-1)/d of the parameters for each gather and for each reduction."""
    parallel, width = config.parallel, model.cluster.element_bytes
    size = parameters(config.model) * (parallel.d - 1) / parallel.d
    if model.software.fsdp:
        return size * (2 * width + model.gradient_bytes) * parallel.m
    gathers = 3 if parallel.recompute == "full" else 2
    return width * size * (gathers * parallel.m + 1)


def fsdp_exposed(config: TrainingConfig, model: CostModel, compute: Mapping[str, float]) -> float:
    """Seconds that FSDP adds to the computation of an iteration, whose parts are `compute`.

    Layers are gathered and reduced one by one, by one communicator, so in turn. The first gather and the last reduction
    hide under nothing, the others under a layer's computation, which they slow down while they last. With
    `backward_post` a layer's gather waits for the reduction before it, and its computation for both. Before a reduction
    gradients are cast to its precision and divided.
    """
    cluster, parallel, software = model.cluster, config.parallel, model.software
    group = data_group(1, parallel.d, cluster.gpus_per_node)
    layer = parameters(config.model) / config.model.layers  # embedding and logits shared out among them
    gather = model.network.one_way(group, cluster.element_bytes * layer)
    reduce = model.network.one_way(group, model.gradient_bytes * layer)
    cast = model.kernels.streamed((cluster.element_bytes + 3 * model.gradient_bytes) * layer)
    passes = config.model.layers * parallel.m
    forward = compute["forward"] / passes
    backward = (compute["recompute"] + compute["backward"]) / passes
    exposed = gather + _beyond(gather, forward, cluster) * (config.model.layers - 1)
    if software.backward_post:
        exposed += (gather + reduce) * config.model.layers
    else:
        exposed += reduce + _beyond(gather + reduce, backward, cluster) * config.model.layers
    return (exposed + cast * config.model.layers) * parallel.m


def _beyond(wire: float, computation: float, cluster: Cluster) -> float:
    """Seconds by which communication beside a computation outlasts it or slows it down."""
    return max(wire - computation, (cluster.zero3_interference - 1) * min(wire, computation))


def zero3_memory(config: TrainingConfig, cluster: Cluster, software: Software) -> dict[str, int]:
    """Sharded states, activations as without ZeRO, and a layer's largest matrix: weight, gradient, send buffer."""
    shard = parameters(config.model) / config.parallel.d
    whole = 3 * cluster.element_bytes * max(parameter.elements for parameter in layer_parameters(config.model, 0))
    layer = layer_bytes(config)
    stash = stash_bytes(config, cluster, config.model.layers, layer)
    working = working_bytes(config, computes_loss=True, layer=layer, software=software)
    return {
        "weights": round(WEIGHT_BYTES * shard) + whole,
        "gradients": round(GRADIENT_BYTES * shard),
        "optimizer": round(OPTIMIZER_BYTES * shard),
        "stashed_activations": round(stash * cluster.element_bytes / FP16_BYTES),
        "working_activations": round(working * cluster.element_bytes / FP16_BYTES),
        "boundary_buffers": 0,
        "unscaled_gradients": 0,
    }
