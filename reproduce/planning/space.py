"""The search space: all legal ways to train a model on exactly n GPUs with batch size B (Section 3).

A configuration is legal if

- n = p*t*c*d; t divides the heads, key/value heads and MLP, and d*b the batch
- c is 1, or with fused attention and long sequences a power of two (`context_sizes`)
- experts are shared in every way that leaves each GPU as many: by e, and inside each by all t or none (`expert_sizes`)
- its stages are those of `stage_splits`: even ones, and where it saves time fewer layers beside the output
- t spans at most two nodes, and tensor groups fill nodes evenly: t divides a node's GPUs or is a multiple of them
- its schedule exists for p, v and the microbatches: the paper's (1F1B for v = 1, interleaved for v > 1), or one of
  `SPLIT_SCHEDULES`
- each technique of `TECHNIQUES` has one of its values that has an effect; the optimizer is sharded or not

All other settings are those of the paper's runs: scatter/gather and fused operators are on; the gradient all-reduce
overlaps with the last backward pass if there is no pipeline (p = 1), else it follows the flush.

Configurations that differ in schedule and sharding alone make a `Family`: their passes take the same time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product
from math import gcd
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import layer_forward_flops, logit_flops
from ptdp_core.layout import stage_layers
from ptdp_core.pipeline_layout import layout_of
from ptdp_core.schedules import default_schedule, exists, looped, placement_of

LARGEST_TENSOR_GROUP_NODES = 2
# Of the others each waits as long as one of these or the paper's, and holds as many activations (docs/schedules.md).
SPLIT_SCHEDULES = ("zb-h1", "zb-v", "v-half", "v-min")
# Sequences from this length on may be shared by context-parallel ranks, each of which has at least so many tokens.
LONG_SEQUENCE, LEAST_PART = 8192, 4096
Techniques = Mapping[str, Sequence[Any]]
# Values of the fields that decide what a pass does, by field. Fused attention keeps no scores to recompute selectively.
TECHNIQUES: Techniques = {
    "recompute": ("full", "selective", "none"),
    "sequence_parallel": (False, True),
    "attention": ("operators", "sdpa"),
}
PAPERS_TECHNIQUES: Techniques = {"recompute": ("full", "none")}
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


@dataclass(frozen=True)
class Family:
    """Legal configurations with the same passes: they differ in `schedules`, and in whether the optimizer is sharded.

    `shared` are the fields that they have in common.
    """

    model: ModelConfig
    shared: Mapping[str, Any]
    schedules: tuple[str, ...]
    sharding: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.schedules) * len(self.sharding)

    def member(self, schedule: str, sharded: bool) -> TrainingConfig:
        """The configuration with this schedule, with its optimizer sharded or not."""
        parallel = ParallelConfig(**self.shared, schedule=schedule, sharded_optimizer=sharded)
        return TrainingConfig(self.model, parallel)

    def __iter__(self) -> Iterator[TrainingConfig]:
        for schedule in self.schedules:
            for sharded in self.sharding:
                yield self.member(schedule, sharded)

    @property
    def frugal(self) -> TrainingConfig:
        """A member with the fewest bytes of model states."""
        return self.member(self.schedules[0], self.sharding[-1])


def families(job: TrainingJob, gpus_per_node: int, techniques: Techniques = TECHNIQUES) -> Iterator[Family]:
    """Every legal configuration, by families; none if no data-parallel size divides the batch.

    With `PAPERS_TECHNIQUES` those that the paper's runs could have, of equal stages.
    """
    plain = techniques is PAPERS_TECHNIQUES
    for p, t, c, d in grids(job, gpus_per_node):
        if job.B % d or (plain and c > 1):
            continue
        sharding = (False,) if plain or d * c == 1 else (False, True)
        for b, (v, pipeline_layout) in product(divisors(job.B // d), stage_splits(job.model, p)):
            if plain and (pipeline_layout or job.model.all_layers % (p * v)):
                continue
            m = job.B // (d * b)
            offered = (default_schedule(v), *(() if plain or p == 1 else SPLIT_SCHEDULES))
            schedules = tuple(name for name in offered if exists(name, p, m, v) and _takes(name, p, v, pipeline_layout))
            if not schedules:
                continue
            sizes = {"p": p, "t": t, "d": d, "v": v, "b": b, "B": job.B, "data_parallel": data_parallel_kind(p)}
            if pipeline_layout:
                sizes["pipeline_layout"] = pipeline_layout
            if c > 1:
                sizes["c"] = c
            for choice in product(*techniques.values()):
                chosen = dict(zip(techniques, choice, strict=True))
                if not has_effect(chosen, t, job.model.seq, c):
                    continue
                for experts in expert_sizes(job.model, d * c * t, t, chosen.get("sequence_parallel", False)):
                    if not plain or experts.get("e", 1) == 1:
                        yield Family(job.model, sizes | chosen | experts, schedules, sharding)


def _takes(schedule: str, p: int, v: int, pipeline_layout: str) -> bool:
    """Whether a layout suits a schedule: they are written for the looped placement."""
    return not pipeline_layout or v == 1 or placement_of(schedule, p, v) == looped(p, v)


def has_effect(techniques: Mapping[str, Any], t: int, seq: int, c: int = 1) -> bool:
    """Whether every technique that is on changes something at these sizes and sequence length, and is possible there.

    Long sequences are shared (c > 1) with fused attention only.
    """
    if techniques.get("sequence_parallel") and (t == 1 or seq % (c * t)):
        return False
    if c > 1 and techniques.get("attention") != "sdpa":
        return False
    return not (techniques["recompute"] == "selective" and techniques.get("attention") == "sdpa")


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
