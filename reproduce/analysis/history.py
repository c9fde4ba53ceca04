"""How a benchmark's values went over its kept records: change points, a table and a figure.

Change points are found by PELT (Killick et al. 2012) in `ruptures`, in the logarithms of the values. Levels are
medians, so that an outlier is none, and a step costs more than it gains unless it is larger than the noise between
neighbours. A step of less than 3% is none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.harness.runner import results_of
from ptdp_core.packages import installation
from reproduce.output import theme
from results.records import Record
from results.records.errors import UnavailableError
from results.records.units import with_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_STEP = 0.03  # relative; smaller ones are not worth a look
SHORTEST = 3  # runs between two change points
PENALTY = 3.0  # of a change point, in units of log(runs) times the noise between neighbours
LINES = 6  # of a figure
DIGITS = 4


@dataclass(frozen=True)
class Trend:
    """The values of a point's metric over runs, the oldest first, and the `steps` of its level (`change_points`)."""

    point: str
    unit: str
    values: tuple[float, ...]
    commits: tuple[str, ...]
    days: tuple[str, ...]
    steps: Mapping[int, float]


def change_points(values: Sequence[float]) -> dict[int, float]:
    """The indices at which a new level begins, each with the relative change of the level.

    Raises `UnavailableError` without ruptures.
    """
    if len(values) < 2 * SHORTEST:
        return {}
    try:
        import numpy
        import ruptures
    except ImportError:
        raise UnavailableError(f"change points need ruptures; try {installation('ruptures')}") from None
    logs = numpy.log(numpy.asarray(values, dtype=float))
    # The median of the differences of neighbours knows the noise, and hardly the steps.
    sigma = max(1.4826 * float(numpy.median(numpy.abs(numpy.diff(logs)))) / math.sqrt(2), 1e-4)
    search = ruptures.Pelt(model="l1", min_size=SHORTEST, jump=1).fit(logs.reshape(-1, 1))
    begins = search.predict(pen=PENALTY * sigma * math.log(len(values)))[:-1]
    while True:
        edges = [0, *begins, len(values)]
        levels = [float(numpy.median(logs[i:j])) for i, j in pairwise(edges)]
        steps = {int(begin): after - before for begin, (before, after) in zip(begins, pairwise(levels), strict=True)}
        smallest = min(steps, key=lambda begin: abs(steps[begin]), default=None)
        if smallest is None or abs(steps[smallest]) >= math.log1p(LEAST_STEP):
            return {begin: math.expm1(step) for begin, step in steps.items()}
        begins.remove(smallest)  # which joins two levels


def trends(records: Sequence[Record], metric: str) -> list[Trend]:
    """The trend of every point that has the metric, from records in the order of time."""
    runs: dict[str, list[tuple[float, str, str, str]]] = {}
    for record in records:
        made_by = record.provenance
        commit = (made_by.commit or "unknown")[:10] + ("+" if made_by.dirty else "")
        for point in results_of(record):
            value = point.metrics.get(metric)
            if point.status == "ok" and value is not None and value.value is not None and value.value > 0:
                row = float(value.value), value.unit, commit, made_by.started[:10]
                runs.setdefault(point.key, []).append(row)
    all_points = []
    for point_key, rows in runs.items():
        values, units, commits, days = zip(*rows, strict=True)
        all_points.append(Trend(point_key, units[0], values, commits, days, change_points(values)))
    return all_points


def overview(of_points: Sequence[Trend]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table with a row per point."""
    rows = []
    for trend in of_points:
        changes = [f"{step:+.1%} at {trend.commits[run]}" for run, step in trend.steps.items()]
        latest = trend.values[-1] / median(trend.values) - 1
        cells = [with_unit(value, trend.unit, DIGITS) for value in (trend.values[0], trend.values[-1])]
        rows.append([trend.point, str(len(trend.values)), *cells, f"{latest:+.1%}", "; ".join(changes) or "none"])
    return ["point", "runs", "first", "latest", "latest against median", "change points"], rows


def runs_of(trend: Trend) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table with a row per run of one point."""
    steps = {run: f"{step:+.1%} from here" for run, step in trend.steps.items()}
    rows = [
        [day, commit, with_unit(value, trend.unit, DIGITS), steps.get(i, "")]
        for i, (day, commit, value) in enumerate(zip(trend.days, trend.commits, trend.values, strict=True))
    ]
    return ["day", "commit", "value", "change point"], rows


def draw(of_points: Sequence[Trend], name: str, metric: str, machine: str) -> "Figure":
    """Each point's values relative to its first level, over runs; steps at the change points. Inside `theme.style()`.

    Of many points the ones with the largest steps are shown.
    """
    shown = sorted(of_points, key=lambda trend: -max(map(abs, trend.steps.values()), default=0.0))[:LINES]
    figure = theme.new_figure(theme.PAGE, 2.4)
    axes = figure.subplots()
    for color, marker, trend in zip(theme.PALETTE, theme.MARKERS, shown, strict=False):
        edges = [0, *trend.steps, len(trend.values)]
        reference = median(trend.values[: edges[1]])
        axes.plot([value / reference for value in trend.values], marker, color=color, alpha=0.6, label=trend.point)
        for i, j in pairwise(edges):
            level = median(trend.values[i:j]) / reference
            axes.plot([i - 0.4, j - 0.6], [level, level], color=color)
    longest = max(shown, key=lambda trend: len(trend.values))
    every = max(1, len(longest.commits) // 12)
    axes.set_xticks(range(0, len(longest.commits), every), [c[:7] for c in longest.commits[::every]], rotation=45)
    axes.set_xlabel("commit of the run, the oldest first")
    axes.set_ylabel(f"{metric.replace('_', ' ')} over the first level")
    axes.set_title(f"{name} on {machine}")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    theme.add_origin(figure, ["measured; lines: levels between change points (PELT)"])
    return figure
