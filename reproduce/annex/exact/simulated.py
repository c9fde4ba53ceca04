"""Section `simulated`: the simulator's iteration of every point of the paper, and of a few other configurations."""

import json
from dataclasses import replace

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration, parameters
from ptdp_core.layers.blocks import LayerRun, ends, layer_of
from ptdp_core.layers.parts import Work
from ptdp_core.simulator import Cluster, load_cluster, read_parameters, simulate
from reproduce.annex.exact.entries import PROBLEM, Entry, Quantities, Section, Value, schedule_of, shards_of
from results import ROOT

PAPER_POINTS = ROOT / "benchmarks" / "paper_points.json"
CLUSTER = "selene"
NANOSECONDS = 10**9
PARTS = 10**9  # the bubble is kept in parts per billion

_175B = ModelConfig(layers=96, hidden=12288, heads=96)
_SMALL = ModelConfig(layers=32, hidden=3840, heads=32)

# What no point in the paper's file has: ZeRO-3, other schedules, unfused operators, several layers recomputed together.
FURTHER = {
    "ZeRO-3, 175B on 384 GPUs": TrainingConfig(_175B, ParallelConfig(d=384, b=4, B=1536, data_parallel="zero3")),
    "GPipe, p=8, m=32": TrainingConfig(_SMALL, ParallelConfig(p=8, B=32, schedule="gpipe")),
    "ZB-H1, p=8, m=32": TrainingConfig(_SMALL, ParallelConfig(p=8, B=32, schedule="zb-h1")),
    "ZB-H1, 175B, B=60": TrainingConfig(_175B, ParallelConfig(p=12, t=8, B=60, schedule="zb-h1")),
    "unfused, 175B, B=24": TrainingConfig(_175B, ParallelConfig(p=12, t=8, v=4, B=24, fused=False)),
    "sequence parallelism, 175B, B=24": TrainingConfig(
        _175B, ParallelConfig(p=12, t=8, v=4, B=24, sequence_parallel=True)
    ),
    "selective recomputation, 175B, B=24": TrainingConfig(
        _175B, ParallelConfig(p=12, t=8, v=4, B=24, recompute="selective")
    ),
    "groups of 4 layers, B=32": TrainingConfig(_SMALL, ParallelConfig(p=4, t=2, d=2, B=32, checkpoint_layers=4)),
}

