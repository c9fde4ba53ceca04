"""The figure of a benchmark, from its record alone: what `reproduce bench run` wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING

from pandas import DataFrame, concat

from benchmarks.harness.benchmark_list import BENCHMARKS, NOT_QUIET, results_of
from benchmarks.harness.points import size_text
from reproduce.output import colours, theme
from reproduce.output.chart import Mark
from reproduce.output.columns import HIGH, LOW
from reproduce.output.figures import series_lines
from reproduce.output.frame import frame
from reproduce.output.tables import csv_text
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MS = 1e-3
LEGEND_ROW, FOOT, AROUND = 0.14, 0.35, 0.42  # inches of a row of the legend, the small print, and a panel's labels
ROW, TALL_ROW, CURVE = 0.15, 0.25, 1.5  # inches that a bar, one with two lines of text beside it, and a curve take
TICKS = 5  # at most, on an axis of sizes
LONG = 20  # letters beside a bar
WIDE_RANGE = 20  # values further apart than this ratio need a logarithmic axis
GAP = 0.35  # between groups of bars, in bars


@dataclass(frozen=True)
class Panel:
    """The rows of the tidy frame that have `metric`, in units of `factor` base units, under the axis label `axis`.

    With `x`, a parameter, a curve per series over it (on a logarithmic axis); else a bar per row, in groups by the
    column `group`. `where` is a query that leaves only some rows; `target` a value to compare with, drawn as a line.
    """

    metric: str
    factor: float
    axis: str
    x: str = ""
    x_axis: str = ""
    title: str = ""
    where: str = ""
    group: str = "label"
    target: float | None = None

    def chosen(self, tidy: DataFrame) -> DataFrame:
        """What the panel shows: series, group, x, value; low and high, between which most samples lie (80%), if any."""
        rows = tidy[tidy.metric == self.metric]
        rows = rows.query(self.where) if self.where else rows
        numbers = rows[["value"]].assign(low=rows.low.fillna(rows.value), high=rows.high.fillna(rows.value))
        groups = rows[self.group].map(_broken)
        return (numbers / self.factor).assign(series=rows.series, group=groups, x=rows.get(self.x))

    def needs_legend(self, data: DataFrame) -> bool:
        """Whether there are several series, and bars are not named after them."""
        return data.series.nunique() > 1 and (bool(self.x) or self.group != "series")

    def height(self, data: DataFrame) -> float:
        """Inches between the axes, without what is around them."""
        if self.x:
            return CURVE
        bars = _side_by_side(data)
        tall = bars == 1 and data.group.str.contains("\n").any()
        return (TALL_ROW if tall else ROW) * (bars + GAP) * data.group.nunique()

    def draw(self, axes: "Axes", data: DataFrame, colors: Mapping[str, str]) -> None:
        """Draw what was chosen; `colors` by series."""
        if self.title:
            axes.set_title(self.title)
        if self.x:
            self._curves(axes, data, colors)
        else:
            self._bars(axes, data, colors)

    def _curves(self, axes: "Axes", data: DataFrame, colors: Mapping[str, str]) -> None:
        styles = {
            name: {"color": colors[name], "marker": marker}
            for name, marker in zip(data.series.unique(), cycle(theme.MARKERS), strict=False)
        }
        rows = data.astype({"x": float})[["series", "x", "value", "low", "high"]].itertuples(index=False, name=None)
        series_lines(axes, [Mark(*row) for row in rows], styles, spread="band")
        axes.set_xscale("log", base=2)
        if data.value.max() > WIDE_RANGE * data.value.min():
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        sizes = sorted(map(int, data.x.unique()))
        sizes = sizes[:: -(-len(sizes) // TICKS)]
        axes.set_xticks(sizes, [size_text(size) if self.x == "bytes" else str(size) for size in sizes])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
        axes.set_xlabel(self.x_axis)
        axes.set_ylabel(self.axis)
        axes.grid(visible=True, axis="both")

    def _bars(self, axes: "Axes", data: DataFrame, colors: Mapping[str, str]) -> None:
        import seaborn

        # Of low, value and high, the median is the value and the range the bar.
        numbers = data.melt(["group", "series"], ["value", "low", "high"], value_name="number")
        names, bars = list(data.series.unique()), _side_by_side(data)
        seaborn.barplot(
            numbers, x="number", y="group", hue="series", hue_order=names, palette=[colors[name] for name in names],
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


def _side_by_side(data: DataFrame) -> int:
    """How many bars a group has room for: one if no group has several series, else one for each series."""
    pairs = data[["group", "series"]].drop_duplicates()
    return int(pairs.series.nunique()) if pairs.group.duplicated().any() else 1


def _broken(name: str) -> str:
    """A name beside a bar, on two lines if it is long."""
    return (name.replace(", ", ",\n") if len(name) > LONG else name).replace("_", " ")


Rows = Sequence[tuple[Panel, ...]]


def render(record: Record, look: theme.FigureLook = theme.USUAL, name: str = "figure") -> dict[str, bytes]:
    """The figure of a benchmark's record in the look's formats, by file name. Nothing if nothing was measured."""
    if not any(point.status == "ok" for point in results_of(record)):
        return {}
    with theme.style(look):
        return theme.figure_files(draw(record), f"Benchmark: {record.id}", name, look, lambda: csv_text(record))


def draw(record: Record) -> "Figure":
    """The panels of the benchmark, a legend if there are several series, and where the numbers come from."""
    tidy = frame(replace(record, points=tuple(results_of(record))))
    own = [(Panel(**row),) for row in BENCHMARKS[record.id].panels]
    panels = fused_panels(tidy) if record.id == "fused_kernels" else own
    rows = [[(panel, panel.chosen(tidy)) for panel in row] for row in panels]
    rows = [row for row in rows if any(len(data) for _, data in row)]
    shown = [each for row in rows for each in row]
    series = concat([data.series for _, data in shown]).unique()
    colors = dict(zip(series, cycle(colours.PALETTE), strict=False))
    width = theme.PAGE if max(map(len, rows)) > 1 else theme.COLUMN
    heights = [max(panel.height(data) for panel, data in row) for row in rows]
    needs_legend = any(panel.needs_legend(data) for panel, data in shown)
    columns = theme.legend_columns(list(colors), theme.figure_width(width))
    legend_rows = len(columns[0]) if needs_legend else 0
    titles = sum(any(panel.title for panel, _ in row) for row in rows)
    figure = theme.new_figure(width, sum(heights) + AROUND * len(rows) + LEGEND_ROW * (legend_rows + titles) + FOOT)
    grid = figure.subplots(len(rows), max(map(len, rows)), squeeze=False, height_ratios=heights)
    for (panel, data), axes in zip(shown, grid.flat, strict=True):
        panel.draw(axes, data, colors)
    if needs_legend:
        handles = {
            label: handle
            for axes in figure.axes
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=len(columns), columnspacing=1.0
        )
    theme.add_origin(figure, origin_lines(record))
    return figure


def fused_panels(tidy: DataFrame) -> Rows:
    """Forward beside backward: shares of a copy's bandwidth for each model, then the layouts of attention."""
    ways = ("forward", "backward")
    axis = "share of a copy's bandwidth (%)"
    shares = [
        tuple(
            # The target is what a memory-bound kernel should reach.
            Panel(f"{way}_share_of_copy", 0.01, axis, title=f"{model}, {way}", target=85, where=f"model == {model!r}")
            for way in ways
        )
        for model in tidy.model.dropna().unique()
    ]
    layouts = tuple(
        Panel(f"{way}_time", MS, "time (ms)", title=f"attention, {way}", where="label == 'attention'", group="model")
        for way in ways
    )
    return (*shares, layouts)


def origin_lines(record: Record) -> list[str]:
    """What the foot of the figure says: measured where, with what, and whether the machine was quiet."""
    host, versions = record.provenance.host, record.provenance.versions
    on_gpu = any(str(point.parameters.get("device", "")).startswith("cuda") for point in record.points)
    where = f"{host.gpu_count} x {', '.join(host.gpus)}" if on_gpu and host.gpus else host.cpu or host.machine
    cores = "" if on_gpu or not host.logical_cores else f", {host.logical_cores} cores"
    lines = [f"measured by ptdp, {record.scale} run, torch {versions.get('torch', '?')}", f"{where}{cores}"]
    lines.append(f"whiskers and bands: from {LOW:.0%} to {HIGH:.0%} of the samples")
    if any(note.startswith(NOT_QUIET) for note in record.notes):
        lines.append(NOT_QUIET.upper())
    return lines
