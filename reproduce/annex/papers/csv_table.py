"""Tables and figures whose numbers come from a CSV file of measurements: nothing of them is simulated here.

`paper.toml` describes such a table; its file has a row for each point: the columns that name it, a column for each
metric as measured ('throughput'), and one as published ('throughput_published'). An empty cell is a value not known.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from reproduce.experiment.artifact import NOT_IN_PAPER, Artifact
from reproduce.experiment.bounded import PUBLISHED
from reproduce.experiment.papers import FILE, NUMBER, Paper, PaperError, check_table, line_of
from reproduce.experiment.quantities import Quantity, XAxis
from reproduce.experiment.results import word
from reproduce.experiment.sweep import Point, Sweep
from reproduce.output.figures import line_plot
from results import opening
from results.records import Metric, PaperValue
from results.records.record import UNITS
from results.visible import CONTROL, visible

SHOWN = 40  # letters of a cell that is wrong
NEEDED = ("title", "values", "parameters", "metrics")
TABLE: dict[str, Any] = {"title": str, "values": str, "parameters": list, "metrics": dict}
TABLE |= {"label": str, "section": str, "series": str, "x": str, "tolerance": NUMBER}
METRIC: dict[str, Any] = {"label": str, "unit": str, "shown": str, "factor": NUMBER, "digits": int}


def artifact(paper: Paper, name: str) -> Artifact:
    """The table of that name of `paper.toml`, with the points of its CSV file. Raises `PaperError`."""
    path, entry = paper.folder / FILE, paper.tables[name]
    check_table(path, entry, TABLE, NEEDED, place=(f"tables.{name}",))
    for metric, how in entry["metrics"].items():
        place = f"tables.{name}.metrics.{metric}"
        check_table(path, how, METRIC, ("label", "unit"), place=(place,))
        if how["unit"] not in UNITS:
            text = f"unit {how['unit']!r} of {metric!r}; needs one of {', '.join(UNITS)}"
            raise PaperError(path, line_of(path, place, "unit"), text)
    points = tuple(_points(paper.folder, entry))
    return Artifact(
        id=paper.id_of(name),
        label=entry.get("label", "A table"),
        section=entry.get("section", NOT_IN_PAPER),
        title=entry["title"],
        description=f"{entry['title']}: the measurements of {entry['values']}, beside what was published.",
        quantities=tuple(_quantity(metric, how) for metric, how in entry["metrics"].items()),
        sweeps={"paper": Sweep(lambda: points)},
        columns={column: column for column in entry["parameters"] if column != entry.get("series")},
        x_axis=XAxis(entry["x"], entry["x"]) if "x" in entry else None,
        tolerance=entry.get("tolerance", 0.10),
        derive=_measured({metric: how["unit"] for metric, how in entry["metrics"].items()}),
        draw=line_plot if "x" in entry else None,
        notes=(),
    )


def _quantity(metric: str, how: Mapping[str, Any]) -> Quantity:
    shown = how.get("shown", "" if how["unit"] in ("1", "count") else how["unit"])
    return Quantity(metric, how["label"], how["unit"], shown, how.get("factor", 1), how.get("digits", 2))


def _measured(units: Mapping[str, str]) -> Callable[[Point], Mapping[str, Metric]]:
    """What takes the measured metrics of a point, which are kept among its parameters."""
    return lambda point: {
        metric: Metric(point.parameters[metric], unit, "measured", samples=(point.parameters[metric],))
        for metric, unit in units.items()
        if point.parameters.get(metric) is not None
    }


def _points(folder: Path, entry: Mapping[str, Any]) -> Iterator[Point]:
    """The rows of a CSV file as points. Raises `PaperError` for a column that is missing, a cell that is no number."""
    path, names, metrics = folder / entry["values"], entry["parameters"], entry["metrics"]
    try:
        lines = opening.read_text(path, encoding="utf-8-sig", within=folder).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PaperError(path, 1, f"cannot be read: {error}; needs a CSV file") from None
    rows = csv.DictReader(lines)
    columns = rows.fieldnames or ()
    used = [column for column in (entry.get("series"), entry.get("x")) if column is not None]
    if missing := [name for name in (*names, *metrics) if name not in columns] + [n for n in used if n not in names]:
        raise PaperError(path, 1, f"has no column {', '.join(missing)}; needs {', '.join((*names, *metrics))}")
    keys: dict[str, int] = {}
    for row in _rows(path, rows):
        line = rows.line_num
        if None in row or None in row.values():
            raise PaperError(path, line, f"has another number of cells than line 1; needs {len(columns)}")
        parameters = {name: _plain(row[name]) for name in names}
        if CONTROL.search("".join(row.values())):
            raise PaperError(path, line, f"{visible(str(row))[:60]} has control characters; needs plain text")
        key = word("_".join(row[name] for name in names))
        if key in keys:
            raise PaperError(path, line, f"is the point of line {keys[key]} again; needs other {', '.join(names)}")
        keys[key] = line
        measured = {metric: _number(path, line, metric, row[metric]) for metric in metrics}
        printed = {metric: row.get(f"{metric}_{PUBLISHED}") or "" for metric in metrics}
        published = {metric: _number(path, line, f"{metric}_{PUBLISHED}", text) for metric, text in printed.items()}
        others = [name for name in names if name != entry.get("series")]
        label = ", ".join(f"{name}={row[name]}" for name in others)
        paper = {
            metric: PaperValue(value, metrics[metric]["unit"], "table", quantum=_last_digit(printed[metric]))
            for metric, value in published.items()
            if value is not None
        }
        yield Point(key, row.get(entry.get("series", ""), ""), label, {**parameters, **measured}, paper)


def _rows(path: Path, rows: "csv.DictReader[str]") -> Iterator[dict[str, str]]:
    """The rows. Raises `PaperError` for what is no CSV, such as a cell of more than 131,072 letters."""
    try:
        yield from rows
    except csv.Error as error:
        raise PaperError(path, rows.line_num, f"cannot be read: {error}; needs a CSV file") from None


def _plain(text: str) -> int | float | str:
    """A cell as a number, if it is one."""
    for kind in (int, float):
        try:
            if isfinite(number := kind(text)):
                return number
        except (ValueError, OverflowError):
            continue
    return text


def _number(path: Path, line: int, column: str, text: str) -> float | None:
    """A cell of a metric; None if it is empty. Raises `PaperError` if it is no number."""
    if not text.strip():
        return None
    value = _plain(text.strip())
    if isinstance(value, str):
        raise PaperError(path, line, f"{column} is {text[:SHOWN]!r}; needs a number, or nothing")
    return value


def _last_digit(text: str) -> float:
    """One unit of the last digit that is printed: 0.01 of '3.25', 1 of '40'."""
    return 10.0 ** -len(text.partition("e")[0].partition(".")[2])
