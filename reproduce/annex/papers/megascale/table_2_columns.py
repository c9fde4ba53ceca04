"""Table 2 against itself: what each row's iteration time and MFU say of its other columns."""

from collections.abc import Mapping
from typing import Any

from ptdp_core.config import ModelConfig
from ptdp_core.formulas import model_flops_per_iteration
from reproduce.experiment import published
from reproduce.experiment.sweep import Point, printed_points
from reproduce.experiment.told import told

ID = "megascale/table_2"
PEAK = 312e12  # of an A100, in 16 bits


def points() -> tuple[Point, ...]:
    """All sixteen rows."""
    return printed_points(ID, "{method}_{gpus}", "{method}", "{gpus} GPUs", _parameters)


def _parameters(row: Mapping[str, Any]) -> dict[str, Any]:
    given = {"iteration_s": row["iteration_time"], "mfu_percent": row["model_flops_utilization"]}
    return published.parameters_of(ID, row) | given


def derive(point: Point) -> dict[str, float]:
    """Tokens/s, days, MFU from the iteration time; FLOP/s from the MFU."""
    shared = published.configuration(ID)
    B, gpus, seconds = (point.parameters[name] for name in ("B", "gpus", "iteration_s"))
    model = ModelConfig(**{name: shared[name] for name in ("layers", "hidden", "heads", "seq", "vocab")})
    tokens = B * shared["seq"] / seconds
    share = model_flops_per_iteration(model, B) / seconds / gpus / PEAK
    return {
        "tokens_per_s": tokens,
        "training_time": 300e9 / tokens / 86400,
        "model_flops_utilization": share,
        "aggregate_throughput": point.parameters["mfu_percent"] / 100 * gpus * PEAK,
    }


ARTIFACT = told(__name__, points=points, derive=derive)
