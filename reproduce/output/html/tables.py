"""For the report page's tables: their columns, what they are sorted by, the tables of accuracy and of plans."""

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.records import PointResult, Record
from reproduce.output.tables import NONE, numeric, parts, text_table

if TYPE_CHECKING:
    from pandas import DataFrame

LEADING_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")
SCORES = ("points", "mean_error", "bias", "worst_error", "rank_correlation")
PLAN_COLUMNS = ("rank", "p", "t", "d", "v", "b", "recompute")
PLAN_METRICS = {
    "iteration_time": ("iteration (s)", 1.0, 3),
    "throughput_per_gpu": ("throughput (teraFLOP/s)", 1e12, 1),
    "bubble_fraction": ("bubble (%)", 0.01, 1),
    "peak_memory": ("memory (GB)", 1e9, 1),
    "pipeline_traffic": ("p2p sent (GB)", 1e9, 1),
    "tensor_traffic": ("tensor sent (GB)", 1e9, 1),
    "data_traffic": ("data sent (GB)", 1e9, 1),
}


class Column(NamedTuple):
    """The parts of a column's heading, and the class of its cells."""

    what: str
    unit: str
    origin: str
    kind: str


def columns(table: "DataFrame") -> list[Column]:
    """The columns of a table of text; ratios are derived."""
    described = []
    for heading, right in zip(table.columns, numeric(table), strict=True):
        what, unit, origin = parts(heading)
        kind = "number" if right else "short"
        kind += {"ours": " ours", "verdict": " verdict", "status": " verdict"}.get(what, "")
        described.append(Column(what, unit, origin or ("derived" if what == "ratio" else ""), kind))
    return described


def agreement_kind(verdict: str) -> str:
    """The kind of tag for the verdict on a point."""
    if verdict.startswith(("equal", "within")):
        return "good"
    if verdict.startswith("off") or verdict in ("failed", "invalid"):
        return "bad"
    return "warn" if verdict == "oom" else ""


def leading_number(cell: Any) -> str | None:
    """What a cell is sorted by where that is not its text: the number that '+3.4%' and '1,024' begin with."""
    match = LEADING_NUMBER.match(str(cell).replace(",", ""))
    return match[0] if match else None


def score_table(accuracy: Record) -> "DataFrame":
    """What `reproduce accuracy` found: the scores, next to the naive baselines."""
    scores = [point for point in accuracy.points if point.series == "score"]
    origins = {name: metric.origin for point in scores for name, metric in point.metrics.items()}
    names = sorted(origins, key=lambda name: SCORES.index(name) if name in SCORES else len(SCORES))
    headings = ["points of", *(f"{name.replace('_', ' ')} [{origins[name]}]" for name in names)]
    return text_table(headings, [(point.label, *(_score(point, name) for name in names)) for point in scores])


def _score(point: PointResult, name: str) -> str:
    metric = point.metrics.get(name)
    if metric is None or metric.value is None:
        return NONE
    if metric.unit == "count":
        return f"{metric.value}"
    if name == "rank_correlation":
        return f"{metric.value:.3f}"
    return f"{metric.value:+.1%}" if name in ("bias", "worst_error") else f"{metric.value:.1%}"


def plan_table(plan: Record) -> "DataFrame":
    """What a `reproduce plan` found: a row for each configuration."""
    headings = ["which", *PLAN_COLUMNS, *(f"{name} [{plan.fidelity}]" for name, _, _ in PLAN_METRICS.values())]
    rows = []
    for point in plan.points:
        choices = (point.parameters.get(name) for name in PLAN_COLUMNS)
        rows.append((point.series, *("" if choice is None else str(choice) for choice in choices), *_numbers(point)))
    return text_table(headings, rows)


def _numbers(point: PointResult) -> list[str]:
    metrics = ((point.metrics.get(name), factor, digits) for name, (_, factor, digits) in PLAN_METRICS.items())
    return [
        NONE if metric is None or metric.value is None else f"{metric.value / factor:.{digits}f}"
        for metric, factor, digits in metrics
    ]
