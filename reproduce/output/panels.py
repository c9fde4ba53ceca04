"""The two kinds of panel that the figures of benchmarks are made of: curves over a size, and groups of bars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness.points import size_text
from benchmarks.harness.timing import Samples
from benchmarks.records import PointResult
from reproduce.output.frame import HIGH, LOW
from reproduce.output.theme import MARKERS, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW, TALL_ROW, CURVE = 0.15, 0.25, 1.5  # inches that a bar, one with two lines of text beside it, and a curve take
LABELS = 5  # on an axis of sizes
LONG = 20  # letters beside a bar
WIDE_RANGE = 20  # values further apart than this ratio need a logarithmic axis
GAP = 0.35  # between groups of bars, in bars


@dataclass(frozen=True)
class Panel:
    """Points that have `metric`, in units of `factor` base units, under the axis label `axis`.

    With `x`, a parameter of the points, a curve per series over it (on a logarithmic axis); else a bar per point, in
    groups by `group`. `target` is a value to compare with, drawn as a line.
    """

    metric: str
    factor: float
    axis: str
    x: str | None = None
    x_axis: str = ""
    title: str = ""
    where: Callable[[PointResult], bool] = lambda point: True
    group: Callable[[PointResult], str] = lambda point: point.label
    target: float | None = None

    def chosen(self, points: Sequence[PointResult]) -> list[PointResult]:
        """Those that this panel shows."""
        return [point for point in points if self.metric in point.metrics and self.where(point)]

    def needs_legend(self, points: Sequence[PointResult]) -> bool:
        """Whether there are several series, and bars are not named after them."""
        chosen = self.chosen(points)
        named = self.x is None and all(self.group(point) == point.series for point in chosen)
        return len({point.series for point in chosen}) > 1 and not named

    def height(self, points: Sequence[PointResult]) -> float:
        """Inches between the axes, without what is around them."""
        chosen = self.chosen(points)
        if self.x is not None:
            return CURVE
        groups, bars = {self.group(point) for point in chosen}, self._side_by_side(chosen)
        tall = bars == 1 and any("\n" in _broken(name) for name in groups)
        return (TALL_ROW if tall else ROW) * (bars + GAP) * len(groups)

    def draw(self, axes: "Axes", points: Sequence[PointResult], colors: Mapping[str, str]) -> None:
        """Draw the points; `colors` by series."""
        chosen = self.chosen(points)
        if self.title:
            axes.set_title(self.title)
        if self.x is not None:
            self._curves(axes, chosen, colors)
        else:
            self._bars(axes, chosen, colors)

    def _curves(self, axes: "Axes", points: list[PointResult], colors: Mapping[str, str]) -> None:
        from pandas import DataFrame

        from reproduce.output.figures import series_lines

        rows = [
            (point.series, float(point.parameters[str(self.x)] or 0), self._value(point), *self._span(point))
            for point in points
        ]
        data = DataFrame(rows, columns=["series", "x", "value", "low", "high"])
        names = enumerate(dict.fromkeys(data.series))
        styles = {name: {"color": colors[name], "marker": MARKERS[i % len(MARKERS)]} for i, name in names}
        series_lines(axes, data, styles, err_style="band")
        axes.set_xscale("log", base=2)
        values = [self._value(point) for point in points]
        if max(values) > WIDE_RANGE * min(values):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        sizes = sorted({int(point.parameters[str(self.x)] or 0) for point in points})
        sizes = sizes[:: -(-len(sizes) // LABELS)]
        axes.set_xticks(sizes, [size_text(size) if self.x == "bytes" else str(size) for size in sizes])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_xlabel(self.x_axis)
        axes.set_ylabel(self.axis)
        axes.grid(visible=True, axis="both")

    def _bars(self, axes: "Axes", points: list[PointResult], colors: Mapping[str, str]) -> None:
        import seaborn
        from pandas import DataFrame

        # Of low, value and high, the median is the value and the range the bar.
        rows = [
            (_broken(self.group(point)), point.series, number)
            for point in points
            for number in (self._value(point), *self._span(point))
        ]
        data = DataFrame(rows, columns=["group", "series", "number"])
        names, bars = list(dict.fromkeys(data.series)), self._side_by_side(points)
        seaborn.barplot(
            data, x="number", y="group", hue="series", hue_order=names, palette=[colors[name] for name in names],
            saturation=1, dodge=bars > 1, width=1 - GAP / (bars + GAP), estimator="median", errorbar=("pi", 100),
            err_kws={"color": "black", "linewidth": 0.7}, legend=False, ax=axes,
        )  # fmt: skip
        for name, container in zip(names, axes.containers, strict=True):
            container.set_label(name)
        axes.set_ylabel("")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        if self.target is not None:
            axes.axvline(self.target, color="black", linewidth=0.7, linestyle=(0, (2, 2)))
        axes.set_xlim(left=0)
        axes.set_xlabel(self.axis)

    def _side_by_side(self, points: Sequence[PointResult]) -> int:
        """How many bars a group has room for: one if no group has several series, else one for each series."""
        pairs = {(self.group(point), point.series) for point in points}
        groups = {group for group, _ in pairs}
        return 1 if len(groups) == len(pairs) else len({series for _, series in pairs})

    def _value(self, point: PointResult) -> float:
        return (point.metrics[self.metric].value or 0.0) / self.factor

    def _span(self, point: PointResult) -> tuple[float, float]:
        """Where most samples lie; for a value without samples, the value twice."""
        metric = point.metrics[self.metric]
        samples = Samples(tuple(metric.samples or (metric.value or 0.0,)))
        return samples.quantile(LOW) / self.factor, samples.quantile(HIGH) / self.factor


def _broken(name: str) -> str:
    """A name beside a bar, on two lines if it is long."""
    return name.replace(", ", ",\n") if len(name) > LONG else name


def colors_of(points: Sequence[PointResult]) -> dict[str, str]:
    """A color per series, in the order of the points."""
    names = dict.fromkeys(point.series for point in points)
    return {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(names)}
