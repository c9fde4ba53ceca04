"""Points of one's own for a line chart, from a CSV file: series, x, value, and perhaps low and high.

A column of x or of values may have its name in the figure's own table, too: the parameter, the metric, or the heading.
"""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from reproduce.experiment.artifact import Artifact
from reproduce.output.marks import Mark
from reproduce.output.rows import column
from results import opening
from results.records import Record
from results.records.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from pandas import DataFrame, Series

REQUIRED, OPTIONAL = ("series", "x", "value"), ("low", "high")
SHOWN = 60  # letters of a cell in an error
ANOTHER_UNIT = 1e4  # values so many times larger or smaller than the figure's are in another unit


def read_points(path: Path, artifact: Artifact, record: Record) -> list[Mark]:
    """The points in a file: values in the unit of the artifact's axis.

    On an axis of names x is one that the record has. Raises `UsageError`, with the line, for a file that holds none.
    """
    import pandas

    assert artifact.x_axis is not None
    main, known = artifact.main, (*REQUIRED, *OPTIONAL)
    names = dict.fromkeys((artifact.x_axis.parameter, column(artifact.x_axis.parameter), artifact.x_axis.label), "x")
    names |= dict.fromkeys((main.name, main.heading, main.axis), "value")
    table = _table(path)
    table = table.rename(columns={name: to for name, to in names.items() if to not in table})
    if lacking := [name for name in REQUIRED if name not in table]:
        raise UsageError(
            f"{path} has no column {lacking[0]!r}; needs {', '.join(REQUIRED)}, and may have {', '.join(OPTIONAL)}"
        )
    if unknown := [name for name in table if name not in known]:
        near = did_you_mean(unknown[0][:SHOWN], known)
        raise UsageError(f"{path}: unknown column {unknown[0][:SHOWN]!r}{near}; there are {', '.join(known)}")
    if table.empty:
        raise UsageError(f"{path} has no rows; needs one for each point")
    numbers = {name: _numbers(table[name], path) for name in ("value", *OPTIONAL) if name in table}
    if artifact.x_axis.scale == "category":
        at = _named(table.x, path, artifact.x_axis.parameter, record)
    else:
        at = _numbers(table.x, path, positive=artifact.x_axis.scale == "log2").convert_dtypes()
    if at.isna().any() or numbers["value"].isna().any():
        row = int((at.isna() | numbers["value"].isna()).idxmax())
        raise UsageError(f"{path}: line {row + 2}: x or value is missing; needs both")
    for name, wrong in (("low", numbers.get("low", numbers["value"]) > numbers["value"]),
                        ("high", numbers.get("high", numbers["value"]) < numbers["value"])):  # fmt: skip
        if wrong.any():
            row = int(wrong.idxmax())
            raise UsageError(
                f"{path}: line {row + 2}: {name}={numbers[name][row]:g} beside value={numbers['value'][row]:g}; "
                "needs low <= value <= high"
            )
    _check_unit(numbers["value"], path, artifact, record)
    shown = [[None if pandas.isna(number) else float(number) for number in column] for column in numbers.values()]
    told = table.series.fillna(""), table.x.astype(str), at
    return [
        Mark(series, None, **dict(zip(numbers, row, strict=True)), label=label, at=place)
        for series, label, place, *row in zip(*told, *shown, strict=True)
    ]


def _check_unit(values: "Series", path: Path, artifact: Artifact, record: Record) -> None:
    """Raise `UsageError` for values that are in another unit than the figure's axis."""
    drawn = [metric.value for point in record.points if (metric := point.metrics.get(artifact.main.name))]
    usual = max((abs(value) for value in drawn if value), default=0.0) / artifact.main.factor
    row = int(values.abs().idxmax())
    largest = abs(values[row])
    if usual and largest and not usual / ANOTHER_UNIT < largest < usual * ANOTHER_UNIT:
        unit = artifact.main.axis or artifact.main.heading
        raise UsageError(
            f"{path}: line {row + 2}: value={values[row]:g} where the figure has at most {usual:.4g}; needs its axis's "
            f"unit, {unit!r}; try {values[row] / artifact.main.factor:g}"
        )


def _table(path: Path) -> "DataFrame":
    """All cells of a file as texts, missing where there is nothing."""
    import pandas

    try:
        lines = opening.read_text(path, encoding="utf-8-sig").splitlines(keepends=True)
        reader = csv.DictReader(lines, skipinitialspace=True)
        rows = [[cell.strip() if isinstance(cell, str) else cell for cell in row.values()] for row in reader]
        names = [name.strip() for name in reader.fieldnames or ()]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is no CSV file: {error}; needs {', '.join(REQUIRED)}") from None
    for number, row in enumerate(rows, 2):
        if len(row) > len(names):
            raise UsageError(f"{path}: line {number} has more cells than the {len(names)} columns")
    return pandas.DataFrame([[cell or None for cell in row] for row in rows], columns=names, dtype=object)


def _named(texts: "Series", path: Path, parameter: str, record: Record) -> "Series":
    """The values of a record's parameter that the texts name, by itself or by a point's label."""
    by_label = {point.label: point.parameters[parameter] for point in record.points if parameter in point.parameters}
    known = by_label | {str(value): value for value in by_label.values()}
    wrong = texts.notna() & ~texts.isin(known)
    if wrong.any():
        row = int(wrong.idxmax())
        shown = texts[row][:SHOWN]
        near = f"{did_you_mean(shown, list(known))}; there are {', '.join(by_label)}"
        raise UsageError(f"{path}: line {row + 2}: x={shown!r} is not on the axis{near}")
    return texts.map(known)


def _numbers(texts: "Series", path: Path, positive: bool = False) -> "Series":
    """The texts of a column as finite numbers, missing where it has none."""
    import pandas

    numbers = pandas.to_numeric(texts, errors="coerce").replace([float("inf"), -float("inf")], float("nan"))
    wrong = numbers.isna() & texts.notna() | (positive & (numbers <= 0))
    if wrong.any():
        row = int(wrong.idxmax())
        shown, needed = texts[row][:SHOWN], "a positive number" if positive else "a number"
        raise UsageError(f"{path}: line {row + 2}: {texts.name}={shown!r} is no number to draw; needs {needed}")
    return numbers.astype(float)
