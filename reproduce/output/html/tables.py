"""For the report page's tables: their columns, what they are sorted by, the tables of accuracy and of plans."""

import re
from dataclasses import replace
from typing import Any, NamedTuple

from pandas import DataFrame

from reproduce.experiment import quantities as q
from reproduce.output.frame import by_point, frame, of_metric
from reproduce.output.tables import NONE, numeric, parts, shown_values
from results.records import Record

LEADING_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")
# The scores in their order, and how they are written; further ones follow as shares.
SCORES = {
    "points": "{:.0f}",
    "mean_error": "{:.1%}",
    "bias": "{:+.1%}",
    "worst_error": "{:+.1%}",
    "rank_correlation": "{:.3f}",
}
PLAN_COLUMNS = ("rank", "p", "t", "d", "v", "b", "recompute")
PLAN_QUANTITIES = (
    replace(q.ITERATION, digits=3),
    replace(q.THROUGHPUT, label="throughput"),
    q.BUBBLE,
    replace(q.PEAK_MEMORY, label="memory"),
    *(
        q.Quantity(f"{name}_traffic", f"{label} sent", "B", "GB", 1e9)
        for name, label in (("pipeline", "p2p"), ("tensor", "tensor"), ("data", "data"))
    ),
)


class Column(NamedTuple):
    """The parts of a column's heading, and the class of its cells."""

    what: str
    unit: str
    origin: str
    kind: str


def columns(table: DataFrame) -> list[Column]:
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


def score_table(accuracy: Record) -> DataFrame:
    """What `reproduce accuracy` found: the scores, next to the naive baselines."""
    tidy = frame(accuracy).query("series == 'score'")
    table = by_point(tidy)[["label"]].rename(columns={"label": "points of"})
    known = list(SCORES)
    for name in sorted(
        tidy.metric.dropna().unique(), key=lambda name: known.index(name) if name in known else len(known)
    ):
        rows = of_metric(tidy, name)
        origin = rows.origin.dropna().iloc[0]
        shown = rows.value.map(SCORES.get(name, "{:.1%}").format, "ignore").fillna(NONE)
        table[f"{name.replace('_', ' ')} [{origin}]"] = shown
    return table.reset_index(drop=True)


def plan_table(plan: Record) -> DataFrame:
    """What a `reproduce plan` found: a row for each configuration."""
    tidy = frame(plan)
    points = by_point(tidy)
    choices = points.reindex(columns=PLAN_COLUMNS).astype(object).fillna("").astype(str)
    table = points[["series"]].rename(columns={"series": "which"}).join(choices)
    for quantity in PLAN_QUANTITIES:
        table[f"{quantity.heading} [{plan.fidelity}]"] = shown_values(quantity, of_metric(tidy, quantity.name).value)
    return table.reset_index(drop=True)
