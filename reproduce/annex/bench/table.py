"""A benchmark's record for a terminal: a line per point, numbers with readable units, as many columns as fit."""

from collections.abc import Iterator, Sequence
from functools import partial
from textwrap import fill

from tabulate import tabulate

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY, results_of
from benchmarks.harness.timing import Samples
from results.records import Metric, PointResult, Record
from results.records.units import with_unit

WIDTH = 80
NAME, HEADING = 33, 7  # the most letters in a line of a point's name, and of a column's heading
DIGITS = 3


def table(record: Record, width: int = WIDTH) -> str:
    """The text of a record in lines of so many letters: its title, a line per point, and the notes.

    Columns that do not fit beside the others stand in a table of their own, with the points' names again.
    """
    points = results_of(record)
    measured = [point for point in points if point.status == "ok"]
    canaries = [_cell(point.metrics["time"]) for point in record.points if point.series == CANARY]
    wrapped = partial(fill, width=width, break_long_words=False, break_on_hyphens=False)
    above = [f"{record.id}: {record.title[0].lower()}{record.title[1:]}", f"measured, {record.scale} run", ""]
    canary = f"Canary: {' before, '.join(canaries)} after; the whole took {record.provenance.duration_s:.1f} s."
    below = [*_missing(points), "", *record.notes, canary]
    tables = "\n\n".join(_tables(measured, list(_columns(record.id, measured)), width))
    return "\n".join([*map(wrapped, above), tables, *map(wrapped, below)])


def _columns(benchmark: str, points: Sequence[PointResult]) -> Iterator[list[str]]:
    """The benchmark's columns, each a heading and a cell per point; of a time also how far its samples are apart."""
    for name in BENCHMARKS[benchmark].columns:
        metrics = [point.metrics.get(name) for point in points]
        heading = fill(name.replace("_", " "), HEADING, break_long_words=False)
        yield [heading, *map(_cell, metrics)]
        if name == "time":
            samples = [Samples(tuple(metric.samples)) if metric and metric.samples else None for metric in metrics]
            yield ["fastest", *(_seconds(each.minimum) if each else "" for each in samples)]
            yield ["90%\nbelow", *(_seconds(each.quantile(0.9)) if each else "" for each in samples)]


def _tables(points: Sequence[PointResult], columns: Sequence[list[str]], width: int) -> Iterator[str]:
    """The columns in tables that fit into the width."""
    names = ["", *(fill(point.key, NAME, break_long_words=False) for point in points)]
    rows_at = ["bottom", *["top"] * len(points)]
    while columns:
        for count in range(len(columns), 0, -1):
            sides = ["left", *["right"] * count]
            rows = zip(names, *columns[:count], strict=True)
            text = tabulate(rows, tablefmt="plain", disable_numparse=True, colalign=sides, rowalign=rows_at)
            if max(map(len, text.splitlines())) <= width:
                break
        yield "\n".join(map(str.rstrip, text.splitlines()))
        columns = columns[count:]


def _cell(metric: Metric | None) -> str:
    return "" if metric is None or metric.value is None else with_unit(metric.value, metric.unit, DIGITS, zeros=True)


def _seconds(seconds: float) -> str:
    return with_unit(seconds, "s", DIGITS, zeros=True)


def _missing(points: Sequence[PointResult]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for point in points:
        if point.status != "ok":
            reasons.setdefault(f"{point.status}, {point.reason}", []).append(point.key)
    return [f"{keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {why}" for why, keys in reasons.items()]
