"""Points of one's own for a line chart, from a CSV file: series, x, value, and perhaps low and high.

A column of x or of values may have its name in the figure's own table, too: the parameter, the metric, or the heading.
"""

import csv
from math import isfinite
from pathlib import Path
from typing import Any

from reproduce.experiment.artifact import Artifact
from reproduce.output.chart import Mark
from reproduce.output.columns import column
from results import opening
from results.records import Record
from results.records.errors import UsageError, did_you_mean

REQUIRED, OPTIONAL = ("series", "x", "value"), ("low", "high")
SHOWN = 60  # letters of a cell in an error
ANOTHER_UNIT = 1e4  # values so many times larger or smaller than the figure's are in another unit
EXACT = 2**53  # below it whole numbers are shown as such


def read_points(path: Path, artifact: Artifact, record: Record) -> list[Mark]:
    """The points in a file: values in the unit of the artifact's axis.

    On an axis of names x is one that the record has. Raises `UsageError`, with the line, for a file that holds none.
    """
    header, *rows = _table(path)
    names = _columns(header[1], path, artifact)
    if not rows:
        raise UsageError(f"{path} has no rows; needs one for each point")
    marks = {}
    for line, cells in rows:
        if len(cells) > len(names):
            raise UsageError(f"{path}: line {line} has more cells than the {len(names)} columns")
        given = {name: cell for name, cell in zip(names, cells, strict=False) if cell}
        try:
            marks[line] = _mark(given, artifact, record)
        except UsageError as error:
            raise UsageError(f"{path}: line {line}: {error}") from None
    _check_unit(marks, path, artifact, record)
    return list(marks.values())


def _columns(header: list[str], path: Path, artifact: Artifact) -> list[str]:
    """What each column holds, of `REQUIRED` and `OPTIONAL`. Raises `UsageError` for others, and for one that lacks."""
    assert artifact.x_axis is not None
    axis, main, known = artifact.x_axis, artifact.main, (*REQUIRED, *OPTIONAL)
    others = dict.fromkeys((axis.parameter, column(axis.parameter), axis.label), "x")
    others |= dict.fromkeys((main.name, main.heading, main.axis), "value")
    names = [to if (to := others.get(name, name)) not in header else name for name in header]
    if lacking := [name for name in REQUIRED if name not in names]:
        raise UsageError(
            f"{path} has no column {lacking[0]!r}; needs {', '.join(REQUIRED)}, and may have {', '.join(OPTIONAL)}"
        )
    if unknown := [name for name in names if name not in known]:
        near = did_you_mean(unknown[0][:SHOWN], known)
        raise UsageError(f"{path}: unknown column {unknown[0][:SHOWN]!r}{near}; there are {', '.join(known)}")
    if twice := [name for name in known if names.count(name) > 1]:
        raise UsageError(f"{path} has {names.count(twice[0])} columns {twice[0]!r}; needs one")
    return names


def _mark(given: dict[str, str], artifact: Artifact, record: Record) -> Mark:
    """The point of a row's cells, by column. Raises `UsageError`."""
    assert artifact.x_axis is not None
    value, low, high = (_number(name, given.get(name)) for name in ("value", *OPTIONAL))
    text, at = given.get("x"), None
    if artifact.x_axis.scale == "category":
        at = _named(text, artifact.x_axis.parameter, record)
    elif (number := _number("x", text, positive=artifact.x_axis.scale == "log2")) is not None:
        at = int(number) if abs(number) < EXACT and number.is_integer() else number
    if at is None or value is None:
        raise UsageError("x or value is missing; needs both")
    for name, end, wrong in (("low", low, low is not None and low > value),
                             ("high", high, high is not None and high < value)):  # fmt: skip
        if wrong:
            raise UsageError(f"{name}={end:g} beside value={value:g}; needs low <= value <= high")
    return Mark(given.get("series", ""), None, value, low, high, label=str(text), at=at)


def _check_unit(marks: dict[int, Mark], path: Path, artifact: Artifact, record: Record) -> None:
    """Raise `UsageError` for points, by their lines, that are in another unit than the figure's axis."""
    drawn = [metric.value for point in record.points if (metric := point.metrics.get(artifact.main.name))]
    usual = max((abs(value) for value in drawn if value), default=0.0) / artifact.main.factor
    line, value = max(((line, mark.value or 0.0) for line, mark in marks.items()), key=lambda each: abs(each[1]))
    if usual and value and not usual / ANOTHER_UNIT < abs(value) < usual * ANOTHER_UNIT:
        unit = artifact.main.axis or artifact.main.heading
        raise UsageError(
            f"{path}: line {line}: value={value:g} where the figure has at most {usual:.4g}; needs its axis's "
            f"unit, {unit!r}; try {value / artifact.main.factor:g}"
        )


def _table(path: Path) -> list[tuple[int, list[str]]]:
    """The cells of each line that has any, by the line's number; the first are the columns' names."""
    try:
        lines = opening.read_text(path, encoding="utf-8-sig").splitlines(keepends=True)
        reader = csv.reader(lines, skipinitialspace=True)
        found = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV file: {error}; needs {', '.join(REQUIRED)}") from None
    return found or [(1, [])]


def _named(text: str | None, parameter: str, record: Record) -> Any:
    """The value of a record's parameter that a text names, by itself or by a point's label; None for no text."""
    if text is None:
        return None
    by_label = {point.label: point.parameters[parameter] for point in record.points if parameter in point.parameters}
    known = by_label | {str(value): value for value in by_label.values()}
    if text not in known:
        near = f"{did_you_mean(text[:SHOWN], list(known))}; there are {', '.join(by_label)}"
        raise UsageError(f"x={text[:SHOWN]!r} is not on the axis{near}")
    return known[text]


def _number(name: str, text: str | None, positive: bool = False) -> float | None:
    """A column's text as a finite number; None where there is none."""
    if text is None:
        return None
    try:
        number = float(text if text.isascii() and "_" not in text else "")
    except ValueError:
        number = float("nan")
    if not isfinite(number) or (positive and number <= 0):
        needed = "a positive number" if positive else "a number"
        raise UsageError(f"{name}={text[:SHOWN]!r} is no number to draw; needs {needed}")
    return number
