"""The search space: all legal configurations, by cells whose layers have the same work, and by families inside of them.

A configuration is legal if its sizes are (`space.py`), and

- its schedule exists for p, v and the microbatches: the paper's (1F1B for v = 1, interleaved for v > 1), or one of
  `SPLIT_SCHEDULES`
- it uses of the `TECHNIQUES` what has an effect: what is recomputed (`recomputations`), who holds the model states
  (`shardings`), sequence parallelism, FP8. Where fused attention may be used, it is

All other settings are those of the paper's runs: scatter/gather and fused operators are on; the gradient all-reduce
overlaps with the last backward pass if there is no pipeline (p = 1), else it follows the flush.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain, product
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.schedules import default_schedule, definition, exists, looped
from reproduce.planning.space import StageSplit, TrainingJob, divisors, expert_sizes, grids, stage_splits

# Of the others each waits as long as one of these or the paper's, and holds as many activations (docs/schedules.md).
SPLIT_SCHEDULES = ("zb-h1", "zb-v", "v-half", "v-min")
# What a search may use, by name: the paper's means, and what came after it.
PAPERS = {
    "pipeline": "pipeline parallelism (p)",
    "tensor": "tensor parallelism (t)",
    "interleaving": "several chunks on a GPU (v)",
}
TECHNIQUES = {
    **PAPERS,
    "sequence_parallel": "sequence parallelism",
    "sdpa": "fused attention",
    "modules": "recomputation of some modules: all but products and attention, heads from latents, MLP or experts",
    "split": f"schedules with split backward passes ({', '.join(SPLIT_SCHEDULES)})",
    "layouts": "stages of unlike lengths",
    "context": "context parallelism from 8,192 tokens on (c)",
    "experts": "expert parallelism (e, etp)",
    "zero1": "a sharded optimizer",
    "zero2": "gradients sharded, too",
    "zero3": "all states sharded, without a pipeline: FSDP, where the program has it with t, c and e",
    "hsdp": "the same inside of each node (hybrid sharding)",
}
# What it may use only if it is asked for: training computes something else with recipes, and few programs offload.
RECIPES = {
    "delayed": "FP8, delayed scaling",
    "tensorwise": "FP8, a scale for a tensor",
    "rowwise": "FP8, a scale for a row",
    "blockwise": "FP8, a scale for 128 elements",
    "mxfp8": "FP8, a scale for 32 elements",
    "nvfp4": "FP4, a scale for 16 elements",
}
OFFLOADS = {
    "offload_layers": "layers",
    "offload_optimizer": "optimizer",
}  # and their values of `ParallelConfig.offload`
ON_REQUEST = (*RECIPES, *OFFLOADS)
# Fields of a layout that the search does not choose, and that go with every choice.
SET_FIELDS = (
    *("lora_rank", "optimizer_states", "fused", "attention_kernels", "scatter_gather"),
    *("capacity_factor", "expert_imbalance"),
)
Techniques = Collection[str]
PAPERS_TECHNIQUES: Techniques = tuple(PAPERS)
# The fields of a configuration that a technique chooses: a program that lacks one of them lacks the technique.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "pipeline": ("p",),
    "tensor": ("t",),
    "interleaving": ("v", "schedule"),
    "sequence_parallel": ("sequence_parallel",),
    "sdpa": ("attention",),
    "modules": ("recompute", "recompute_modules"),
    "split": ("schedule",),
    "layouts": ("pipeline_layout",),
    "context": ("c",),
    "experts": ("experts", "e", "etp"),
    "zero1": ("sharded_optimizer",),
    "zero2": ("sharded_optimizer", "data_parallel"),
    "zero3": ("data_parallel",),
    "hsdp": ("data_parallel", "zero3_shards"),
    **dict.fromkeys(RECIPES, ("fp8_recipe",)),
    **dict.fromkeys(OFFLOADS, ("offload",)),
}


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

    @cached_property
    def frugal(self) -> tuple[TrainingConfig, ...]:
        """Members with the first schedule, one of which has the fewest bytes of model states."""
        plain = [sharding for sharding in self.sharding if sharding.data_parallel != "zero3"]
        zero3 = [sharding for sharding in self.sharding if sharding not in plain][:1]
        return tuple(self.member(self.schedules[0], sharding) for sharding in (plain[-1], *zero3))

    def by_schedule(self) -> Iterator["Family"]:
        """Its configurations, as a family for each schedule."""
        return (replace(self, schedules=(schedule,)) for schedule in self.schedules)


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
        allowed = (name in self.techniques for name in ("split", "layouts", "interleaving"))
        return _scheduled(self.job.model, p, m, *allowed)

    def _shardings(self, p: int, d: int) -> tuple[Sharding, ...]:
        t, possible = self.shared["t"], self.techniques
        inside = max(1, self.per_node // t)
        if inside * t % (self.shared.get("e", 1) * (self.shared.get("etp") or t)):
            inside = 1  # experts' shards would be on more nodes
        if "fsdp" not in possible:  # the baseline of Section 5.2, by itself
            beside = self.job.model.experts + self.job.model.mtp_layers + self.shared.get("lora_rank", 0)
            alone = t * self.shared.get("c", 1) == 1 and not beside
            possible = set(possible) - {"hsdp", *(() if alone else ("zero3",))}
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
    model: ModelConfig, p: int, m: int, split: bool, layouts: bool, interleaving: bool
) -> tuple[tuple[StageSplit, tuple[str, ...]], ...]:
    """The stages of p ranks, each with the schedules that there are for m microbatches."""
    found = []
    for stages in stage_splits(model, p):
        v, pipeline_layout = stages
        if (v > 1 and not interleaving) or (not layouts and (pipeline_layout or model.all_layers % (p * v))):
            continue
        offered = (default_schedule(v), *(SPLIT_SCHEDULES if split and p > 1 else ()))
        schedules = tuple(name for name in offered if exists(name, p, m, v) and _takes(name, p, v, pipeline_layout))
        if schedules:
            found.append((stages, schedules))
    return tuple(found)


def recomputations(model: ModelConfig, techniques: Techniques) -> tuple[dict[str, Any], ...]:
    """What may be recomputed: nothing, whole layers, and of `modules` what gives much memory for little time first.

    Without fused attention that is its core (Korthikanti et al. 2022); with it all but products and attention, with
    them heads made from latents, and experts or the MLP. What is kept, and the optimizer's states, may be offloaded.
    """
    found: list[dict[str, Any]] = [{"recompute": "full"}, {"recompute": "none"}]
    if "modules" in techniques:
        modules = ["operators", *(["operators,mla_up_proj"] if model.kv_latent else [])]
        modules.append(f"{modules[-1]},{'moe' if model.experts else 'mlp'}")
        if "sdpa" not in techniques:
            modules = ["core_attn"]
        found += [{"recompute": "selective", "recompute_modules": each} for each in modules]
    for name, what in OFFLOADS.items():
        if name in techniques:
            kept = [each for each in found if (name, each["recompute"]) != ("offload_layers", "full")]
            found += [each | {"offload": ",".join(filter(None, (each.get("offload"), what)))} for each in kept]
    return tuple(found)


def cells(job: TrainingJob, gpus_per_node: int, techniques: Techniques = TECHNIQUES) -> Iterator[Cell]:
    """Every legal configuration, by cells; none if no data-parallel size divides the batch."""
    by_group: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for p, t, c, d in grids(job, gpus_per_node):
        sizes = {("pipeline",): p, ("tensor",): t, ("context", "sdpa"): c}
        if job.B % d == 0 and all(set(names) <= set(techniques) for names, size in sizes.items() if size > 1):
            by_group.setdefault((t, c), []).append((p, d))
    narrow = ["none", *(recipe for recipe in RECIPES if recipe in techniques)]
    recomputed = recomputations(job.model, techniques)
    for (t, c), pairs in by_group.items():
        may_cut = "sequence_parallel" in techniques and t > 1 and job.model.seq % (c * t) == 0
        sequence = (False, True) if may_cut else (False,)
        for b, sequence_parallel, recipe in product(divisors(job.B), sequence, narrow):
            shared: dict[str, Any] = {"t": t, "b": b, "B": job.B, **dict(job.fields)}
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
    return not pipeline_layout or v == 1 or definition(schedule).placement(p, v) == looped(p, v)


def configurations(
    job: TrainingJob, gpus_per_node: int, techniques: Techniques = TECHNIQUES
) -> Iterator[TrainingConfig]:
    """Every legal configuration."""
    return chain.from_iterable(families(job, gpus_per_node, techniques))
