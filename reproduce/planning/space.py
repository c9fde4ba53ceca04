"""The search space: all legal ways to train a model on exactly n GPUs with batch size B (Section 3).

A configuration is legal if

- n = p*t*c*d; t divides the heads, key/value heads and MLP, and d*b the batch
- c is 1, or with fused attention and long sequences a power of two (`context_sizes`)
- experts are shared in every way that leaves each GPU as many: by e, and inside each by all t or none (`expert_sizes`)
- its stages are those of `stage_splits`: even ones, and where it saves time fewer layers beside the output
- t spans at most two nodes, and tensor groups fill nodes evenly: t divides a node's GPUs or is a multiple of them
- its schedule exists for p, v and the microbatches: the paper's (1F1B for v = 1, interleaved for v > 1), or one of
  `SPLIT_SCHEDULES`
- it uses of the `TECHNIQUES` what has an effect: what is recomputed (`recomputations`), who holds the model states
  (`shardings`), sequence parallelism, FP8. Where fused attention may be used, it is

All other settings are those of the paper's runs: scatter/gather and fused operators are on; the gradient all-reduce
overlaps with the last backward pass if there is no pipeline (p = 1), else it follows the flush.

Configurations whose layers have the same work but for what is recomputed make a `Cell`. Those that besides differ in
schedule and sharding alone make a `Family`: their passes take the same time.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, product
from math import gcd
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.fields import choices
from ptdp_core.formulas import layer_forward_flops, logit_flops
from ptdp_core.layout import stage_layers
from ptdp_core.pipeline_layout import layout_of
from ptdp_core.schedules import default_schedule, exists, looped, placement_of

LARGEST_TENSOR_GROUP_NODES = 2
# Of the others each waits as long as one of these or the paper's, and holds as many activations (docs/schedules.md).
SPLIT_SCHEDULES = ("zb-h1", "zb-v", "v-half", "v-min")
# Sequences from this length on may be shared by context-parallel ranks, each of which has at least so many tokens.
LONG_SEQUENCE, LEAST_PART = 8192, 4096
# What a search may use beyond the paper's means, by name.
TECHNIQUES = {
    "sequence_parallel": "sequence parallelism",
    "sdpa": "fused attention",
    "modules": "recomputation of some modules (`recomputations`)",
    "split": f"schedules with split backward passes ({', '.join(SPLIT_SCHEDULES)})",
    "layouts": "stages of unlike lengths",
    "context": "context parallelism from 8,192 tokens on (c)",
    "experts": "expert parallelism (e, etp)",
    "zero1": "a sharded optimizer",
    "zero2": "gradients sharded, too",
    "zero3": "all states sharded, without a pipeline: FSDP, where the program has it with t, c and e",
    "hsdp": "the same inside of each node (hybrid sharding)",
}
# What it may use only if it is asked for, since training computes something else with it.
ON_REQUEST = {recipe: f"linears in FP8 or FP4, recipe {recipe}" for recipe in choices(ParallelConfig)["fp8_recipe"][1:]}
Techniques = Collection[str]
PAPERS_TECHNIQUES: Techniques = ()
# A layout is tried beside the even one if the rank with most work has less than this share of its work.
WORTHWHILE = 0.98


@dataclass(frozen=True)
class TrainingJob:
    """A task for the search: a model to be trained on n GPUs with global batch size B."""

    model: ModelConfig
    n: int
    B: int

    def __post_init__(self) -> None:
        for field, value in (("n", self.n), ("B", self.B)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{field}={value!r} is not a positive whole number; needs {field} >= 1; try {field}=8")


def divisors(k: int) -> list[int]:
    """All divisors of k, ascending."""
    low = [i for i in range(1, int(k**0.5) + 1) if k % i == 0]
    return low + [k // i for i in reversed(low) if i * i != k]


def tensor_sizes(job: TrainingJob, gpus_per_node: int) -> list[int]:
    """The legal t, ascending."""
    together = gcd(job.n, job.model.query_groups, job.model.mlp_width)
    return [
        t
        for t in range(1, LARGEST_TENSOR_GROUP_NODES * gpus_per_node + 1)
        if together % t == 0 and (gpus_per_node % t == 0 or t % gpus_per_node == 0)
    ]


class StageSplit(NamedTuple):
    """How the layers are cut into stages: v chunks on each rank, even ones unless there is a layout."""

    v: int
    pipeline_layout: str = ""


@lru_cache(maxsize=256)
def stage_splits(model: ModelConfig, p: int) -> tuple[StageSplit, ...]:
    """The stages that are legal with p pipeline ranks; none if there are too many of them.

    Even ones: p*v divides the layers, or the layers and both ends of the model, each of which then takes a layer's
    place; or v = 1. Beside each of these what `beside_the_output` gives, if it saves time.
    """
    layers = model.all_layers
    even = divisors(layers // p) if layers % p == 0 else [1] if p < layers else []
    if p > 1 and (layers + 2) % p == 0:
        even += [v for v in divisors((layers + 2) // p) if p * v > 2 and v not in even]
    written = [StageSplit(v, layout_of((0, *[1] * layers, 0)) if p * v > layers else "") for v in even]
    if p == 1 or p >= layers:
        return tuple(written)
    head = logit_flops(model, 1) / (3 * layer_forward_flops(model, 1))  # forward and backward
    for v in even:
        sizes = beside_the_output(layers, p, v, head)
        stages = [len(stage) for stage in stage_layers(layers, p * v)] if p * v <= layers else [0, *[1] * layers, 0]
        if most_layers(sizes, p, head) < WORTHWHILE * most_layers(stages, p, head):
            written.append(StageSplit(v, layout_of(sizes)))
    return tuple(written)


def beside_the_output(layers: int, p: int, v: int, head: float) -> list[int]:
    """The layers of each stage by which the looped placement's rank with most work has least.

    The output costs as much as `head` layers. The last rank has as many layers fewer as the others can take without
    having more; each rank's layers are spread over its v chunks, the earlier ones being the longer.
    """
    last = min(range(layers // p + 1), key=lambda k: (max(-(-(layers - k) // (p - 1)), k + head), -k))
    by_rank = [len(stage) for stage in stage_layers(layers - last, p - 1)] + [last]
    return [held // v + (chunk < held % v) for chunk in range(v) for held in by_rank]


def most_layers(sizes: Sequence[int], p: int, head: float) -> float:
    """The work of the rank with most, in layers, the output's `head` included, in the looped placement."""
    return max(sum(sizes[rank::p]) + (head if rank == p - 1 else 0) for rank in range(p))


