"""Records as rows, one per point and metric; and tables as columns over rows, whose values stay numbers.

`rows` has plain values, in the columns

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

A `Column` of a table says once how it is called and written.

A heading says what, in which unit and from where: 'ours (teraFLOP/s) [simulated]'. Where there is room for it, these
parts stand on a line each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

from reproduce.experiment.quantities import Quantity
from results.records import Metric, PointResult, Record
from results.records.errors import UsageError, did_you_mean
from results.visible import visible

OF_RECORD = ("artifact", "fidelity", "scale", "cluster")
OF_POINT = ("key", "series", "label")
OF_METRIC = ("metric", "value", "unit", "origin", "low", "high", "paper", "status", "reason")
FIXED = (*OF_RECORD, *OF_POINT, *OF_METRIC)
NUMBERS = ("value", "low", "high", "paper")
LOW, HIGH = 0.1, 0.9  # of the samples, these shares lie below `low` and below `high`
NONE = "-"
Getter = Callable[[Any], Any]


@dataclass(frozen=True)
class Column:
    """A column: what it is, its unit, where it comes from; what it shows of a row, and how that is written.

    `of(row)` is a number, a text, or None where there is nothing. A number is divided by `factor`, its unit in the base
    unit, and written by `form`, a format specification or a function. `unit` may be other words in parentheses.
    """

    what: str
    of: Getter
    unit: str = ""
    form: str | Callable[[Any], str] = ""
    factor: float = 1
    origin: str = ""

    @property
    def lines(self) -> list[str]:
        """The parts of the heading, each as a line: what, unit, origin."""
        parts = (("({})", self.unit), ("[{}]", self.origin))
        return [*self.what.splitlines(), *(form.format(part) for form, part in parts if part)]

    @property
    def heading(self) -> str:
        """'ours (teraFLOP/s) [simulated]'."""
        return " ".join(self.lines)

    def text(self, value: Any) -> str:
        """A value of the column (`Table.values`) as it is written."""
        if value is None:
            return NONE
        return visible(self.form(value) if callable(self.form) else format(value, self.form))


@dataclass(frozen=True)
class Table:
    """Columns and the rows that they show."""

    columns: Sequence[Column]
    rows: Sequence[Any]

    @cached_property
    def values(self) -> list[list[Any]]:
        """What each column shows, row by row, numbers in its unit; all of them floats if one is."""
        of_columns = []
        for column in self.columns:
            values = [column.of(row) for row in self.rows]
            if column.factor != 1 or any(isinstance(value, float) for value in values):
                values = [value / column.factor if _is_number(value) else value for value in values]
            of_columns.append(values)
        return of_columns

    @cached_property
    def cells(self) -> list[list[str]]:
        """The text of all cells, row by row."""
        texts = [list(map(column.text, values)) for column, values in zip(self.columns, self.values, strict=True)]
        return [list(row) for row in zip(*texts, strict=True)]

    @cached_property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, and are aligned right: all that is there has a form, or is a number."""
        there = [[value for value in values if value not in (None, "")] for values in self.values]
        return [
            bool(values) and (bool(column.form) or all(map(_is_number, values)))
            for column, values in zip(self.columns, there, strict=True)
        ]


def chosen(columns: Sequence[Column], names: Sequence[str]) -> Sequence[Column]:
    """The columns with these names, in the order of the names; all of them without names.

    A name is what a column is, or how its heading begins, and may be that of several columns. Raises `UsageError` for
    one that is no column's.
    """
    found: list[Column] = []
    for name in names:
        exact = [column for column in columns if column.what == name]
        named = exact or [column for column in columns if name and column.heading.startswith(name)]
        if not named:
            known = list(dict.fromkeys(" ".join(column.what.split()) for column in columns))
            near = did_you_mean(name, known)
            raise UsageError(f"--columns {name!r}: the table has no such column{near}; there are {', '.join(known)}")
        found += [column for column in named if column not in found]
    return found or columns


def key(name: str) -> Getter:
    """What gives the value under a name of a row that is a mapping; None if it has none."""
    return lambda row: row.get(name)


def keyed(*names: str, **of_column: Any) -> list[Column]:
    """Columns called like the keys of rows that are mappings, with what else they have in common."""
    return [Column(name, key(name), **of_column) for name in names]


def quantity_column(quantity: Quantity, of: Getter, origin: str = "", what: str = "") -> Column:
    """A column of a quantity, whose values `of` gives in the base unit; called as it is unless by `what`."""
    return Column(what or quantity.label, of, quantity.shown, quantity.form, quantity.factor, origin)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def rows(*records: Record) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and the rows of these records. A point without any metric has one row, which says why."""
    found = []
    for record in records:
        cluster = record.provenance.cluster
        values = (record.id, record.fidelity, record.scale, cluster.name if cluster else None)
        of_record = dict(zip(OF_RECORD, values, strict=True))
        found += [of_record | row for point in record.points for row in _of_point(point)]
    parameters = {column(name) for record in records for point in record.points for name in point.parameters}
    return [*OF_RECORD, *OF_POINT, *sorted(parameters), *OF_METRIC], found


def column(parameter: str) -> str:
    """The column of a parameter."""
    return f"parameter_{parameter}" if parameter in FIXED else parameter


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
            row |= dict(zip(("low", "high"), ends(metric), strict=False))
        yield of_point | row
    if not point.metrics and not point.paper:
        yield of_point


def ends(metric: Metric) -> tuple[float, ...]:
    """Between what a value lies: its interval, or 80% of its samples; () where nobody knows."""
    if metric.samples:
        from benchmarks.harness.timing import Samples  # which the page does not have

        samples = Samples(tuple(metric.samples))
        return samples.quantile(LOW), samples.quantile(HIGH)
    return (float(metric.interval.low), float(metric.interval.high)) if metric.interval else ()
