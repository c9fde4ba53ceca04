"""Table 4 against itself: MFU, GPUs and the batch in tokens from the other columns."""

from collections.abc import Mapping
from typing import Any

from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Point, Sweep, printed_points
from results.records import Metric

ID = "llama3/table_4"
PEAK = 989e12  # of an H100, in bf16


def points() -> tuple[Point, ...]:
    """The three rows."""
    return printed_points(ID, "gpus_{gpus}_{seq}", "Llama 3 405B", "{gpus:,} GPUs, s={seq:,}", _parameters)


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    return published.parameters_of(ID, row) | {"t": 8, "p": 16, "teraflops": row["model_throughput_per_gpu"]}


def derive(point: Point) -> dict[str, Metric]:
    """MFU from FLOP/s, GPUs from the layout, tokens of a batch from sequences, d and s."""
    row = point.parameters
    return {
        "model_flops_utilization": Metric(row["teraflops"] * 1e12 / PEAK, "1", "derived"),
        "gpus_used": Metric(row["t"] * row["c"] * row["p"] * row["d"], "count", "derived"),
        "batch_tokens": Metric(row["d"] * row["sequences"] * row["seq"], "count", "derived"),
    }


ARTIFACT = Artifact(
    id="llama3/table_4_columns",
    label="Table 4",
    section="3.3.2",
    title="The columns of Llama 3's layouts from each other",
    description="MFU from each row's FLOP/s and an H100's peak, GPUs as t x c x p x d, tokens as d x sequences x s.",
    quantities=(
        q.MFU,
        q.Quantity("gpus_used", "GPUs", "count", "", 1, 0),
        q.Quantity("batch_tokens", "batch", "count", "Mi tokens", 1048576, 2),
    ),
    sweeps={"paper": Sweep(points)},
    columns={"gpus": "n", "d": "d", "c": "c", "seq": "s", "sequences": "sequences a replica"},
    tolerance=0.02,
    derive=derive,
    notes=("d of the last row is 8 as in version 3 of the paper; version 1 prints 4, which makes 8,192 GPUs.",),
)