def context_sizes(seq: int, ranks: int) -> list[int]:
    """The c that `ranks` GPUs with the same weights may have: 1, and the powers of two that leave long enough parts."""
    if seq < LONG_SEQUENCE:
        return [1]
    powers = (1 << k for k in range((seq // LEAST_PART).bit_length()))
    return [c for c in powers if c == 1 or (ranks % c == 0 and seq % (2 * c) == 0)]


def expert_sizes(model: ModelConfig, ranks: int, t: int, sequence_parallel: bool) -> list[dict[str, int]]:
    """The fields that say how `ranks` GPUs, d*c*t of one pipeline rank, may share experts; of a dense model none.

    With sequence parallelism tensor ranks may have whole experts of their own (etp = 1).
    """
    if not model.experts:
        return [{}]
    inside = [t, 1] if t > 1 and sequence_parallel else [t]
    return [
        {"e": e} if etp == t else {"e": e, "etp": etp}
        for etp in inside
        if model.expert_width % etp == 0 and model.shared_expert_ffn_hidden % t == 0
        for e in divisors(gcd(model.experts, ranks // etp))
    ]


def grids(job: TrainingJob, gpus_per_node: int) -> list[tuple[int, int, int, int]]:
    """The legal (p, t, c, d), whether or not d divides the batch; by t, then p, then c."""
    return [
        (p, t, c, job.n // (p * t * c))
        for t in tensor_sizes(job, gpus_per_node)
        for p in divisors(job.n // t)
        if job.n % t == 0
        if stage_splits(job.model, p)
        for c in context_sizes(job.model.seq, job.n // (p * t))
    ]


def data_parallel_kind(p: int) -> str:
    """How the paper's runs reduced gradients: overlapped if there is no pipeline, else after the flush."""
    return "torch" if p == 1 else "local"


class Sharding(NamedTuple):
    """Who reduces and who holds the model states: fields of `ParallelConfig`."""

    data_parallel: str
    sharded_optimizer: bool
    zero3_shards: int = 0


def shardings(p: int, ranks: int, inside: int, techniques: Techniques) -> tuple[Sharding, ...]:
    """The ways to hold the states of p stages on `ranks` GPUs with the same weights, `inside` of them on a node."""
    kind = data_parallel_kind(p)
    found = [Sharding(kind, False)]
    if ranks > 1:
        found += [Sharding(kind, True)] if "zero1" in techniques else []
        found += [Sharding("zero2", True)] if "zero2" in techniques else []
        if p == 1 and "zero3" in techniques:
            found.append(Sharding("zero3", False))
            if "hsdp" in techniques and 1 < inside < ranks and ranks % inside == 0:
                found.append(Sharding("zero3", False, inside))
    return tuple(found)


@dataclass(frozen=True)
class Family:
    """Legal configurations with the same passes: they differ in `schedules`, and in who holds the states.

    `shared` are the fields that they have in common. The states of ZeRO-3 are for the default schedule only.
    """

    model: ModelConfig
    shared: Mapping[str, Any]
    schedules: tuple[str, ...]
    sharding: tuple[Sharding, ...]

    def __len__(self) -> int:
        return len(self.schedules) * len(self.sharding)

    def member(self, schedule: str, sharding: Sharding) -> TrainingConfig:
        """The configuration with this schedule and these states."""
        parallel = ParallelConfig(**self.shared, schedule=schedule, **sharding._asdict())
        return TrainingConfig(self.model, parallel)

    def __iter__(self) -> Iterator[TrainingConfig]:
        for schedule in self.schedules:
            for sharding in self.sharding:
                yield self.member(schedule, sharding)

    def frugal(self, schedule: str = "") -> tuple[TrainingConfig, ...]:
        """Members with a schedule, by default the first, one of which has the fewest bytes of model states."""
        plain = [sharding for sharding in self.sharding if sharding.data_parallel != "zero3"]
        zero3 = [sharding for sharding in self.sharding if sharding not in plain][:1]
        return tuple(self.member(schedule or self.schedules[0], sharding) for sharding in (plain[-1], *zero3))


@dataclass(frozen=True)
class Cell:
    """Legal configurations that differ in their stages, schedule, sharding, and in what is recomputed.

    `shared` are the other fields; (p, d) is one of `grids`. All of them spend as much of a GPU's time on a layer of a
    sequence, without what is recomputed.
    """

    job: TrainingJob
    shared: Mapping[str, Any]
    grids: tuple[tuple[int, int], ...]
    recomputed: tuple[Mapping[str, Any], ...]
    per_node: int
    techniques: Techniques

    def __len__(self) -> int:
        return len(self.recomputed) * self.each

    @property
    def column(self) -> Hashable:
        """What it has in common with the cells of other microbatch sizes."""
        return tuple((name, value) for name, value in self.shared.items() if name != "b")

    @cached_property
    def each(self) -> int:
        """The number of configurations with one of the recomputations."""
        return sum(
            sum(len(schedules) for _, schedules in self._stages(p, d)) * len(self._shardings(p, d))
            for p, d in self.grids
        )

    def _stages(self, p: int, d: int) -> tuple[tuple[StageSplit, tuple[str, ...]], ...]:
        m = self.job.B // (d * self.shared["b"])
        return _scheduled(self.job.model, p, m, "split" in self.techniques, "layouts" in self.techniques)

    def _shardings(self, p: int, d: int) -> tuple[Sharding, ...]:
        t, possible = self.shared["t"], self.techniques
        inside = max(1, self.per_node // t)
        if inside * t % (self.shared.get("e", 1) * (self.shared.get("etp") or t)):
            inside = 1  # experts' shards would be on more nodes
        if "fsdp" not in possible and (self.job.model.experts or t * self.shared.get("c", 1) > 1):
            possible = set(possible) - {"zero3"}
        return shardings(p, d * self.shared.get("c", 1), inside, possible)

    @cached_property
    def example(self) -> TrainingConfig:
        """A configuration without a pipeline, whose one stage does all the work of a microbatch.

        It sums gradients over microbatches unless some of the cell's do not.
        """
        t, c, b = self.shared["t"], self.shared.get("c", 1), self.shared["b"]
        d = max(1, self.shared.get("e", 1) * (self.shared.get("etp") or t) // (t * c))
        alone = self.job.B * t * c <= self.job.n * b
        sizes = dict(self.shared) | {"d": d, "B": d * b * (1 if alone else 2), "recompute": "none"}
        return TrainingConfig(self.job.model, ParallelConfig(**sizes))

    def recomputing(self, recomputed: Mapping[str, Any]) -> TrainingConfig:
        """The `example` with something recomputed."""
        return replace(self.example, parallel=replace(self.example.parallel, **recomputed))

    def families(self, recomputed: Mapping[str, Any]) -> Iterator[Family]:
        """Those of one of the recomputations."""
        for p, d in self.grids:
            for (v, pipeline_layout), schedules in self._stages(p, d):
                sizes = {"p": p, "d": d, "v": v, **self.shared, **recomputed}
                if pipeline_layout:
                    sizes["pipeline_layout"] = pipeline_layout
                yield Family(self.job.model, sizes, schedules, self._shardings(p, d))


@lru_cache(maxsize=4096)
def _scheduled(
    model: ModelConfig, p: int, m: int, split: bool, layouts: bool
) -> tuple[tuple[StageSplit, tuple[str, ...]], ...]:
    """The stages of p ranks, each with the schedules that there are for m microbatches."""
    found = []
    for stages in stage_splits(model, p):
        v, pipeline_layout = stages
        if not layouts and (pipeline_layout or model.all_layers % (p * v)):
            continue
        offered = (default_schedule(v), *(SPLIT_SCHEDULES if split and p > 1 else ()))
        schedules = tuple(name for name in offered if exists(name, p, m, v) and _takes(name, p, v, pipeline_layout))
        if schedules:
            found.append((stages, schedules))
    return tuple(found)


def recomputations(model: ModelConfig, techniques: Techniques) -> tuple[dict[str, Any], ...]:
    """What may be recomputed: nothing, whole layers, and of `modules` what gives much memory for little time first.

    Without fused attention that is its core (Korthikanti et al. 2022); with it all but products and attention, with
    them heads made from latents, and experts or the MLP.
    """
    found: list[dict[str, Any]] = [{"recompute": "full"}, {"recompute": "none"}]
    if "modules" in techniques:
        modules = ["operators", *(["operators,mla_up_proj"] if model.kv_latent else [])]
        modules.append(f"{modules[-1]},{'moe' if model.experts else 'mlp'}")
        if "sdpa" not in techniques:
            modules = ["core_attn"]
        found += [{"recompute": "selective", "recompute_modules": each} for each in modules]
    return tuple(found)


def cells(job: TrainingJob, gpus_per_node: int, techniques: Techniques = TECHNIQUES) -> Iterator[Cell]:
    """Every legal configuration, by cells; none if no data-parallel size divides the batch."""
    by_group: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for p, t, c, d in grids(job, gpus_per_node):
        if job.B % d == 0 and (c == 1 or {"context", "sdpa"} <= set(techniques)):
            by_group.setdefault((t, c), []).append((p, d))
    narrow = ["none", *(recipe for recipe in ON_REQUEST if recipe in techniques)]
    recomputed = recomputations(job.model, techniques)
    for (t, c), pairs in by_group.items():
        may_cut = "sequence_parallel" in techniques and t > 1 and job.model.seq % (c * t) == 0
        sequence = (False, True) if may_cut else (False,)
        for b, sequence_parallel, recipe in product(divisors(job.B), sequence, narrow):
            shared: dict[str, Any] = {"t": t, "b": b, "B": job.B}
            shared |= {"c": c} if c > 1 else {}
            shared |= {"sequence_parallel": True} if sequence_parallel else {}
            shared |= {"attention": "sdpa"} if "sdpa" in techniques else {}
            shared |= {"fp8_recipe": recipe} if recipe != "none" else {}
            legal = [(p, d) for p, d in pairs if job.B // d % b == 0]
            by_experts: dict[tuple[tuple[str, int], ...], list[tuple[int, int]]] = {}
            for p, d in legal:
                for experts in expert_sizes(job.model, d * c * t, t, sequence_parallel):
                    if "experts" in techniques or experts.get("e", 1) == 1:
                        by_experts.setdefault(tuple(experts.items()), []).append((p, d))
            for named, possible in by_experts.items():
                cell = Cell(job, shared | dict(named), tuple(possible), recomputed, gpus_per_node, techniques)
                if len(cell):
                    yield cell


def families(job: TrainingJob, gpus_per_node: int, techniques: Techniques = TECHNIQUES) -> Iterator[Family]:
    """Every legal configuration, by families."""
    for cell in cells(job, gpus_per_node, techniques):
        yield from chain.from_iterable(map(cell.families, cell.recomputed))


def _takes(schedule: str, p: int, v: int, pipeline_layout: str) -> bool:
    """Whether a layout suits a schedule: they are written for the looped placement."""
    return not pipeline_layout or v == 1 or placement_of(schedule, p, v) == looped(p, v)


def configurations(
    job: TrainingJob, gpus_per_node: int, techniques: Techniques = TECHNIQUES
) -> Iterator[TrainingConfig]:
    """Every legal configuration."""
    return chain.from_iterable(families(job, gpus_per_node, techniques))


def nearest_batch(job: TrainingJob, gpus_per_node: int) -> int | None:
    """The batch size nearest to B (the larger of two) that some legal d divides; None if there is no legal grid."""
    sizes = {d for *_, d in grids(job, gpus_per_node)}
    near = {batch for d in sizes for batch in (job.B // d * d, (job.B // d + 1) * d) if batch > 0}
    return min(near, key=lambda batch: (abs(batch - job.B), -batch), default=None)
