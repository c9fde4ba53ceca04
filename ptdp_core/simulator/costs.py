"""Times of one training configuration on one cluster: stages, pipeline messages, and what happens once an iteration.

All times in seconds. A stage is one model chunk; stage 0 also embeds, the last stage also computes logits and loss.
"""

from dataclasses import dataclass, replace

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import operators
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.kernels import FP16_BYTES, KernelModel
from ptdp_core.simulator.network import Group, NetworkModel, crosses_nodes, data_group, tensor_group

# Bytes moved per parameter: the mixed-precision Adam step (unscale to fp32, check, clip, update, copy back), and
# flattening gradients into the all-reduce's buffer and back.
OPTIMIZER_BYTES = 60
GRADIENT_COPY_BYTES = 12
PARAMETER_TENSORS_PER_LAYER = 12


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one microbatch's passes through one stage: fetching it, the layers, and embedding or logits if any."""

    fetch: float
    layers_forward: float
    recompute: float
    layers_backward: float
    extra_forward: float = 0.0
    extra_backward: float = 0.0

    @property
    def forward(self) -> float:
        """The forward pass."""
        return self.fetch + self.layers_forward + self.extra_forward

    @property
    def backward(self) -> float:
        """The backward pass, with the recomputed forward pass before it."""
        return self.recompute + self.layers_backward + self.extra_backward


class CostModel:
    """Times on one cluster. Holds the cluster's kernel and network models and nothing about any configuration."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kernels = KernelModel(cluster)
        self.network = NetworkModel(cluster)

    def seconds(self, work: operators.Work, group: Group) -> float:
        """Time of some work on a GPU of a tensor-parallel group; the host's time to issue it is a lower bound."""
        device = sum(self.kernels.gemm(*gemm) for gemm in work.gemms)
        device += self.kernels.memory_bound(work.traffic_bytes, work.kernels)
        device += sum(self.network.all_reduce(group, size) for size in work.all_reduce_bytes)
        return max(device, work.launches * self.cluster.host_per_kernel)

    def stages(self, config: TrainingConfig) -> list[StageTimes]:
        """The p*v stages in model order."""
        model, parallel = config.model, config.parallel
        b, t = parallel.b, parallel.t
        group = tensor_group(t, self.cluster.gpus_per_node)
        layers = config.layers_per_chunk
        embedding_parameters = config.padded_vocab // t * model.hidden

        def accumulated(backward: operators.Work, parameters: float, tensors: int) -> operators.Work:
            if parallel.m == 1:
                return backward
            return backward + operators.gradient_accumulation(parameters, tensors)

        layer_forward, layer_backward = operators.layer_forward(model, b, t), operators.layer_backward(model, b, t)
        if not parallel.fused:
            layer_forward += operators.unfused_forward(model, b, t)
            layer_backward += operators.unfused_backward(model, b, t)
        layer_backward = accumulated(layer_backward, 12 * model.hidden**2 / t, PARAMETER_TENSORS_PER_LAYER)
        forward, backward = self.seconds(layer_forward, group), self.seconds(layer_backward, group)
        recompute = forward if parallel.recompute == "full" else 0.0
        inner = StageTimes(self.cluster.microbatch_host_time, layers * forward, layers * recompute, layers * backward)
        stages = [inner] * (parallel.p * parallel.v)
        for stage, into, out_of in (
            (0, operators.embedding_forward, operators.embedding_backward),
            (-1, operators.logits_forward, operators.logits_backward),
        ):
            extra_backward = accumulated(out_of(model, b, t), embedding_parameters, 1)
            stages[stage] = replace(
                stages[stage],
                extra_forward=stages[stage].extra_forward + self.seconds(into(model, b, t), group),
                extra_backward=stages[stage].extra_backward + self.seconds(extra_backward, group),
            )
        return stages

    def message_bytes(self, config: TrainingConfig) -> float:
        """Bytes one GPU sends per boundary tensor: bsh, or bsh/t with scatter/gather, in fp16 (Section 4.1)."""
        model, parallel = config.model, config.parallel
        shards = parallel.t if parallel.scatter_gather else 1
        return FP16_BYTES * model.seq * parallel.b * model.hidden / shards

    def links_between_nodes(self, config: TrainingConfig) -> list[bool]:
        """For each pipeline rank, whether the link to the next one leaves the node."""
        parallel, per_node = config.parallel, self.cluster.gpus_per_node
        links = [crosses_nodes(rank, parallel.t, parallel.d, per_node) for rank in range(parallel.p - 1)]
        return [*links, parallel.n > per_node]

    def message(self, config: TrainingConfig, between_nodes: bool, concurrent: int) -> float:
        """Time on the wire of one boundary tensor, while `concurrent` go the same way."""
        return self.network.message(self.message_bytes(config), between_nodes, concurrent)

    def gather(self, config: TrainingConfig) -> float:
        """Time to put a received boundary tensor together: all-gather over the tensor group, and its copy."""
        model, parallel = config.model, config.parallel
        if not parallel.scatter_gather or parallel.t == 1:
            return 0.0
        size = FP16_BYTES * model.seq * parallel.b * model.hidden
        group = tensor_group(parallel.t, self.cluster.gpus_per_node)
        return self.network.all_gather(group, size) + self.kernels.memory_bound(2 * size, 1)

    def rank_parameters(self, config: TrainingConfig) -> list[float]:
        """Parameters of one GPU of each pipeline rank; the tied embedding counts on the first and on the last."""
        model, parallel = config.model, config.parallel
        layers = config.layers_per_chunk * parallel.v
        h, t = model.hidden, parallel.t
        transformer = layers * (12 * h**2 / t + 7 * h / t + 6 * h)
        ranks = [transformer] * parallel.p
        table = config.padded_vocab // t * h
        ranks[0] += table + model.seq * h
        ranks[-1] += (table if parallel.p > 1 else 0) + 2 * h
        return ranks

    def data_parallel(self, config: TrainingConfig, parameters: float, last_backward: float) -> float:
        """Exposed time to all-reduce a GPU's fp16 gradients over its d replicas.

        'local' is all exposed; 'torch' hides under the last microbatch's backward pass, whose time is given.
        """
        parallel = config.parallel
        if parallel.d == 1:
            return 0.0
        group = data_group(parallel.t, parallel.d, self.cluster.gpus_per_node)
        reduce = self.network.gradient_all_reduce(group, FP16_BYTES * parameters)
        copies = self.kernels.memory_bound(GRADIENT_COPY_BYTES * parameters, 2)
        if parallel.data_parallel == "local":
            return reduce + copies
        return max(0.0, reduce - last_backward) + copies

    def embedding_reduction(self, config: TrainingConfig) -> float:
        """Time to sum the tied embedding's gradients over the first and the last pipeline rank."""
        parallel = config.parallel
        group = Group(2, 2 if parallel.n <= self.cluster.gpus_per_node else 1)
        return self.network.gradient_all_reduce(
            group, FP16_BYTES * config.padded_vocab / parallel.t * config.model.hidden
        )

    def optimizer(self, parameters: float) -> float:
        """Time of the mixed-precision Adam step over a GPU's parameters."""
        return self.kernels.memory_bound(OPTIMIZER_BYTES * parameters, 1)
