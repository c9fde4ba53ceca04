"""Section `simulated`: the simulator's iteration of every point of the paper, and of a few other configurations."""

import json

from benchmarks.exact.quantities import PROBLEM, Entry, Quantities, Section, Value, schedule_of, shards_of
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration, parameters
from ptdp_core.layers.blocks import LayerRun, block, ends
from ptdp_core.layers.parts import Work
from ptdp_core.simulator import Cluster, load_cluster, read_parameters, simulate
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


def configurations() -> dict[str, TrainingConfig]:
    """The configurations that are simulated, by label."""
    points = json.loads(PAPER_POINTS.read_text(encoding="utf-8"))
    return {point["label"]: TrainingConfig.from_plain(point) for point in points} | FURTHER


def collect() -> Section:
    """Simulate every configuration on the default cluster. The first entry holds the cluster's parameters."""
    cluster = load_cluster(CLUSTER)
    numbers = {name: parameter.value for name, parameter in read_parameters(CLUSTER).items()}
    return {f"cluster {CLUSTER}": Entry({"parameters": numbers})} | {
        label: _entry(config, cluster) for label, config in configurations().items()
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
    parallel = config.parallel
    run = LayerRun(parallel.b, parallel.t, parallel.sequence_parallel)
    layer = block(config.model, run, config.model.usual_kind)
    return {
        "layer forward": [layer.forward],
        "layer backward": [layer.backward],
        "ends": [work for end in ends(config.model, run) for work in (end.forward, end.backward)],
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
