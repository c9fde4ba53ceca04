"""Table 4 against itself: MFU, GPUs and the batch in tokens from the other columns."""

from collections.abc import Mapping
from typing import Any

from reproduce.experiment import published
from reproduce.experiment.sweep import Point, printed_points
from reproduce.experiment.told import told

ID = "llama3/table_4"
PEAK = 989e12  # of an H100, in bf16


def points() -> tuple[Point, ...]:
    """The three rows."""
    return printed_points(ID, "gpus_{gpus}_{seq}", "Llama 3 405B", "{gpus:,} GPUs, s={seq:,}", _parameters)


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    return published.parameters_of(ID, row) | {"t": 8, "p": 16, "teraflops": row["model_throughput_per_gpu"]}


def derive(point: Point) -> dict[str, float]:
    """MFU from FLOP/s, GPUs from the layout, tokens of a batch from sequences, d and s."""
    row = point.parameters
    return {
        "model_flops_utilization": row["teraflops"] * 1e12 / PEAK,
        "gpus_used": row["t"] * row["c"] * row["p"] * row["d"],
        "batch_tokens": row["d"] * row["sequences"] * row["seq"],
    }


ARTIFACT = told(__name__, points=points, derive=derive)