# What came after the paper, each axis at two sizes, on GPUs that have all of it.
NEW_CLUSTER = "b200"
_LLAMA = ModelConfig(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    seq=8192,
    ffn_hidden=14336,
    bias=False,
    activation="swiglu",
    norm="rmsnorm",
    positions="rotary",
    tied_embeddings=False,
    rope_theta=5e5,
)
_MIXTURE = replace(_LLAMA, experts=8, experts_per_token=2, expert_ffn_hidden=3584)
_LATENT = replace(
    _MIXTURE,
    kv_heads=0,
    head_dim=128,
    kv_latent=512,
    query_latent=1536,
    rotary_dim=64,
    mtp_layers=1,
    dense_layers=3,
    shared_expert_ffn_hidden=3584,
    router="sigmoid",
    auxiliary_loss=0.01,
)
_WINDOWS = replace(
    _LLAMA,
    activation="geglu",
    post_norms=True,
    qk_norm=True,
    window=1024,
    window_layers="wwf",
    sinks=True,
    router="softmax_before",
)
_STATES = replace(
    _MIXTURE,
    positions="none",
    layer_pattern="ME*-",
    mamba_heads=32,
    mamba_head_dim=128,
    mamba_groups=4,
    mamba_state=64,
    expert_latent=1024,
)
AXES = {
    "ring of 2": TrainingConfig(_LLAMA, ParallelConfig(c=2, d=2, B=8, context_exchange="ring", attention="sdpa")),
    "ring of 8": TrainingConfig(
        _LLAMA, ParallelConfig(t=2, c=8, B=4, context_exchange="ring", attention="sdpa", recompute="none")
    ),
    "keys gathered over 2": TrainingConfig(_LLAMA, ParallelConfig(p=2, t=2, c=2, B=8, sharded_optimizer=True)),
    "keys gathered over 4": TrainingConfig(_LLAMA, ParallelConfig(c=4, B=2, recompute="selective")),
    "heads over 2": TrainingConfig(
        _LLAMA, ParallelConfig(t=4, c=2, B=4, context_exchange="all_to_all", distribute_checkpointed_activations=True)
    ),
    "heads over 8": TrainingConfig(
        _LLAMA, ParallelConfig(c=8, B=4, context_exchange="all_to_all", attention="sdpa", scatter_gather=False)
    ),
    "experts over 2": TrainingConfig(_MIXTURE, ParallelConfig(t=2, d=2, e=2, B=8, expert_imbalance=1.3)),
    "experts over 8, whole ones": TrainingConfig(
        _MIXTURE,
        ParallelConfig(t=2, d=4, e=8, etp=1, sequence_parallel=True, B=8, capacity_factor=1.1, expert_imbalance=1.3),
    ),
    "experts recomputed": TrainingConfig(
        _MIXTURE, ParallelConfig(p=2, d=4, e=4, B=16, recompute="selective", recompute_modules="core_attn,moe")
    ),
    "latents, experts, two tokens": TrainingConfig(
        _LATENT, ParallelConfig(d=8, e=8, B=16, data_parallel="zero2", sharded_optimizer=True)
    ),
    "experts, all states sharded": TrainingConfig(
        _MIXTURE, ParallelConfig(t=2, d=8, e=4, B=16, data_parallel="zero3", zero3_shards=4)
    ),
    "Muon": TrainingConfig(
        _MIXTURE, ParallelConfig(t=2, d=4, e=2, B=8, sharded_optimizer=True, optimizer_states="muon")
    ),
    "latents recomputed": TrainingConfig(
        _LATENT, ParallelConfig(p=4, d=2, e=2, B=16, recompute="selective", recompute_modules="mla_up_proj,layernorm")
    ),
    "windows": TrainingConfig(_WINDOWS, ParallelConfig(t=2, d=2, B=4, b=2, data_parallel="torch")),
    "windows, ring of 2": TrainingConfig(
        _WINDOWS, ParallelConfig(p=2, c=2, B=4, context_exchange="ring", attention="sdpa")
    ),
    "windows of operators": TrainingConfig(
        _WINDOWS, ParallelConfig(t=2, B=4, attention="sdpa", attention_kernels="sinks=flash_attention_2,windows=none")
    ),
    "some layers offloaded": TrainingConfig(
        _LLAMA, ParallelConfig(p=2, d=2, B=8, attention="sdpa", recompute="none", offload="layers", offload_layers=4)
    ),
    "modules and states offloaded": TrainingConfig(
        _MIXTURE, ParallelConfig(d=4, e=4, B=8, recompute="selective", offload="core_attn,moe_act,optimizer")
    ),
    "adapters beside frozen weights": TrainingConfig(
        _LLAMA, ParallelConfig(p=2, t=2, d=2, B=8, recompute="none", attention="sdpa", lora_rank=16)
    ),
    "state-space layers": TrainingConfig(_STATES, ParallelConfig(p=2, t=2, d=4, e=4, B=16, recompute="none")),
    "fused pairs": TrainingConfig(_MIXTURE, ParallelConfig(p=2, v=2, d=2, e=2, B=16, schedule="dualpipev-overlap")),
    "fused pairs of 2 sequences": TrainingConfig(
        _MIXTURE, ParallelConfig(p=4, v=2, d=2, e=2, b=2, B=48, schedule="dualpipev-overlap")
    ),
    "a Llama with dropout": TrainingConfig(replace(_LLAMA, trained_with_dropout="yes"), ParallelConfig(t=2, B=4)),
    "a GPT without dropout": TrainingConfig(
        replace(_SMALL, trained_with_dropout="no"), ParallelConfig(t=4, B=4, recompute="none")
    ),
    **{
        f"states as {states}": TrainingConfig(_LLAMA, ParallelConfig(t=4, d=2, B=4, optimizer_states=states))
        for states in ("adam_bf16_moments", "adam_bf16", "adam_fp8", "adam_no_master")
    },
    "gradients reduced in rounds": TrainingConfig(
        _LLAMA, ParallelConfig(p=2, v=2, d=4, B=32, data_parallel="zero2", sharded_optimizer=True, reduce_every=2)
    ),
    "adapters": TrainingConfig(_LLAMA, ParallelConfig(t=2, d=2, B=4, lora_rank=16, sharded_optimizer=True)),
    "layout of 4 stages": TrainingConfig(_LLAMA, ParallelConfig(p=2, v=2, B=8, pipeline_layout="Et*9|t*9|t*8|t*6L")),
    "layout with an empty stage": TrainingConfig(
        _LLAMA, ParallelConfig(p=4, B=8, pipeline_layout="E|t*12|t*12|t*8L", schedule="zb-h1")
    ),
    **{
        f"vocabulary of all ranks, {schedule}": TrainingConfig(
            _LLAMA, ParallelConfig(p=4, v=v, B=16, schedule=schedule, attention="sdpa", recompute="none")
        )
        for schedule, v in (("1f1b+vocab-1", 1), ("1f1b+vocab-2", 1), ("1f1b+interlaced", 1), ("v-half+vocab-1", 2))
    },
    **{
        f"{recipe}, t={t}": TrainingConfig(_LLAMA, ParallelConfig(t=t, d=2, B=4, fp8_recipe=recipe))
        for recipe in ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4")
        for t in (1, 4)
    },
}


