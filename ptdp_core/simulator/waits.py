"""What a layer's passes wait for beside their own work: exchanges of context ranks and of experts, scans over states.

All times in seconds.
"""

from collections.abc import Sequence
from math import fsum

from ptdp_core.config import LayerKind, TrainingConfig
from ptdp_core.layers.blocks import LayerRun, layer_of
from ptdp_core.layers.experts import places
from ptdp_core.layers.parts import Block, Collective, Work
from ptdp_core.layers.techniques import RECIPES
from ptdp_core.layout import layer_passes
from ptdp_core.simulator.kernels import Gpu
from ptdp_core.simulator.network import Group

# Seconds of a multiprocessor that the choice of a token's experts takes for each score as PyTorch's operators, softmax,
# top-k and sum, beyond one kernel: 54 ps on the 132 of an H100, with 128 to 512 experts (FlashML-org/FreeToken, pull
# request 319).
UNFUSED_CHOICE = 54e-12 * 132

# The parts of a state-space layer that kernels of their own compute, which the cluster's `scan_efficiency` is of.
SCANNED = ("mamba.convolution", "mamba.scan")


def context_waits(gpu: Gpu, config: TrainingConfig, kind: LayerKind | None = None) -> tuple[float, float, float]:
    """Seconds that a layer waits for the exchange of context parallelism: forward, backward, where it is repeated.

    All-gathers, reduce-scatters and all-to-alls are waited for. Around a ring each GPU attends to one part while it
    passes another one on, and waits for as long as the messages take longer.
    """
    layer, calls = layer_of(config, kind), layer_passes(config, "cp")
    return (
        _context_wait(gpu, config, calls.forward, layer.forward),
        _context_wait(gpu, config, calls.backward, layer.backward),
        _context_wait(gpu, config, calls.recomputed, layer.forward),
    )


def _context_wait(gpu: Gpu, config: TrainingConfig, calls: Sequence[Collective], attention: Work) -> float:
    c, exchange, cluster = config.parallel.c, config.parallel.context_exchange, gpu.cluster
    group = gpu.group(config.parallel, "cp")
    sizes = [cluster.element_bytes * call.elements for call in calls]
    if exchange != "ring":
        seconds = gpu.network.all_to_all if exchange == "all_to_all" else gpu.network.one_way
        return fsum(seconds(group, size) for size in sizes)
    attends = fsum(gpu.kernels.attention(*each) for each in attention.attention) / c
    step = gpu.network.message(sum(sizes) / c, group.nodes > 1, 1)
    return (c - 1) * max(0.0, step - attends)


def expert_exchange(gpu: Gpu, config: TrainingConfig) -> float:
    """Seconds of the all-to-alls of a layer's pass, dispatch and combine, on the busiest expert-parallel rank.

    With `deduplicated_dispatch` a token goes once to each rank and once to each node (so do DeepSeek's DeepEP and
    NVIDIA's HybridEP). What of it hides is `CostModel`'s to say.
    """
    parallel = config.parallel
    if parallel.e == 1:
        return 0.0
    group = gpu.group(parallel, "ep")
    size = gpu.cluster.element_bytes * LayerRun.of(parallel).load
    sizes = [size * call.elements for call in layer_passes(config, "ep").forward]
    if not gpu.software.deduplicated_dispatch:
        return fsum(gpu.network.all_to_all(group, size) for size in sizes)
    experts, k, nodes = config.model.experts, config.model.experts_per_token, group.nodes
    inside = places(experts, k, group.size) / k * (group.per_node - 1) / group.per_node
    across = places(experts, k, nodes) / k * (nodes - 1) / nodes
    return fsum(gpu.network.exchange(group, inside * size, across * size) for size in sizes)


def routing(gpu: Gpu, config: TrainingConfig) -> float:
    """Seconds before tokens go: what a choice of experts takes that is no single kernel, and HybridEP's gather.

    With `deduplicated_dispatch` all ranks gather which experts each token has, a byte for each, and read that
    (deepseek-ai/DeepEP, branch hybrid-ep, `allgather_routing_map`).
    """
    parallel = config.parallel
    tokens = config.local_model.seq * parallel.b // (parallel.t // parallel.expert_tensor_ranks)
    scores = float(tokens * config.model.experts)
    chosen = UNFUSED_CHOICE * scores / gpu.cluster.multiprocessors if gpu.software.unfused_router else 0.0
    if parallel.e == 1 or not gpu.software.deduplicated_dispatch:
        return chosen
    group = gpu.group(parallel, "ep")
    gathered = parallel.e * scores
    return chosen + gpu.network.one_way(group, gathered) + gpu.kernels.memory_bound(gathered, 1)


def expert_launches(gpu: Gpu, config: TrainingConfig) -> tuple[float, float]:
    """Seconds that a layer's forward and backward pass wait for the host to launch their local experts' kernels.

    Once it has read the numbers of tokens, the host launches each expert's products of both linears, and prepares
    the casts of their rows, for all experts at once.
    """
    local, recipe = config.model.experts // config.parallel.e, RECIPES.get(config.parallel.fp8_recipe)
    if gpu.software.cuda_graphs:
        return 0.0, 0.0
    products = gpu.cluster.expert_launch_time * local
    casts = gpu.cluster.expert_cast_time * recipe.kernels if recipe else 0.0
    return 2 * (products + casts), 2 * (2 * products + casts)


def scan_waits(gpu: Gpu, layer: Block, group: Group) -> tuple[float, float]:
    """Seconds that a layer's scan over its states takes longer than its products and bytes: forward, backward."""
    slower = 1 / gpu.cluster.scan_efficiency - 1
    scan = Block(tuple([part for part in layer.parts if part.name in SCANNED]))
    return slower * gpu.seconds(scan.forward, group), slower * gpu.seconds(scan.backward, group)
