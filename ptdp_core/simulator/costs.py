"""The times of a training configuration on a cluster: of its layers and stages, and of pipeline messages.

All times in seconds. A stage is one model chunk; stage 0 also embeds, the last stage also computes logits and loss.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache
from math import fsum
from operator import attrgetter

from ptdp_core.config import LayerKind, ParallelConfig, TrainingConfig, kept
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import LayerRun, ends, layer_of
from ptdp_core.layers.parts import Block, Collective, Gemm, Work
from ptdp_core.layers.techniques import RECIPES, RECOMPUTATION_BACKWARD, RECOMPUTATION_FORWARD, adapted, modules_of
from ptdp_core.layout import Boundary, recomputation_gathers, stage_kinds, table_elements
from ptdp_core.schedules import definition
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.kernels import FP16_BYTES, Gpu, narrow_kernels, slowest_of
from ptdp_core.simulator.memory import FP32_GRADIENT_BYTES, LayerBytes, layer_bytes, moved_bytes
from ptdp_core.simulator.network import Group, leaves_node
from ptdp_core.simulator.software import Software
from ptdp_core.simulator.stage_times import Stages, StageTimes, hidden_in_pair
from ptdp_core.simulator.vocabulary import blocks_of
from ptdp_core.simulator.waits import context_waits, expert_exchange, expert_launches, routing, scan_waits

# What does not matter to the times of passes: the fields that only the schedule and the gradients' reduction know.
NOT_IN_PASSES = frozenset(
    ("d", "B", "schedule", "data_parallel", "sharded_optimizer", "reduce_every", "zero3_shards", "optimizer_states")
)
# Nor do these to the times of a layer, of the embedding and of the logits.
NOT_IN_PARTS = NOT_IN_PASSES | {"p", "v", "pipeline_layout"}
# What only layers with experts know.
OF_EXPERTS = frozenset(("e", "etp", "capacity_factor", "expert_imbalance"))
# The share of the bytes of a sum inside a product that other tiles' products do not hide: the median of 144 products on
# a B200, with an fp32 sum and without (MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json).
EXPOSED_ACCUMULATION = 0.56

# The times of a stage that are those of its layers.
OF_LAYERS = (
    *("layers_forward", "recompute", "layers_backward", "weight_gradient"),
    *("exchange", "recomputed_exchange", "moved"),
)


def _gemms(work: Work) -> tuple[Gemm, ...]:
    """The products of a work, whatever their elements."""
    return (*work.gemms, *(gemm for _, gemm in work.narrow_gemms))


def _of_everything(config: TrainingConfig) -> tuple[object, ...]:
    """The model, whether gradients are summed over microbatches, and who shares the vocabulary, by which method."""
    parallel = config.parallel
    return config.model, parallel.m == 1, parallel.vocabulary and (parallel.vocabulary, parallel.p)


def fields_but(names: Iterable[str]) -> Callable[[TrainingConfig], tuple[object, ...]]:
    """What the times of a configuration depend on: `_of_everything`, and all fields of the parallelism but some."""
    others = attrgetter(*[item.name for item in fields(ParallelConfig) if item.name not in names])
    return lambda config: (*_of_everything(config), *others(config.parallel))


of_passes, of_parts, of_parts_without_experts = map(
    fields_but, (NOT_IN_PASSES, NOT_IN_PARTS, NOT_IN_PARTS | OF_EXPERTS)
)


class CostModel(Gpu):
    """The times of any configuration on one cluster, by its kernel and network models; `cost_model` gives a job's.

    The training program is that of the cluster file unless `software` is another.
    """

    def _hidden(self, config: TrainingConfig, layer: Block, group: Group) -> tuple[float, float]:
        """Seconds that a layer's forward and backward pass save by collectives beside the products of linears.

        With `overlapped_all_reduce` the all-reduce of the input's gradient of each column-parallel linear
        (query-key-value, h to 4h) overlaps with the GEMM for the weight's gradient, for as long as the shorter of both
        lasts. With sequence parallelism the reduce-scatter does, and the all-gather of the input overlaps with the GEMM
        for the input's gradient.

        With `overlapped_tensor_parallel` a product and a collective go in t pieces each, and the shorter hides but for
        one piece, and for what the collective takes of the multiprocessors: forward that of each linear that begins
        with f or ends with g, backward the gather of the gradient of what ends with g, beside all of the above, or all
        of them without that.
        """
        software, parallel = self.software, config.parallel
        t, cut = parallel.t, parallel.sequence_parallel
        beside, in_pieces = software.overlapped_all_reduce, software.overlapped_tensor_parallel and cut
        if t == 1 or not (beside or in_pieces):
            return 0.0, 0.0
        size = self.cluster.element_bytes * config.local_model.seq * parallel.b * config.model.hidden
        recipe = RECIPES.get(parallel.fp8_recipe)
        gemm = (narrow_kernels(self.cluster, recipe.elements) if recipe else self.kernels).gemm
        collective = self.network.one_way(group, size) if cut else self.network.all_reduce(group, size)

        def shorter(products: Iterable[Gemm]) -> float:
            return fsum(min(collective, gemm(*product)) for product in products)

        forward = backward = 0.0
        if beside:
            column = [part.weights for part in layer.parts if part.is_column_parallel]
            weights = [product for work in column for product in _gemms(work)]
            inputs = [(tokens, n_in, n_out, 1) for n_out, n_in, tokens, _ in weights] if cut else []
            backward = shorter([*weights, *inputs])
        if in_pieces:
            share = (t - 1) / t * (1 - self.taken)
            joined = [part for part in layer.parts if part.f or part.g]
            back = [part for part in joined if part.g or not beside]
            forward = share * shorter(product for part in joined for product in _gemms(part.forward)[:1])
            backward += share * shorter(product for part in back for product in _gemms(part.backward)[:1])
        return forward, backward

    @kept(lambda self, config: (self, *of_passes(config), self._paired(config)))
    def stages(self, config: TrainingConfig) -> Stages:
        """The times of the p*v stages, in model order."""
        layers = [self._layer(config, kind) for kind in config.model.layer_kinds]
        embedding, logits = self._ends(config)
        kinds = stage_kinds(config)
        by_kind = {counts: self._stage(config, layers, counts) for counts in set(kinds)}
        if share := self._paired(config):
            by_kind = {counts: self._overlapped(stage, share) for counts, stage in by_kind.items()}
        stages = [by_kind[kind] for kind in kinds]
        for stage, end in ((0, embedding), (-1, logits)):
            before = stages[stage]
            stages[stage] = before._replace(
                extra_forward=before.extra_forward + end.extra_forward,
                extra_backward=before.extra_backward + end.extra_backward,
                weight_gradient=before.weight_gradient + end.weight_gradient,
            )
        return Stages(stages)

    def _stage(self, config: TrainingConfig, layers: Sequence[StageTimes], counts: tuple[int, ...]) -> StageTimes:
        """The times of a stage with so many layers of each kind."""
        held = [(count, layer) for count, layer in zip(counts, layers, strict=True) if count]
        gathers = recomputation_gathers(config, sum(counts))
        sums = {name: sum([count * getattr(layer, name) for count, layer in held]) for name in OF_LAYERS}
        sums["recompute"] += fsum([self.gather(config, call) for call in gathers])
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

    def _overlapped(self, stage: StageTimes, share: float) -> StageTimes:
        """A stage's times less what hides of its exchange under another microbatch's passes, for a `share` of passes.

        What recomputation repeats of it is waited for: it runs before the backward pass that could hide it.
        """
        alone = stage._replace(fetch=0.0, recompute=0.0, recomputed_exchange=0.0)
        taken = self.taken if self.software.exchange_first else max(self.taken, 1 - self.cluster.exchange_hidden)
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

    @kept(lambda self, config: (self, *of_parts(config)))
    def layer_bytes(self, config: TrainingConfig) -> LayerBytes:
        """The bytes of a layer."""
        return layer_bytes(config)

    @kept(lambda self, config, kind: (self, kind, *(of_parts if kind.experts else of_parts_without_experts)(config)))
    def _layer(self, config: TrainingConfig, kind: LayerKind) -> StageTimes:
        """The times of a stage of one layer, without what is restored for its recomputation."""
        parallel, layer = config.parallel, layer_of(config, kind)
        group = self.group(parallel, "tp")
        in_forward, hidden = self._hidden(config, layer, group)
        matrices, tensors = [item for item in layer.parameters if item.is_matrix], len(layer.parameters)
        held = sum([item.held(parallel.t, parallel.expert_parts) for item in matrices])
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
        scan = scan_waits(self, layer, group) if kind.mixer == "mamba" else (0.0, 0.0)
        waits = context_waits(self, config, kind) if parallel.c > 1 else (0.0, 0.0, 0.0)
        forward, backward = forward + waits[0] + scan[0], backward + waits[1] + scan[1]
        recompute += waits[2] + (scan[0] if parallel.recompute == "full" else 0.0)
        moved = moved_bytes(parallel, layer, modules) if parallel.offload else 0
        exchange = repeated = 0.0
        if kind.experts:
            exchange = expert_exchange(self, config)
            launches, backward_launches = expert_launches(self, config)
            forward_launches = launches + routing(self, config)
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

    @kept(lambda self, config: (self, LayerRun.of(config.parallel, experts=False), *_of_everything(config)))
    def _ends(self, config: TrainingConfig) -> tuple[StageTimes, ...]:
        """The times that the embedding adds to the first stage, and logits and loss to the last one.

        The embedding has no GEMM and no input gradient to hurry for; what is put off is the accumulation.
        """
        if config.parallel.vocabulary:
            return tuple(self._shared_ends(config))
        group, table = self.group(config.parallel, "tp"), table_elements(config)
        run, times = LayerRun.of(config.parallel, experts=False), []
        for end in ends(config.local_model, run, self.software.fused_cross_entropy):
            own = adapted(end, config.parallel.lora_rank) if config.parallel.lora_rank else end
            works = own.forward, *(self._accumulated(config, work, table, 1) for work in (own.backward, own.weights))
            times.append(StageTimes(0.0, 0.0, 0.0, 0.0, *[self.seconds(work, group) for work in works]))
        return tuple(times)

    def _shared_ends(self, config: TrainingConfig) -> Iterator[StageTimes]:
        """The times that positions add to the first stage, and the final norm to the last, of a shared vocabulary."""
        group = self.group(config.parallel, "tp")
        parts = blocks_of(config, self.software.fused_cross_entropy)
        for end in (parts.first, parts.last):
            yield StageTimes(0.0, 0.0, 0.0, 0.0, self.seconds(end.forward, group), self.seconds(end.backward, group))

    @kept(lambda self, config: (self, config.parallel.n, config.parallel.placement))
    def _leaving(self, config: TrainingConfig) -> list[bool]:
        """For each boundary between two stages, whether its messages leave the node."""
        ranks, pairs = config.parallel.n // config.parallel.p, config.parallel.placement.boundaries
        leaving = {pair: leaves_node(ranks, *pair, self.cluster.gpus_per_node) for pair in set(pairs)}
        return [leaving[pair] for pair in pairs]

    def messages(self, config: TrainingConfig) -> tuple[list[float], list[float], float]:
        """Seconds over each boundary of a tensor on the wire, and while two go the same way; and to put one together.

        A GPU sends bsh elements, or bsh/t with scatter/gather (Section 4.1) and with sequence parallelism.
        """
        boundary, leaving = Boundary.of(config), self._leaving(config)
        size = self.cluster.element_bytes * boundary.message_elements
        wire = [{away: self.network.message(size, away, k) for away in set(leaving)} for k in (1, 2)]
        alone, shared = ([times[away] for away in leaving] for times in wire)
        return alone, shared, self.gather(config, boundary.gather)

    def gather(self, config: TrainingConfig, gather: Collective | None) -> float:
        """Seconds to put a tensor together of which tensor ranks have parts: an all-gather, if any, and a copy."""
        if gather is None:
            return 0.0
        size = self.cluster.element_bytes * gather.elements
        group = self.group(config.parallel, "tp")
        return self.network.one_way(group, size, 2) + self.kernels.memory_bound(2 * size, 1)


def cost_model(cluster: Cluster, gpus: int, software: Software | None = None) -> CostModel:
    """The times of a job of so many GPUs, of which all wait for the slowest.

    Jobs with an equally slow GPU share one object, and what it has computed.
    """
    return _of_slowest(slowest_of(cluster, gpus), software)


_of_slowest = lru_cache(maxsize=64)(CostModel)
