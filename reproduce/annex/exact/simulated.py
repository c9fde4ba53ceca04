"""Section `simulated`: the simulator's iteration of every point of the paper, and of a few other configurations."""

import json

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration, parameters
from ptdp_core.layers.blocks import LayerRun, ends, layer_of
from ptdp_core.layers.parts import Work
from ptdp_core.simulator import Cluster, load_cluster, read_parameters, simulate
from reproduce.annex.exact.entries import (
    PROBLEM,
    Case,
    Entry,
    Quantities,
    Section,
    Value,
    model_of,
    schedule_of,
    shards_of,
    tables,
)
from results import ROOT

PAPER_POINTS = ROOT / "benchmarks" / "paper_points.json"
PAPERS_CLUSTER, LATER_CLUSTER = CLUSTERS = ("selene", "b200")
NANOSECONDS = 10**9
PARTS = 10**9  # the bubble is kept in parts per billion

TABLES = tables("simulated")


def configurations() -> dict[str, TrainingConfig]:
    """The configurations that are simulated, by label."""
    points = json.loads(PAPER_POINTS.read_text(encoding="utf-8"))
    rows = [(point["label"], point) for point in points]
    rows += [row for cluster in CLUSTERS for row in TABLES[cluster].items()]
    return {label: configuration(row) for label, row in rows}


def configuration(row: Case) -> TrainingConfig:
    """The configuration of a row, which may name its model."""
    of_model = model_of(TABLES["models"], row["model"]) if "model" in row else {}
    return TrainingConfig.from_plain(of_model | {name: value for name, value in row.items() if name != "model"})


def collect() -> Section:
    """Simulate every configuration on its cluster. The first entries hold the clusters' parameters."""
    clusters = {name: load_cluster(name) for name in CLUSTERS}
    parameters_of = {
        f"cluster {name}": Entry({"parameters": {key: each.value for key, each in read_parameters(name).items()}})
        for name in clusters
    }
    return parameters_of | {
        label: _entry(config, clusters[LATER_CLUSTER if label in TABLES[LATER_CLUSTER] else PAPERS_CLUSTER])
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
