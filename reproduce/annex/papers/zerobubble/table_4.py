"""Tables 4, 6, 7 and 12: throughput and memory, simulated on a RoCE cluster file fixed before they were compared."""

from typing import Any

from ptdp_core.simulator import Cluster, Estimate
from reproduce.annex.papers.zerobubble.table_5 import PAPER, ZOO, key_of, model_of
from reproduce.experiment import published
from reproduce.experiment.sweep import Point, slug
from reproduce.experiment.told import told

TABLES = ("table_4", "table_6", "table_7", "table_12")
# What is simulated for the searched schedules, which exist for no sizes but those they were searched for.
SIMULATED = ZOO | {"ZB-1p": "zb-h1", "ZB-2p": "zb-h2", "ZB-2p*": "zb-h2"}
SAMPLES = "samples_per_gpu_s"


def points() -> tuple[Point, ...]:
    """Every row of the four tables."""
    return tuple(_point(table, row) for table in TABLES for row in published.rows(f"{PAPER}/{table}"))


def _point(table: str, row: dict[str, Any]) -> Point:
    model, schedule = model_of(row["model"]), row["schedule"]
    key = slug(f"{table}_{key_of(row)}_b{row['b']}_{schedule}")
    chunks = {"1F1B-I": (model["layers"] + 2) // row["p"], "ZB-V": 2}.get(schedule, 1)
    parameters = {
        **{name: model[name] for name in ("layers", "hidden", "heads", "seq", "vocab")},
        "t": 1,
        "d": 1,
        "p": row["p"],
        "v": chunks,
        "b": row["b"],
        "B": row["b"] * row["m"],
        "schedule": SIMULATED[schedule],
        "recompute": "none",
        "attention": "operators",
        "pipeline_layout": layout(model["layers"], row["p"] * chunks),
        "model": row["model"],
        "table": table,
    }
    label = f"{table.replace('_', ' ').title()}: {row['model']}, p={row['p']}, m={row['m']}, b={row['b']}"
    return Point(key, schedule, label, parameters, published.paper_values(f"{PAPER}/{table}", row))


def layout(layers: int, stages: int) -> str:
    """Layers of each stage, one fewer in the first and the last (Section 5.1), as Megatron-Core writes them."""
    most = -(-(layers + 2) // stages)
    few = layers - most * (stages - 2)
    first, last = few - few // 2, few // 2
    return f"E{'t' * first}|{('t' * most + '|') * (stages - 2)}{'t' * last}L"


def further(point: Point, estimate: Estimate, cluster: Cluster) -> dict[str, float]:
    """Samples per GPU and second."""
    parallel = estimate.config.parallel
    return {SAMPLES: parallel.B / estimate.iteration_time / parallel.n}


ARTIFACT = told(__name__, points=points, further=further)
