"""The times of a training configuration on a cluster: of stages, pipeline messages, and what is done once an iteration.

All times in seconds. A stage is one model chunk; stage 0 also embeds, the last stage also computes logits and loss.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from math import fsum
from operator import attrgetter
from typing import NamedTuple, TypeVar

from ptdp_core.config import LayerKind, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import LayerRun, ends, layer_of
from ptdp_core.layers.experts import places
from ptdp_core.layers.parts import Block, Collective, Gemm, Work
from ptdp_core.layers.techniques import RECIPES, RECOMPUTATION_BACKWARD, RECOMPUTATION_FORWARD, adapted, modules_of
from ptdp_core.layout import (
    Boundary,
    elements_held,
    layer_passes,
    layers_by_kind,
    recomputation_gathers,
    recomputed_passes,
    stage_layers,
    table_elements,
)
from ptdp_core.schedules import definition
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.executor import PICOSECONDS
from ptdp_core.simulator.kernels import FP16_BYTES, KernelModel
from ptdp_core.simulator.memory import (
    FP32_GRADIENT_BYTES,
    LayerBytes,
    layer_bytes,
    moved_bytes,
    state_bytes,
    updated,
)
from ptdp_core.simulator.network import Group, NetworkModel, data_group, leaves_node, tensor_group
from ptdp_core.simulator.optimizers import OPTIMIZERS, orthogonalisation
from ptdp_core.simulator.software import Software
from ptdp_core.simulator.vocabulary import blocks_of

# What does not matter to the times of passes: the fields that only the schedule and the gradients' reduction know.
NOT_IN_PASSES = frozenset(
    ("d", "B", "schedule", "data_parallel", "sharded_optimizer", "reduce_every", "zero3_shards", "optimizer_states")
)
# Nor do these to the times of a layer, of the embedding and of the logits.
NOT_IN_PARTS = NOT_IN_PASSES | {"p", "v", "pipeline_layout"}
# What only layers with experts know.
OF_EXPERTS = frozenset(("e", "etp", "capacity_factor", "expert_imbalance"))
# The bytes moved per parameter to flatten gradients into the all-reduce's buffer and back.
GRADIENT_COPY_BYTES = 12
# The share of the bytes of a sum inside a product that other tiles' products do not hide: the median of 144 products on
# a B200, with an fp32 sum and without (MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json).
EXPOSED_ACCUMULATION = 0.56

# The times of a stage that are those of its layers.
OF_LAYERS = (
    *("layers_forward", "recompute", "layers_backward", "weight_gradient"),
    *("exchange", "recomputed_exchange", "moved"),
)

# Seconds of a multiprocessor that the choice of a token's experts takes for each score as PyTorch's operators, softmax,
# top-k and sum, beyond one kernel: 54 ps on the 132 of an H100, with 128 to 512 experts (FlashML-org/FreeToken, pull
# request 319).
UNFUSED_CHOICE = 54e-12 * 132

# The parts of a state-space layer that kernels of their own compute, which the cluster's `scan_efficiency` is of.
SCANNED = ("mamba.convolution", "mamba.scan")

# Parameters of a bucket of gradients or weights, at least and for each replica (Megatron-Core, ddp_config.bucket_size).
LEAST_BUCKET, BUCKET_FOR_EACH_REPLICA = 40e6, 1e6

T = TypeVar("T")


class StageTimes(NamedTuple):
    """Seconds of one microbatch's passes through one stage: fetching it, its layers, and embedding or logits if any.

    `weight_gradient` is the part of the backward pass that a split backward pass does later: the GEMMs for the weights'
    gradients, and the accumulation of these. `exchange` is the part of `layers_forward`, and of `layers_backward`, in
    which tokens go to their experts and back; `recomputed_exchange` that of `recompute`. `overlapped_exchange` is what
    another microbatch hides of both passes' exchange, and they do not have.
    `sharding_forward` and `sharding_backward` are what ZeRO-3 adds, which gathers weights and reduces gradients.
    `moved` are the bytes that wait in the host's memory between the passes.
    """

    fetch: float
    layers_forward: float
    recompute: float
    layers_backward: float
    extra_forward: float = 0.0
    extra_backward: float = 0.0
    weight_gradient: float = 0.0
    exchange: float = 0.0
    recomputed_exchange: float = 0.0
    overlapped_exchange: float = 0.0
    sharding_forward: float = 0.0
    sharding_backward: float = 0.0
    moved: float = 0.0

    @property
    def forward(self) -> float:
        """Seconds of the forward pass."""
        return self.fetch + self.layers_forward + self.extra_forward + self.sharding_forward

    @property
    def backward(self) -> float:
        """Seconds of the backward pass, with the recomputed forward pass before it."""
        return self.recompute + self.layers_backward + self.extra_backward + self.sharding_backward

    @property
    def input_gradient(self) -> float:
        """Seconds of a split backward pass without the weights' gradients (I), recomputation included."""
        return self.backward - self.weight_gradient


