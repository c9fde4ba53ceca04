"""For the report page's tables: their cells and what these are sorted by, the tables of accuracy and of plans."""

from dataclasses import replace
from typing import Any

from reproduce.experiment import quantities as q
from reproduce.output.columns import Column, Table, quantity_column
from reproduce.output.tables import metric, parameter
from results.records import Record

# The scores in their order, and how they are written; further ones follow as shares.
SCORES = {
    "points": ".0f",
    "mean_error": ".1%",
    "bias": "+.1%",
    "worst_error": "+.1%",
    "rank_correlation": ".3f",
}
PLAN_PARAMETERS = ("rank", "p", "t", "d", "v", "b", "recompute")
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


def kinds(table: Table) -> list[str]:
    """The classes of the cells of each column."""
    further = {"ours": " ours", "verdict": " verdict", "status": " verdict"}
    return [
        ("number" if number else "short") + further.get(column.what, "")
        for column, number in zip(table.columns, table.numeric, strict=True)
    ]


def cells(table: Table) -> list[list[tuple[str, str, Any]]]:
    """Row by row: a cell's text, its class, and what it is sorted by.

    A number is sorted by itself, none by "", and a text by where the table has it first.
    """
    keys = [
        ["" if value is None else value for value in values] if number else map(values.index, values)
        for values, number in zip(table.values, table.numeric, strict=True)
    ]
    rows = zip(table.cells, zip(*keys, strict=True), strict=True)
    return [list(zip(texts, kinds(table), of_row, strict=True)) for texts, of_row in rows]


def agreement_kind(verdict: str) -> str:
    """The kind of tag for the verdict on a point."""
    if verdict.startswith(("equal", "within")):
        return "good"
    if verdict.startswith("off") or verdict in ("failed", "invalid"):
        return "bad"
    return "warn" if verdict == "oom" else ""


def score_table(accuracy: Record) -> Table:
    """What `reproduce accuracy` found: the scores, next to the naive baselines."""
    points = [point for point in accuracy.points if point.series == "score"]
    origins = {name: found.origin for point in points for name, found in point.metrics.items()}
    further = sorted(set(origins) - set(SCORES))
    columns = [
        Column(name.replace("_", " "), metric(name), form=SCORES.get(name, ".1%"), origin=origins[name])
        for name in (*SCORES, *further)
        if name in origins
    ]
    return Table([Column("points of", lambda point: point.label), *columns], points)


def plan_table(plan: Record) -> Table:
    """What a `reproduce plan` found: a row for each configuration."""
    columns = [Column("which", lambda point: point.series)]
    columns += [Column(name, parameter(name)) for name in PLAN_PARAMETERS]
    columns += [quantity_column(quantity, metric(quantity.name), plan.fidelity) for quantity in PLAN_QUANTITIES]
    return Table(columns, plan.points)
