"""A benchmark's record as a table for a terminal: one line per point, numbers with readable units."""

from collections.abc import Sequence
from textwrap import wrap

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY, results_of
from benchmarks.harness.timing import Samples
from results.records import Metric, PointResult, Record
from results.records.units import with_unit

HEADING = 9  # the most letters in a line of a column's heading
DIGITS = 3


def table(record: Record) -> str:
    """The text of a record: its title, a line per point, and the notes."""
    columns = BENCHMARKS[record.id].columns
    points = results_of(record)
    spread = "time" in columns
    names = [name.replace("_", " ") for name in columns] + (["fastest", "90% below"] if spread else [])
    head = [wrap(name, HEADING, break_long_words=False) for name in names]
    tall = max(map(len, head))
    lines = [["", *(([""] * (tall - len(words)) + words)[i] for words in head)] for i in range(tall)]
    lines += [_row(point, columns, spread) for point in points if point.status == "ok"]
    widths = [max(len(row[i]) for row in lines) for i in range(len(names) + 1)]
    shown_lines = [_line(row, widths) for row in lines]
    return "\n".join([*_title(record), *shown_lines, *_missing(points), *_foot(record)])


def _title(record: Record) -> list[str]:
    return [f"{record.id}: {record.title[0].lower()}{record.title[1:]}", f"measured, {record.scale} run", ""]


def _row(point: PointResult, columns: Sequence[str], spread: bool) -> list[str]:
    cells = [point.key, *(_cell(point.metrics.get(name)) for name in columns)]
    if spread:
        time = point.metrics.get("time")
        samples = Samples(tuple(time.samples)) if time and time.samples else None
        times = (samples.minimum, samples.quantile(0.9)) if samples else ()
        cells += [with_unit(seconds, "s", DIGITS, zeros=True) for seconds in times] or ["", ""]
    return cells


def _cell(metric: Metric | None) -> str:
    return "" if metric is None or metric.value is None else with_unit(metric.value, metric.unit, DIGITS, zeros=True)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([f"{cells[0]:<{widths[0]}}", *numbers]).rstrip()


def _missing(points: Sequence[PointResult]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for point in points:
        if point.status != "ok":
            reasons.setdefault(f"{point.status}, {point.reason}", []).append(point.key)
    return [f"{keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {why}" for why, keys in reasons.items()]


def _foot(record: Record) -> list[str]:
    canaries = [p.metrics["time"] for p in record.points if p.series == CANARY]
    quiet = " before, ".join(_cell(metric) for metric in canaries)
    return ["", *record.notes, f"Canary: {quiet} after; the whole took {record.provenance.duration_s:.1f} s."]
