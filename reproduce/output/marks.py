"""The points of a line chart, as plain values in the units that it shows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.predictions import PREFIX
from reproduce.experiment.results import MissingResultError
from reproduce.output.rows import column, rows
from results.records import Record

OWN_ORIGIN = "own points"  # of the rows of points that no record has


@dataclass(frozen=True)
class Mark:
    """A point: `at` is its value on the x axis and `x` the place where it is drawn; a number that it lacks is None.

    `paper` is the published value, `predicted` what was predicted before it ran, `result` the name of the result that
    it is from.
    """

    series: str
    x: Any
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    predicted: float | None = None
    label: str = ""
    status: str = "ok"
    at: Any = None
    result: str = ""


def chart_data(
    artifact: Artifact, records: Mapping[str, Record], own: Mapping[str, Sequence[Mark]] = {}
) -> tuple[Mark, ...]:
    """The points of records, by the results' names, with the main quantity; and points of one's `own`.

    Along categories they stand at 0, 1, ..., in the order in which these come. Raises `MissingResultError` for none.
    """
    assert artifact.x_axis is not None
    marks = [replace(mark, result=name) for name, record in records.items() for mark in _points(artifact, record)]
    marks += [replace(mark, result=name) for name, points in own.items() for mark in points]
    if not marks:
        raise MissingResultError("none of the points that it shows was evaluated")
    places = {value: place for place, value in enumerate(dict.fromkeys(mark.at for mark in marks))}
    category = artifact.x_axis.scale == "category"
    return tuple(replace(mark, x=places[mark.at] if category else float(mark.at)) for mark in marks)


def _points(artifact: Artifact, record: Record) -> Iterator[Mark]:
    assert artifact.x_axis is not None
    parameter, factor = column(artifact.x_axis.parameter), artifact.main.factor
    by_key: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows(record)[1]:
        by_key.setdefault(row["key"], {})[row.get("metric", "")] = row
    for of_metric in by_key.values():
        first = next(iter(of_metric.values()))
        ours, theirs = of_metric.get(artifact.main.name, {}), of_metric.get(PREFIX + artifact.main.name, {})
        numbers = {name: ours.get(name) for name in ("value", "low", "high", "paper")}
        numbers["predicted"] = theirs.get("value")
        shown: dict[str, Any] = {name: None if number is None else number / factor for name, number in numbers.items()}
        told = {name: first[name] for name in ("series", "label", "status")}
        yield Mark(x=None, at=first[parameter], **told, **shown)


def own_rows(
    artifact: Artifact, records: Mapping[str, Record], own: Mapping[str, Sequence[Mark]]
) -> Iterator[dict[str, Any]]:
    """Points of one's own as rows beside those of `records`, in base units: keys have their name, origins say so."""
    assert artifact.x_axis is not None
    main = artifact.main
    scale = next(iter(records.values())).scale
    for name, points in own.items():
        for number, mark in enumerate(points, 1):
            told = {"artifact": artifact.id, "scale": scale, "key": f"{name}/{number}", "series": mark.series}
            told |= {"label": mark.label, column(artifact.x_axis.parameter): mark.at, "metric": main.name}
            shown = {"value": mark.value, "low": mark.low, "high": mark.high}
            base = {place: None if size is None else size * main.factor for place, size in shown.items()}
            yield told | base | {"unit": main.unit, "origin": OWN_ORIGIN, "status": mark.status}


def in_panels(marks: Iterable[Mark], between: str) -> dict[str, list[Mark]]:
    """The points by what their series' names end with, 'b' of 'a on b' with ' on ' between; the names are 'a' then."""
    panels: dict[str, list[Mark]] = {}
    for mark in marks:
        series, _, panel = mark.series.rpartition(between)
        panels.setdefault(panel, []).append(replace(mark, series=series))
    return panels


def of_series(marks: Iterable[Mark], series: str) -> list[Mark]:
    """The points of a series that have a value, along the x axis."""
    there = (mark for mark in marks if mark.series == series and mark.value is not None)
    return sorted(there, key=lambda mark: mark.x)


def at_each_x(marks: Iterable[Mark]) -> list[Mark]:
    """The first of these points at each place, in their order."""
    first: dict[Any, Mark] = {}
    for mark in marks:
        first.setdefault(mark.x, mark)
    return list(first.values())


def numbers(marks: Iterable[Mark], *names: str) -> list[float]:
    """These numbers of the points, as far as they have them."""
    found = (getattr(mark, name) for mark in marks for name in names)
    return [number for number in found if number is not None]