def hidden_in_pair(forward: StageTimes, backward: StageTimes, taken: float = 0.0) -> tuple[float, float]:
    """Seconds of the all-to-alls of an F, and of those of a B, that a fused pair of the two hides.

    The passes take turns (DeepSeek-V3, arXiv:2412.19437, Section 3.2.1): while one exchanges, the other computes up to
    its own next exchange. So each hides as much as the other computes between as many exchanges as both have, x seconds
    of them: min(x, C x/X), where the other computes C seconds in all and exchanges X. Where exchanging has the share
    `taken` of the multiprocessors, x seconds of it cost the other x times that share, and hide so much less.
    """
    exchanges = forward.exchange, backward.exchange + backward.recomputed_exchange
    together = min(exchanges)
    if not together:
        return 0.0, 0.0
    of_forward, of_backward = (
        min(together * (1 - taken), (whole - own) * together / own)
        for whole, own in ((backward.backward, exchanges[1]), (forward.forward, exchanges[0]))
    )
    return of_forward, of_backward


@lru_cache(maxsize=64)
def narrow_kernels(cluster: Cluster, elements: str) -> KernelModel:
    """The times of products of 'fp8' or 'fp4' on a cluster's GPU; one object for each.

    Raises ConfigurationError if its file gives none.
    """
    peak, plateau, size, example = {
        "fp8": (cluster.fp8_peak_flops, cluster.fp8_gemm_plateau, 1.0, "h100"),
        "fp4": (cluster.fp4_peak_flops, cluster.fp4_gemm_plateau, 1 / 2, "b200"),
    }[elements]
    if not peak:
        raise ConfigurationError(
            f"fp8_recipe on {cluster.name}, whose file has no {elements}_peak_flops; needs a GPU with "
            f"{elements.upper()}; try fp8_recipe='none', or the cluster {example}"
        )
    return KernelModel(replace(cluster, peak_flops=peak, gemm_plateau=plateau), operand_bytes=size)


def _gemms(work: Work) -> tuple[Gemm, ...]:
    """The products of a work, whatever their elements."""
    return (*work.gemms, *(gemm for _, gemm in work.narrow_gemms))


class Stages(tuple[StageTimes, ...]):
    """The times of the p*v stages, in model order.

    Most stages are one object, so that what is computed of a stage is computed a few times only.
    """

    @cached_property
    def alike(self) -> tuple[list[StageTimes], list[int]]:
        """The stages that are different objects, and by stage its place among them."""
        different = list({id(stage): stage for stage in self}.values())
        places = {id(stage): place for place, stage in enumerate(different)}
        return different, [places[id(stage)] for stage in self]

    def each(self, what: Callable[[StageTimes], T]) -> list[T]:
        """`what` of each stage, in model order."""
        different, numbers = self.alike
        values = list(map(what, different))
        return [values[number] for number in numbers]

    @cached_property
    def seconds(self) -> tuple[list[float], list[float]]:
        """Seconds of each stage's forward pass, and of its backward pass."""
        return self.each(lambda stage: stage.forward), self.each(lambda stage: stage.backward)

    @cached_property
    def seconds_before(self) -> tuple[list[float], list[float]]:
        """For each stage, seconds of the forward passes of all stages before it, and of their backward passes."""
        forward, backward = (list(accumulate(times, initial=0.0)) for times in self.seconds)
        return forward, backward

    @cached_property
    def picoseconds(self) -> tuple[list[int], list[int], list[int]]:
        """Of each stage's forward pass, backward pass, and the part of this that a split one does later."""

        def whole(of: Callable[[StageTimes], float]) -> list[int]:
            return self.each(lambda stage: round(of(stage) * PICOSECONDS))

        return whole(attrgetter("forward")), whole(attrgetter("backward")), whole(attrgetter("weight_gradient"))

    @cached_property
    def phases(self) -> dict[str, float]:
        """Seconds of a microbatch by phase (`estimate.PHASES`), over all stages."""
        parts: dict[str, Callable[[StageTimes], float]] = {
            "forward": lambda stage: stage.layers_forward,
            "recompute": lambda stage: stage.recompute,
            "backward": lambda stage: stage.layers_backward,
            "embedding_and_logits": lambda stage: stage.extra_forward + stage.extra_backward,
            "host": lambda stage: stage.fetch,
            "data_parallel": lambda stage: stage.sharding_forward + stage.sharding_backward,
        }
        return {phase: fsum(self.each(part)) for phase, part in parts.items()}


def fields_but(config: TrainingConfig, names: frozenset[str]) -> tuple[object, ...]:
    """The model, whether gradients are summed over microbatches, and all fields of the parallelism but some.

    And how many pipeline ranks share the vocabulary, if they do, and by which method."""
    parallel = config.parallel
    shared = parallel.vocabulary and (parallel.vocabulary, parallel.p)
    return config.model, parallel.m == 1, shared, _all_but(names)(parallel)


@lru_cache(maxsize=64)
def _all_but(names: frozenset[str]) -> Callable[[ParallelConfig], tuple[object, ...]]:
    return attrgetter(*[item.name for item in fields(ParallelConfig) if item.name not in names])


def _has_replicas(config: TrainingConfig) -> bool:
    """Whether other GPUs hold the same weights, or with whole experts on tensor ranks (etp = 1) the same experts."""
    return config.parallel.weight_replicas > 1 or config.parallel.expert_replicas > 1