def configurations() -> dict[str, TrainingConfig]:
    """The configurations that are simulated, by label."""
    points = json.loads(PAPER_POINTS.read_text(encoding="utf-8"))
    return {point["label"]: TrainingConfig.from_plain(point) for point in points} | FURTHER | AXES


def collect() -> Section:
    """Simulate every configuration on its cluster. The first entries hold the clusters' parameters."""
    clusters = {name: load_cluster(name) for name in (CLUSTER, NEW_CLUSTER)}
    parameters_of = {
        f"cluster {name}": Entry({"parameters": {key: each.value for key, each in read_parameters(name).items()}})
        for name in clusters
    }
    return parameters_of | {
        label: _entry(config, clusters[NEW_CLUSTER if label in AXES else CLUSTER])
        for label, config in configurations().items()
    }


def _entry(config: TrainingConfig, cluster: Cluster) -> Entry:
    """Simulate a configuration; times are rounded to nanoseconds (see the package)."""
    parallel = config.parallel
    schedule, shards = schedule_of(parallel), shards_of(parallel)
    try:
        estimate = simulate(config, cluster)
    except ValueError as error:  # such as a schedule that deadlocks
        return Entry({"order": {PROBLEM: str(error)}}, schedule, shards)
    times = {"iteration": estimate.iteration_time} | dict(estimate.phase_times)
    traffic = {f"{use} bytes": count for use, count in estimate.traffic.items()}
    quantities: Quantities = {
        "communication": traffic | _collectives(config),
        "work": _work(config),
        "memory": {"peak memory bytes": estimate.peak_memory}
        | {f"{use} bytes": count for use, count in estimate.memory_bytes.items()},
        "time": {f"{name} ns": round(seconds * NANOSECONDS) for name, seconds in times.items()}
        | {"bubble ppb": round(estimate.bubble_fraction * PARTS)},
    }
    return Entry(quantities, schedule, shards)


def _passes(config: TrainingConfig) -> dict[str, list[Work]]:
    """The work of one microbatch in one layer, forward and backward, and at both ends of the pipeline together."""
    layer, both = layer_of(config), ends(config.local_model, LayerRun.of(config.parallel))
    return {
        "layer forward": [layer.forward],
        "layer backward": [layer.backward],
        "ends": [work for end in both for work in (end.forward, end.backward)],
    }


def _collectives(config: TrainingConfig) -> dict[str, Value]:
    """The number and bytes of the collectives of one microbatch in one layer, and at the ends of the pipeline."""
    counts: dict[str, Value] = {}
    for name, works in _passes(config).items():
        sizes = [size for work in works for size in work.all_reduce_bytes]
        counts |= {f"{name} all-reduces": len(sizes), f"{name} all-reduced bytes": round(sum(sizes))}
        if config.parallel.sequence_parallel:
            sizes = [size for work in works for size in work.one_way_bytes]
            counts |= {f"{name} one-way collectives": len(sizes), f"{name} one-way bytes": round(sum(sizes))}
    return counts


def _work(config: TrainingConfig) -> dict[str, Value]:
    """FLOPs by the paper's formulas, and the operators' GEMM FLOPs, memory traffic and number of kernels."""
    model, B = config.model, config.parallel.B
    counts: dict[str, Value] = {
        "parameters": parameters(model),
        "eq3 FLOPs": flops_per_iteration(model, B),
        "model FLOPs": model_flops_per_iteration(model, B),
    }
    for name, works in _passes(config).items():
        counts |= {
            f"{name} GEMM FLOPs": sum(2 * m * n * k * batch for work in works for m, n, k, batch in work.gemms),
            f"{name} memory traffic bytes": round(sum(work.traffic_bytes for work in works)),
            f"{name} kernels": sum(work.kernels for work in works),
        }
    return counts
