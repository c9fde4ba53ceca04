"""The sizes of the search space: all legal ways to divide a model over exactly n GPUs with batch size B (Section 3).

- n = p*t*c*d; t divides the heads, key/value heads and MLP, and d*b the batch
- c is 1, or with fused attention and long sequences a power of two (`context_sizes`)
- experts are shared in every way that leaves each GPU as many: by e, and inside each by all t or none (`expert_sizes`)
- stages are those of `stage_splits`: even ones, and where it saves time fewer layers beside the output
- t spans at most two nodes, and tensor groups fill nodes evenly: t divides a node's GPUs or is a multiple of them
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig
from ptdp_core.formulas import layer_forward_flops, logit_flops
from ptdp_core.layout import stage_layers
from ptdp_core.pipeline_layout import layout_of

LARGEST_TENSOR_GROUP_NODES = 2
# Sequences from this length on may be shared by context-parallel ranks, each of which has at least so many tokens.
LONG_SEQUENCE, LEAST_PART = 8192, 4096
# A layout is tried beside the even one if the rank with most work has less than this share of its work.
WORTHWHILE = 0.98


@dataclass(frozen=True)
class TrainingJob:
    """A task for the search: a model to be trained on n GPUs with global batch size B.

    `fields` of `ParallelConfig`, with their values, are the same in every layout: what the search does not choose.
    """

    model: ModelConfig
    n: int
    B: int
    fields: tuple[tuple[str, Any], ...] = ()

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
    groups = job.model.mamba_groups if job.model.has_states else 0
    together = gcd(job.n, job.model.query_groups, job.model.mlp_width, groups)
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
        for c in ([1] if job.model.has_states else context_sizes(job.model.seq, job.n // (p * t)))
    ]


def nearest_batch(job: TrainingJob, gpus_per_node: int) -> int | None:
    """The batch size nearest to B (the larger of two) that some legal d divides; None if there is no legal grid."""
    sizes = {d for *_, d in grids(job, gpus_per_node)}
    near = {batch for d in sizes for batch in (job.B // d * d, (job.B // d + 1) * d) if batch > 0}
    return min(near, key=lambda batch: (abs(batch - job.B), -batch), default=None)