class CostModel:
    """The times of any configuration on one cluster, by its kernel and network models.

    The training program is that of the cluster file unless `software` is another.
    """

    def __init__(self, cluster: Cluster, software: Software | None = None) -> None:
        self.cluster = cluster
        self.software = cluster.software if software is None else software
        earlier = next(
            (name for name in ("flash_attention_1", "flash_attention_2") if getattr(self.software, name)), ""
        )
        self.kernels = KernelModel(cluster, attention_share=getattr(cluster, earlier) if earlier else 1.0)
        self.network = NetworkModel(cluster)
        self._stages: dict[tuple[object, ...], Stages] = {}
        self._layers: dict[tuple[object, ...], StageTimes] = {}
        self._ends: dict[tuple[object, ...], tuple[StageTimes, ...]] = {}
        self._layer_bytes: dict[tuple[object, ...], LayerBytes] = {}
        self._boundaries: dict[tuple[object, ...], list[bool]] = {}
        self.least_flushes: dict[tuple[object, ...], float] = {}  # see `bounds.least_time`

    def seconds(self, work: Work, group: Group, hidden: float = 0.0) -> float:
        """Seconds of work on a GPU of a tensor-parallel group, less the `hidden` seconds of overlapped collectives.

        It takes at least as long as the host needs to issue all of it.
        """
        times = {gemm: self.kernels.gemm(*gemm) for gemm in set(work.gemms)}  # those of experts are alike
        device = fsum(map(times.__getitem__, work.gemms))
        device += fsum(self.kernels.attention(*each) for each in work.attention)
        if work.narrow_gemms:
            different = set(work.narrow_gemms)
            kernels = {elements: narrow_kernels(self.cluster, elements) for elements in dict(different)}
            narrow = {each: kernels[each[0]].gemm(*each[1]) for each in different}
            device += fsum(map(narrow.__getitem__, work.narrow_gemms))
        # The bytes that memory-bound kernels move are counted in fp16, except those that are fp32 in any precision.
        in_precision = work.traffic_bytes - work.wide_bytes
        traffic = work.traffic_bytes + (self.cluster.element_bytes / FP16_BYTES - 1) * in_precision
        device += self.kernels.memory_bound(traffic, work.kernels)
        device += self.communication(work, group) - hidden
        if self.software.cuda_graphs:
            return device
        host = work.calls * self.cluster.host_per_call
        return device + host if self.software.blocking_launches else max(device, host)

    def communication(self, work: Work, group: Group) -> float:
        """Seconds of the collectives of work on a GPU of a tensor-parallel group."""
        width = self.cluster.element_bytes / FP16_BYTES
        return fsum(self.network.all_reduce(group, width * size) for size in work.all_reduce_bytes) + fsum(
            self.network.one_way(group, width * size) for size in work.one_way_bytes
        )

    def _hidden(self, config: TrainingConfig, layer: Block, group: Group) -> float:
        """Seconds that a layer's backward pass saves by overlapping collectives of column-parallel linears with GEMMs.

        The all-reduce of the input's gradient of each (query-key-value, h to 4h) overlaps with the GEMM for the
        weight's gradient, for as long as the shorter of both lasts. With sequence parallelism the reduce-scatter does,
        and the all-gather of the input overlaps with the GEMM for the input's gradient.
        """
        if not self.software.overlapped_all_reduce or config.parallel.t == 1:
            return 0.0
        size = self.cluster.element_bytes * config.local_model.seq * config.parallel.b * config.model.hidden
        weights = [gemm for part in layer.parts if part.is_column_parallel for gemm in _gemms(part.weights)]
        kernels = self._linear_kernels(config)
        if not config.parallel.sequence_parallel:
            return fsum(min(kernels.gemm(*gemm), self.network.all_reduce(group, size)) for gemm in weights)
        inputs = ((tokens, n_in, n_out, 1) for n_out, n_in, tokens, _ in weights)
        one_way = self.network.one_way(group, size)
        return fsum(min(kernels.gemm(*gemm), one_way) for gemm in (*weights, *inputs))

    def _in_pieces(self, config: TrainingConfig, layer: Block, group: Group) -> tuple[float, float]:
        """Seconds that `overlapped_tensor_parallel` saves of a layer's forward and backward pass.

        Of a product and a collective in t pieces each, the shorter hides but for one piece, and for what the collective
        takes of the multiprocessors: forward that of each linear that begins with f or ends with g, backward the gather
        of the gradient of what ends with g, as `_hidden` has the others, or all of them without that.
        """
        t = config.parallel.t
        if not self.software.overlapped_tensor_parallel or t == 1 or not config.parallel.sequence_parallel:
            return 0.0, 0.0
        size = self.cluster.element_bytes * config.local_model.seq * config.parallel.b * config.model.hidden
        kernels, one_way = self._linear_kernels(config), self.network.one_way(group, size)
        share = (t - 1) / t * (1 - self._taken)

        def saved(works: Iterable[Work]) -> float:
            return share * fsum(min(one_way, kernels.gemm(*gemm)) for work in works for gemm in _gemms(work)[:1])

        cut = [part for part in layer.parts if part.f or part.g]
        back = [part.backward for part in cut if part.g or not self.software.overlapped_all_reduce]
        return saved(part.forward for part in cut), saved(back)

    def _linear_kernels(self, config: TrainingConfig) -> KernelModel:
        """The times of the products of linears, which may be of narrower elements."""
        recipe = RECIPES.get(config.parallel.fp8_recipe)
        return narrow_kernels(self.cluster, recipe.elements) if recipe else self.kernels

    def stages(self, config: TrainingConfig) -> Stages:
        """The times of the p*v stages, in model order; cached for configurations with the same passes."""
        passes = (*fields_but(config, NOT_IN_PASSES), self._paired(config))
        if passes not in self._stages:
            self._stages[passes] = Stages(self._stage_times(config))
        return self._stages[passes]

    def _stage_times(self, config: TrainingConfig) -> list[StageTimes]:
        model, parallel = config.model, config.parallel
        layers = [self._layer(config, kind) for kind in model.layer_kinds]
        embedding, logits = self._both_ends(config)
        held = stage_layers(model.all_layers, parallel.p * parallel.v, parallel.pipeline_layout)
        kinds = layers_by_kind(held, model.kind_of_layers)
        by_kind = {counts: self._overlapped(config, self._stage(config, layers, counts)) for counts in set(kinds)}
        stages = [by_kind[kind] for kind in kinds]
        for stage, end in ((0, embedding), (-1, logits)):
            before = stages[stage]
            stages[stage] = before._replace(
                extra_forward=before.extra_forward + end.extra_forward,
                extra_backward=before.extra_backward + end.extra_backward,
                weight_gradient=before.weight_gradient + end.weight_gradient,
            )
        return stages

    def _stage(self, config: TrainingConfig, layers: Sequence[StageTimes], counts: tuple[int, ...]) -> StageTimes:
        """The times of a stage with so many layers of each kind."""
        held = [(count, layer) for count, layer in zip(counts, layers, strict=True) if count]
        gathers = recomputation_gathers(config, sum(counts))
        sums = {name: sum([count * getattr(layer, name) for count, layer in held]) for name in OF_LAYERS}
        sums["recompute"] += fsum([self._gathered(config, call) for call in gathers])
        stage = StageTimes(layers[0].fetch, **sums)
        return self._with_copies(config, stage, sum(counts)) if stage.moved else stage

    def host_bandwidth(self, config: TrainingConfig) -> float:
        """Bytes a second to the host's memory, and from it. Raises ConfigurationError where the cluster has no link."""
        if not self.cluster.host_bandwidth:
            raise ConfigurationError(
                f"offload={config.parallel.offload!r} on {self.cluster.name}, whose file has no host_bandwidth; needs "
                "a link to the host's memory; try offload='', or the cluster h100"
            )
        return self.cluster.host_bandwidth

    def _with_copies(self, config: TrainingConfig, stage: StageTimes, layers: int) -> StageTimes:
        """The times of a stage whose layers are offloaded.

        Copies out hide under the stage's forward pass, copies back under its backward pass, as one layer is copied
        while others compute; a pass waits for what takes longer.
        """
        share = min(config.parallel.offload_layers or layers, layers) / layers
        copies = share * stage.moved / self.host_bandwidth(config)
        return stage._replace(
            layers_forward=max(stage.layers_forward, copies),
            layers_backward=max(stage.layers_backward, copies - stage.recompute),
        )

    def _paired(self, config: TrainingConfig) -> float:
        """The share of passes of which another microbatch's exchange hides: those after the warm-up, by 1F1B's count.

        As in Megatron-Core, a forward pass runs beside the backward pass of the microbatch before it. A pipeline rank
        begins with (p-1)/2 forward passes on average and one more, with v > 1 chunks p-1 + (v-1)p and one more. 0
        without `overlapped_exchange`; fused pairs of a schedule are the schedule's.
        """
        parallel = config.parallel
        if not self.software.overlapped_exchange or parallel.e == 1 or definition(parallel.schedule).fuses:
            return 0.0
        p, v = parallel.p, parallel.v
        first = 1 + ((p - 1) / 2 if v == 1 else p - 1 + (v - 1) * p)
        return max(0.0, 1 - first / (parallel.m * v))

    def _overlapped(self, config: TrainingConfig, stage: StageTimes) -> StageTimes:
        """A stage's times less what hides of its exchange under the passes of another microbatch.

        What recomputation repeats of it is waited for: it runs before the backward pass that could hide it.
        """
        if not (share := self._paired(config)):
            return stage
        alone = stage._replace(fetch=0.0, recompute=0.0, recomputed_exchange=0.0)
        taken = self._taken if self.software.exchange_first else max(self._taken, 1 - self.cluster.exchange_hidden)
        of_forward, of_backward = (share * hidden for hidden in hidden_in_pair(alone, alone, taken))
        return stage._replace(
            layers_forward=stage.layers_forward - of_forward,
            layers_backward=stage.layers_backward - of_backward,
            overlapped_exchange=of_forward + of_backward,
        )

    def _accumulated(self, config: TrainingConfig, work: Work, elements: int, tensors: int) -> Work:
        """The work of a backward pass, and the addition of its weights' gradients to their sum, if there is one.

        Two reads and a write, or inside the products for the weights, which read and write a sum in place of a result:
        so much of what that adds takes time as `EXPOSED_ACCUMULATION` says.
        """
        if config.parallel.m == 1 or config.parallel.lora_rank:
            return work
        if not self.software.fused_accumulation:
            wide = 2 * FP32_GRADIENT_BYTES * elements if self.software.fp32_accumulation else 0
            narrow = FP16_BYTES * elements if wide else 3 * FP16_BYTES * elements
            return work + Work(traffic_bytes=wide + narrow, wide_bytes=wide, kernels=tensors)
        width = FP32_GRADIENT_BYTES if self.software.fp32_gradients else FP16_BYTES
        exposed = EXPOSED_ACCUMULATION * (2 * width - 2) * elements
        return work + Work(traffic_bytes=exposed, wide_bytes=exposed)

    def layer_bytes(self, config: TrainingConfig) -> LayerBytes:
        """The bytes of a layer; cached for configurations whose layers are alike."""
        parts = fields_but(config, NOT_IN_PARTS)
        if parts not in self._layer_bytes:
            self._layer_bytes[parts] = layer_bytes(config)
        return self._layer_bytes[parts]

    def _layer(self, config: TrainingConfig, kind: LayerKind) -> StageTimes:
        """`_layer_times`, cached for configurations whose layers of this kind are alike."""
        parts = kind, *fields_but(config, NOT_IN_PARTS if kind.experts else NOT_IN_PARTS | OF_EXPERTS)
        if parts not in self._layers:
            self._layers[parts] = self._layer_times(config, kind)
        return self._layers[parts]

    def _layer_times(self, config: TrainingConfig, kind: LayerKind) -> StageTimes:
        """The times of a stage of one layer, without what is restored for its recomputation."""
        parallel, layer = config.parallel, layer_of(config, kind)
        group = tensor_group(parallel.t, self.cluster.gpus_per_node)
        in_forward, in_backward = self._in_pieces(config, layer, group)
        hidden = self._hidden(config, layer, group) + in_backward
        matrices = [item for item in layer.parameters if item.is_matrix]
        held, tensors = elements_held(matrices, parallel.t, parallel.expert_parts), len(layer.parameters)
        into, out_of = layer.forward, self._accumulated(config, layer.backward, held, tensors)
        weights = self.seconds(self._accumulated(config, layer.weights, held, tensors), group)
        backward, recompute = self.seconds(out_of, group, hidden), 0.0
        if parallel.recompute == "full":
            recompute = self.seconds(into + RECOMPUTATION_BACKWARD, group, in_forward)
            into += RECOMPUTATION_FORWARD
        modules = config.recomputed_modules(kind)
        for name in modules:
            # In the midst of the layer's backward pass, whose work may hide the host's time for it.
            again = modules_of(layer, (name,)).forward
            out_of, into = out_of + again + RECOMPUTATION_BACKWARD, into + RECOMPUTATION_FORWARD
        if modules:
            recompute = self.seconds(out_of, group, hidden) - backward
        forward = self.seconds(into, group, in_forward)
        scan = self._scan_waits(layer, group)
        waits = self.context_waits(config, kind)
        forward, backward = forward + waits[0] + scan[0], backward + waits[1] + scan[1]
        recompute += waits[2] + (scan[0] if parallel.recompute == "full" else 0.0)
        moved = moved_bytes(parallel, layer, modules) if parallel.offload else 0
        exchange = repeated = 0.0
        if kind.experts:
            exchange = self.expert_exchange(config)
            launches, backward_launches = self.expert_launches(config)
            forward_launches = launches + self._routes(config)
            forward += exchange + forward_launches
            if parallel.recompute == "full" or "moe" in modules:
                repeated = exchange
                recompute += exchange + forward_launches
            elif "experts" in modules:
                recompute += launches
            backward += exchange + backward_launches
        return StageTimes(
            self.cluster.microbatch_host_time,
            forward,
            recompute,
            backward,
            weight_gradient=weights,
            exchange=exchange,
            recomputed_exchange=repeated,
            moved=moved * self.cluster.element_bytes / FP16_BYTES,
        )

    def expert_exchange(self, config: TrainingConfig) -> float:
        """Seconds of the all-to-alls of a layer's pass, dispatch and combine, on the busiest expert-parallel rank.

        With `deduplicated_dispatch` a token goes once to each rank and once to each node (so do DeepSeek's DeepEP and
        NVIDIA's HybridEP). What of it hides is `_overlapped`'s to say.
        """
        parallel, model = config.parallel, config.model
        if parallel.e == 1:
            return 0.0
        group = data_group(parallel.expert_tensor_ranks, parallel.e, self.cluster.gpus_per_node)
        size = self.cluster.element_bytes * LayerRun.of(parallel).load
        sizes = [size * call.elements for call in layer_passes(config, "ep").forward]
        if not self.software.deduplicated_dispatch:
            return fsum(self.network.all_to_all(group, size) for size in sizes)
        k, nodes = model.experts_per_token, group.nodes
        inside = places(model.experts, k, group.size) / k * (group.per_node - 1) / group.per_node
        across = places(model.experts, k, nodes) / k * (nodes - 1) / nodes
        return fsum(self.network.exchange(group, inside * size, across * size) for size in sizes)

    def _routes(self, config: TrainingConfig) -> float:
        """Seconds before tokens go: what a choice of experts takes that is no single kernel, and HybridEP's gather.

        With `deduplicated_dispatch` all ranks gather which experts each token has, a byte for each, and read that
        (deepseek-ai/DeepEP, branch hybrid-ep, `allgather_routing_map`).
        """
        parallel = config.parallel
        tokens = config.local_model.seq * parallel.b // (parallel.t // parallel.expert_tensor_ranks)
        scores = float(tokens * config.model.experts)
        chosen = UNFUSED_CHOICE * scores / self.cluster.multiprocessors if self.software.unfused_router else 0.0
        if parallel.e == 1 or not self.software.deduplicated_dispatch:
            return chosen
        group = data_group(parallel.expert_tensor_ranks, parallel.e, self.cluster.gpus_per_node)
        return (
            chosen
            + self.network.one_way(group, parallel.e * scores)
            + self.kernels.memory_bound(parallel.e * scores, 1)
        )

    def expert_launches(self, config: TrainingConfig) -> tuple[float, float]:
        """Seconds that a layer's forward and backward pass wait for the host to launch their local experts' kernels.

        Once it has read the numbers of tokens, the host launches each expert's products of both linears, and prepares
        the casts of their rows, for all experts at once.
        """
        local, recipe = config.model.experts // config.parallel.e, RECIPES.get(config.parallel.fp8_recipe)
        if self.software.cuda_graphs:
            return 0.0, 0.0
        products = self.cluster.expert_launch_time * local
        casts = self.cluster.expert_cast_time * recipe.kernels if recipe else 0.0
        return 2 * (products + casts), 2 * (2 * products + casts)

    def _scan_waits(self, layer: Block, group: Group) -> tuple[float, float]:
        """Seconds that a layer's scan over its states takes longer than its products and bytes: forward, backward."""
        if not (slower := 1 / self.cluster.scan_efficiency - 1):
            return 0.0, 0.0
        scan = Block(tuple([part for part in layer.parts if part.name in SCANNED]))
        return slower * self.seconds(scan.forward, group), slower * self.seconds(scan.backward, group)

    def context_waits(self, config: TrainingConfig, kind: LayerKind | None = None) -> tuple[float, float, float]:
        """Seconds that a layer waits for the exchange of context parallelism: forward, backward, where it is repeated.

        All-gathers, reduce-scatters and all-to-alls are waited for. Around a ring each GPU attends to one part while it
        passes another one on, and waits for as long as the messages take longer.
        """
        if config.parallel.c == 1:
            return 0.0, 0.0, 0.0
        layer, calls = layer_of(config, kind), layer_passes(config, "cp")
        return (
            self._context_wait(config, calls.forward, layer.forward),
            self._context_wait(config, calls.backward, layer.backward),
            self._context_wait(config, recomputed_passes(config, "cp"), layer.forward),
        )

    def _context_wait(self, config: TrainingConfig, calls: Sequence[Collective], attention: Work) -> float:
        c, exchange, cluster = config.parallel.c, config.parallel.context_exchange, self.cluster
        group = data_group(config.parallel.t, c, cluster.gpus_per_node)
        sizes = [cluster.element_bytes * call.elements for call in calls]
        if exchange != "ring":
            seconds = self.network.all_to_all if exchange == "all_to_all" else self.network.one_way
            return fsum(seconds(group, size) for size in sizes)
        attends = fsum(self.kernels.attention(*each) for each in attention.attention) / c
        step = self.network.message(sum(sizes) / c, group.nodes > 1, 1)
        return (c - 1) * max(0.0, step - attends)

    def _both_ends(self, config: TrainingConfig) -> tuple[StageTimes, ...]:
        """The times that the model's ends add to the first stage and to the last; cached."""
        parallel = config.parallel
        shared = parallel.vocabulary and (parallel.vocabulary, parallel.p)
        parts = config.local_model, LayerRun.of(parallel, experts=False), parallel.m == 1, shared
        if parts not in self._ends:
            self._ends[parts] = tuple((self._shared_end_times if shared else self._end_times)(config))
        return self._ends[parts]

    def _end_times(self, config: TrainingConfig) -> Iterator[StageTimes]:
        """The times that the embedding adds to the first stage, and logits and loss to the last one.

        The embedding has no GEMM and no input gradient to hurry for; what is put off is the accumulation.
        """
        group = tensor_group(config.parallel.t, self.cluster.gpus_per_node)
        table = table_elements(config)
        run = LayerRun.of(config.parallel, experts=False)
        for end in ends(config.local_model, run, self.software.fused_cross_entropy):
            own = adapted(end, config.parallel.lora_rank) if config.parallel.lora_rank else end
            works = own.forward, *(self._accumulated(config, work, table, 1) for work in (own.backward, own.weights))
            yield StageTimes(0.0, 0.0, 0.0, 0.0, *[self.seconds(work, group) for work in works])

    def _shared_end_times(self, config: TrainingConfig) -> Iterator[StageTimes]:
        """The times that positions add to the first stage, and the final norm to the last, of a shared vocabulary."""
        group = tensor_group(1, self.cluster.gpus_per_node)
        parts = blocks_of(config, self.software.fused_cross_entropy)
        for end in (parts.first, parts.last):
            yield StageTimes(0.0, 0.0, 0.0, 0.0, self.seconds(end.forward, group), self.seconds(end.backward, group))

    def boundaries_between_nodes(self, config: TrainingConfig) -> list[bool]:
        """For each boundary between two stages, whether its messages leave the node; cached."""
        parallel = config.parallel
        key = (parallel.n, parallel.p, parallel.v, definition(parallel.schedule).placement)
        if key not in self._boundaries:
            ranks, pairs = parallel.n // parallel.p, parallel.placement.boundaries
            leaving = {pair: leaves_node(ranks, *pair, self.cluster.gpus_per_node) for pair in set(pairs)}
            self._boundaries[key] = [leaving[pair] for pair in pairs]
        return self._boundaries[key]

    def message(self, config: TrainingConfig, between_nodes: bool, concurrent: int) -> float:
        """Seconds on the wire of one boundary tensor, while `concurrent` of them go the same way.

        A GPU sends bsh elements, or bsh/t with scatter/gather (Section 4.1) and with sequence parallelism.
        """
        size = self.cluster.element_bytes * Boundary.of(config).message_elements
        return self.network.message(size, between_nodes, concurrent)

    def gather(self, config: TrainingConfig) -> float:
        """Seconds to put a received boundary tensor together: an all-gather over the tensor group, and a copy."""
        gather = Boundary.of(config).gather
        return 0.0 if gather is None else self._gathered(config, gather)

    def _gathered(self, config: TrainingConfig, gather: Collective) -> float:
        size = self.cluster.element_bytes * gather.elements
        group = tensor_group(config.parallel.t, self.cluster.gpus_per_node)
        return self.network.one_way(group, size, 2) + self.kernels.memory_bound(2 * size, 1)

    def first_and_last(self, config: TrainingConfig, stages: Sequence[StageTimes], rank: int) -> tuple[float, float]:
        """Seconds of a rank's first forward passes, and of its last backward passes, one of each of its stages.

        Beside these, weights are gathered and gradients reduced: beside none where passes are split, as no layer's
        gradients are complete before the last W.
        """
        held = [stages[stage] for stage in config.parallel.placement.stages[rank]]
        splits = definition(config.parallel.schedule).splits
        return fsum([stage.forward for stage in held]), 0.0 if splits else fsum([stage.backward for stage in held])

    def _reduced(self, config: TrainingConfig, parameters: float, of_experts: float, element_bytes: int) -> float:
        """Seconds to all-reduce a GPU's gradients over its d*c replicas, and those of experts over theirs."""
        parallel, node = config.parallel, self.cluster.gpus_per_node
        group = data_group(parallel.t, parallel.weight_replicas, node)
        reduce = self.network.all_reduce(group, element_bytes * (parameters - of_experts), gradients=True)
        if of_experts:
            same = data_group(parallel.expert_parts, parallel.expert_replicas, node)
            reduce += self.network.all_reduce(same, element_bytes * of_experts, gradients=True)
        return reduce

    def data_parallel(
        self, config: TrainingConfig, parameters: float, last_backward: float, of_experts: float = 0.0
    ) -> float:
        """Exposed seconds of reducing a GPU's gradients over its d*c replicas before the optimizer step.

        Those `of_experts` among the parameters are reduced over the ranks that hold the same experts.

        'local' is exposed in full; 'torch' overlaps with the last microbatch's backward pass, whose time is given. A
        sharded optimizer reduce-scatters the gradients, which is the first half of a ring's all-reduce. 'zero2' does so
        after every `reduce_every` microbatches, and overlaps each with the backward passes of as many; of more than one
        nothing hides the last model chunk's.
        """
        parallel = config.parallel
        if parallel.data_parallel == "zero3":
            return self._reduced_over_shards(config, parameters, of_experts)
        if not _has_replicas(config):
            return 0.0
        reduce = self._reduced(config, parameters, of_experts, self.reduced_bytes(config))
        if parallel.sharded_optimizer:
            reduce /= 2
        copies = self.gradient_copies(config, parameters)
        if parallel.data_parallel == "local":
            return (self._beside(config, reduce, parameters, last_backward) if self._buckets else reduce) + copies
        times, every = parallel.reductions, parallel.reduce_every
        exposed = times * max(0.0, reduce - every * last_backward)
        if every > 1:
            exposed = max(exposed, reduce / parallel.v)
        slowed = self._taken * (times * reduce - exposed) if self._buckets else 0.0
        return exposed + slowed + copies

    def _reduced_over_shards(self, config: TrainingConfig, parameters: float, of_experts: float) -> float:
        """Seconds to all-reduce a GPU's shard of the gradients over the copies of the shards (HSDP)."""
        parallel, node = config.parallel, self.cluster.gpus_per_node
        seconds = 0.0
        for held, apart, (shards, copies) in (
            (parameters - of_experts, parallel.t, parallel.shards),
            (of_experts, parallel.expert_parts, parallel.expert_shards),
        ):
            group = data_group(apart * shards, copies, node)
            seconds += (
                self.network.all_reduce(group, self.reduced_bytes(config) * held / shards, gradients=True)
                if held
                else 0.0
            )
        return seconds

    @property
    def _buckets(self) -> bool:
        return self.software.overlapped_data_parallel

    @property
    def _taken(self) -> float:
        """The share of a GPU's multiprocessors that a collective has beside a computation."""
        return self.cluster.exchange_multiprocessors / self.cluster.multiprocessors

    def _beside(self, config: TrainingConfig, seconds: float, parameters: float, computation: float) -> float:
        """What a collective over a GPU's parameters adds to a computation beside it, bucket by bucket.

        Nothing hides the bucket that is ready last, or needed first; the others hide under the computation, which
        they slow down by their share of the multiprocessors.
        """
        bucket = max(LEAST_BUCKET, BUCKET_FOR_EACH_REPLICA * config.parallel.weight_replicas)
        alone = seconds * bucket / max(bucket, parameters)
        hidden = min(seconds - alone, computation)
        return seconds - hidden * (1 - self._taken)

    def gradient_copies(self, config: TrainingConfig, parameters: float) -> float:
        """Seconds to flatten a GPU's gradients into the all-reduce's buffer and back."""
        return self.kernels.streamed(GRADIENT_COPY_BYTES * parameters) if _has_replicas(config) else 0.0

    def embedding_reduction(self, config: TrainingConfig) -> float:
        """Seconds to sum a tied embedding's gradients over its two pipeline ranks."""
        parallel = config.parallel
        if not config.model.tied_embeddings or parallel.vocabulary:
            return 0.0
        group = Group(2, 2 if parallel.n <= self.cluster.gpus_per_node else 1)
        return self.network.all_reduce(group, self.reduced_bytes(config) * table_elements(config), gradients=True)

    def sequence_reduction(self, config: TrainingConfig, elements: float) -> float:
        """Seconds to sum the gradients of `elements` parameters that each GPU of a tensor-parallel group holds whole.

        Only with sequence parallelism do they differ from GPU to GPU (`layout.step_collectives`).
        """
        if config.parallel.sequence_shards == 1:
            return 0.0
        group = tensor_group(config.parallel.t, self.cluster.gpus_per_node)
        return self.network.all_reduce(group, self.reduced_bytes(config) * elements)

    def weight_gather(
        self, config: TrainingConfig, parameters: float, of_experts: float = 0.0, first_forward: float = 0.0
    ) -> float:
        """Seconds to gather the weights that other replicas updated, with a sharded optimizer: half an all-reduce.

        With `overlapped_data_parallel` only what the next iteration's first forward pass does not hide.
        """
        if not config.parallel.sharded_optimizer or not _has_replicas(config):
            return 0.0
        gather = self._reduced(config, parameters, of_experts, self.cluster.element_bytes) / 2
        return self._beside(config, gather, parameters, first_forward) if self._buckets else gather

    def optimizer(self, config: TrainingConfig, parameters: float, of_experts: float = 0.0) -> float:
        """Seconds of the optimizer's step over the parameters that a GPU updates (`memory.updated`).

        States that wait in the host's memory come and go meanwhile, or for longer.
        """
        own, chosen = updated(config, parameters, of_experts), config.parallel.optimizer_states
        sharded, width = config.parallel.data_parallel == "zero3", self.cluster.element_bytes
        kept = state_bytes(width, self.software, sharded, chosen)
        moved = self.cluster.optimizer_bytes
        if chosen != "adam":
            moved *= sum(kept) / sum(state_bytes(width, self.software, sharded))
        step = self.kernels.streamed(moved * own)
        if OPTIMIZERS[chosen].orthogonal:
            step += self._orthogonalised(config, parameters, own)
        return (
            max(step, kept[2] * own / self.host_bandwidth(config)) if "optimizer" in config.parallel.offload else step
        )

    def _orthogonalised(self, config: TrainingConfig, parameters: float, own: float) -> float:
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
                seconds += number * fsum(self.kernels.gemm(*gemm) for gemm in orthogonalisation(*parts))
                elements += number * parts[0] * parts[1]
        group = data_group(parallel.t, parallel.weight_replicas, self.cluster.gpus_per_node)
        gathered = self.network.one_way(group, FP16_BYTES * parameters) if own < parameters else 0.0
        return seconds * own / elements + gathered

    def reduced_bytes(self, config: TrainingConfig) -> int:
        """Bytes of a gradient that is reduced: the optimizer's, or else the program's.

        That is the cluster file's, unless its program sums in fp32 and this one does not.
        """
        narrower = self.cluster.software.fp32_gradients and not self.software.fp32_gradients
        usual = self.cluster.element_bytes if narrower else self.cluster.gradient_bytes
        return OPTIMIZERS[config.parallel.optimizer_states].gradient_bytes or usual
