"""Records as one tidy pandas DataFrame: what every table, chart and export of the suite is made from.

One row per point and metric. The columns, in this order:

    artifact, fidelity, scale, cluster      which record the row is from
    key, series, label                      which point of it
    (a column for each parameter)           p, t, d, v, b, B, layers, ...; missing where a point has no such parameter
    metric, value, unit, origin             the number, in its base unit, and where it comes from
    low, high                               the interval of a simulated value (docs/margins.md); of one with samples,
                                            80% of them lie between; missing where there is neither
    paper                                   the paper's value of the same metric, in the same unit
    status, reason                          ok, or why the point has no value: oom, invalid, failed, skipped

Frames of different records have the same columns except for the parameters, so that they can be concatenated. A
parameter whose name is one of the other columns' gets the prefix `parameter_`.
"""

from collections.abc import Iterator
from typing import Any

import pandas

from benchmarks.harness.timing import Samples
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.predictions import PREFIX
from reproduce.experiment.quantities import Quantity
from results.records import PointResult, Record

OF_RECORD = ("artifact", "fidelity", "scale", "cluster")
OF_POINT = ("key", "series", "label")
OF_METRIC = ("metric", "value", "unit", "origin", "low", "high", "paper", "status", "reason")
FIXED = (*OF_RECORD, *OF_POINT, *OF_METRIC)
NUMBERS = ("value", "low", "high", "paper")
LOW, HIGH = 0.1, 0.9  # of the samples, these shares lie below `low` and below `high`


def frame(record: Record) -> pandas.DataFrame:
    """The tidy frame of a record. A point without any metric has one row, which says why."""
    cluster = record.provenance.cluster
    of_record = dict(
        zip(OF_RECORD, (record.id, record.fidelity, record.scale, cluster.name if cluster else None), strict=True)
    )
    rows = [of_record | row for point in record.points for row in _rows(point)]
    parameters = sorted({column(name) for point in record.points for name in point.parameters})
    table = pandas.DataFrame(rows, columns=[*OF_RECORD, *OF_POINT, *parameters, *OF_METRIC])
    return typed(table)


def in_shown_units(table: pandas.DataFrame, artifact: Artifact | None = None) -> pandas.DataFrame:
    """The frame with the numbers of each metric in the unit that tables show it in: 'GB', 'teraFLOP/s', '%'.

    That is the artifact's unit, else that of `METRICS`; a metric that neither knows stays in its base unit.
    """
    known: dict[str, Quantity] = {**METRICS}
    if artifact is not None:
        known |= {quantity.name: quantity for quantity in artifact.quantities}
    quantities = [known.get(str(name).removeprefix(PREFIX)) for name in table.metric]
    factors = [each.factor if each else 1.0 for each in quantities]
    units = [each.shown or "1" if each else unit for each, unit in zip(quantities, table.unit, strict=True)]
    return table.assign(unit=units, **{name: table[name] / factors for name in NUMBERS})


def by_point(tidy: pandas.DataFrame) -> pandas.DataFrame:
    """The first row of each point of a record's tidy frame, by the points' keys."""
    return tidy.drop_duplicates("key").set_index("key")


def of_metric(tidy: pandas.DataFrame, metric: str) -> pandas.DataFrame:
    """The rows of one metric, by the keys of all points; all is missing where a point does not have it."""
    return tidy[tidy.metric == metric].set_index("key").reindex(tidy.key.unique())


def concatenated(frames: list[pandas.DataFrame]) -> pandas.DataFrame:
    """Several tidy frames as one, the parameters of all of them between the fixed columns."""
    rows = pandas.concat([each.astype(object) for each in frames], ignore_index=True)
    parameters = sorted(set(rows.columns) - set(FIXED))
    return typed(rows[[*OF_RECORD, *OF_POINT, *parameters, *OF_METRIC]])


def typed(table: pandas.DataFrame) -> pandas.DataFrame:
    """The frame with floating-point numbers, and parameters of the narrowest type that also has missing values."""
    texts = [name for name in table.columns if name not in NUMBERS]
    table = table.astype(dict.fromkeys(NUMBERS, float))
    return table.assign(**{name: table[name].convert_dtypes() for name in texts})


def column(parameter: str) -> str:
    """The column of a parameter."""
    return f"parameter_{parameter}" if parameter in FIXED else parameter


def _rows(point: PointResult) -> Iterator[dict[str, Any]]:
    of_point: dict[str, Any] = {"key": point.key, "series": point.series, "label": point.label}
    of_point |= {column(name): value for name, value in point.parameters.items()}
    of_point |= {"status": point.status, "reason": point.reason}
    # Sorted, since a record that was read back has its maps sorted: the rows must not depend on what was reused.
    for name in sorted({*point.metrics, *point.paper}):
        row: dict[str, Any] = {"metric": name}
        if paper := point.paper.get(name):
            row |= {"paper": paper.value, "unit": paper.unit}
        if metric := point.metrics.get(name):
            row |= {"value": metric.value, "unit": metric.unit, "origin": metric.origin}
            if metric.interval:
                row |= {"low": metric.interval.low, "high": metric.interval.high}
            if metric.samples:
                samples = Samples(tuple(metric.samples))
                row |= {"low": samples.quantile(LOW), "high": samples.quantile(HIGH)}
        yield of_point | row
    if not point.metrics and not point.paper:
        yield of_point
