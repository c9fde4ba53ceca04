"""Records as rows: one per point and metric, as plain values.

The columns, in this order:

    artifact, fidelity, scale, cluster      which record the row is from
    key, series, label                      which point of it
    (a column for each parameter)           p, t, d, v, b, B, layers, ...; missing where a point has no such parameter
    metric, value, unit, origin             the number, in its base unit, and where it comes from
    low, high                               the interval of a simulated value (docs/margins.md); of one with samples,
                                            80% of them lie between; missing where there is neither
    paper                                   the paper's value of the same metric, in the same unit
    status, reason                          ok, or why the point has no value: oom, invalid, failed, skipped

Rows of different records have the same columns except for the parameters. A parameter whose name is one of the other
columns' gets the prefix `parameter_`.
"""

from collections.abc import Iterator
from typing import Any

from results.records import PointResult, Record

OF_RECORD = ("artifact", "fidelity", "scale", "cluster")
OF_POINT = ("key", "series", "label")
OF_METRIC = ("metric", "value", "unit", "origin", "low", "high", "paper", "status", "reason")
FIXED = (*OF_RECORD, *OF_POINT, *OF_METRIC)
NUMBERS = ("value", "low", "high", "paper")
LOW, HIGH = 0.1, 0.9  # of the samples, these shares lie below `low` and below `high`


def rows(*records: Record) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and the rows of these records. A point without any metric has one row, which says why."""
    found = [_of_record(record) | row for record in records for point in record.points for row in _of_point(point)]
    parameters = {column(name) for record in records for point in record.points for name in point.parameters}
    return [*OF_RECORD, *OF_POINT, *sorted(parameters), *OF_METRIC], found


def column(parameter: str) -> str:
    """The column of a parameter."""
    return f"parameter_{parameter}" if parameter in FIXED else parameter


def _of_record(record: Record) -> dict[str, Any]:
    cluster = record.provenance.cluster
    values = (record.id, record.fidelity, record.scale, cluster.name if cluster else None)
    return dict(zip(OF_RECORD, values, strict=True))


def _of_point(point: PointResult) -> Iterator[dict[str, Any]]:
    of_point: dict[str, Any] = {"key": point.key, "series": point.series, "label": point.label}
    of_point |= {column(name): value for name, value in point.parameters.items()}
    of_point |= {"status": point.status, "reason": point.reason}
    # Sorted, since a record that was read back has its maps sorted: the rows must not depend on what was reused.
    for name in sorted({*point.metrics, *point.paper}):
        row: dict[str, Any] = {"metric": name}
        if paper := point.paper.get(name):
            row |= {"paper": float(paper.value), "unit": paper.unit}
        if metric := point.metrics.get(name):
            value = None if metric.value is None else float(metric.value)
            row |= {"value": value, "unit": metric.unit, "origin": metric.origin}
            if metric.interval:
                row |= {"low": float(metric.interval.low), "high": float(metric.interval.high)}
            if metric.samples:
                from benchmarks.harness.timing import Samples  # which the page does not have

                samples = Samples(tuple(metric.samples))
                row |= {"low": samples.quantile(LOW), "high": samples.quantile(HIGH)}
        yield of_point | row
    if not point.metrics and not point.paper:
        yield of_point
