"""The figure of a benchmark, from its record alone: what `reproduce bench run` wrote."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.harness.runner import NOT_QUIET, results_of
from benchmarks.records import PointResult, Record
from reproduce.output import theme
from reproduce.output.frame import HIGH, LOW
from reproduce.output.panels import Panel, colors_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MS, US = 1e-3, 1e-6
LEGEND_ROW, FOOT, AROUND = 0.14, 0.35, 0.42  # inches of a row of the legend, the small print, and a panel's labels
Rows = tuple[tuple[Panel, ...], ...]

_BYTES = "message size"
PANELS: dict[str, Rows] = {
    "gemm": (
        (Panel("speed", 1e9, "speed (gigaFLOP/s)", "m", "m = n = k", where=lambda point: point.series == "square"),),
        (Panel("speed", 1e9, "products of a layer (gigaFLOP/s)", where=lambda point: point.series == "layer"),),
    ),
    "memory": (
        (Panel("bandwidth", 1e9, "bandwidth (GB/s)", "bytes", "size of the copy"),),
        (Panel("time", US, "time per kernel (µs)", where=lambda p: p.series != "copy", group=lambda p: p.series),),
    ),
    "layer": ((Panel("speed", 1e9, "speed per rank (gigaFLOP/s)"),),),
    "p2p": ((Panel("bandwidth", 1e9, "bandwidth (GB/s)", "bytes", _BYTES),),),
    "collectives": ((Panel("bus_bandwidth", 1e9, "bus bandwidth (GB/s)", "bytes", _BYTES),),),
    "pipeline_step": ((Panel("time", MS, "time of a batch (ms)"),),),
    "train_step": ((Panel("ratio", 1.0, "their time over the engine's", target=1.0),),),
    "gpu_step": ((Panel("mfu", 0.01, "model FLOPs utilisation (%)"),),),
    "optimizer_step": ((Panel("time", MS, "time of a step (ms)"),),),
    "checkpoint": ((Panel("bandwidth", 1e9, "bandwidth (GB/s)"),),),
    "data_loading": ((Panel("tokens", 1e6, "million tokens/s"),),),
    "simulator_rate": ((Panel("rate", 1.0, "configurations/s", group=lambda point: point.series),),),
    "startup": ((Panel("time", MS, "time (ms)"),),),
}


def render(record: Record, look: theme.Look = theme.USUAL, name: str = "figure") -> dict[str, bytes]:
    """The figure of a benchmark's record in the look's formats, by file name. Nothing if nothing was measured."""
    if not any(point.status == "ok" for point in results_of(record)):
        return {}
    with theme.style(look):
        return theme.figure_files(draw(record), f"Benchmark: {record.id}", name, look)


def draw(record: Record) -> "Figure":
    """The panels of the benchmark, a legend if there are several series, and where the numbers come from."""
    points = results_of(record)
    rows = fused_panels(points) if record.id == "fused_kernels" else PANELS[record.id]
    rows = tuple(row for row in rows if any(panel.chosen(points) for panel in row))
    width = theme.PAGE if max(map(len, rows)) > 1 else theme.COLUMN
    heights = [max(panel.height(points) for panel in row) for row in rows]
    colors = colors_of([point for row in rows for panel in row for point in panel.chosen(points)])
    needs_legend = any(panel.needs_legend(points) for row in rows for panel in row)
    columns = theme.legend_columns(list(colors), theme.figure_width(width))
    legend_rows = len(columns[0]) if needs_legend else 0
    titles = sum(any(panel.title for panel in row) for row in rows)
    figure = theme.new_figure(width, sum(heights) + AROUND * len(rows) + LEGEND_ROW * (legend_rows + titles) + FOOT)
    grid = figure.subplots(len(rows), max(map(len, rows)), squeeze=False, height_ratios=heights)
    for row, axes in zip(rows, grid, strict=True):
        for panel, place in zip(row, axes, strict=True):
            panel.draw(place, points, colors)
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


def fused_panels(points: Sequence[PointResult]) -> Rows:
    """Forward beside backward: shares of a copy's bandwidth for each model, then the layouts of attention."""
    models = dict.fromkeys(str(point.parameters["model"]) for point in points if "model" in point.parameters)
    ways = ("forward", "backward")
    shares = tuple(
        tuple(
            Panel(
                f"{way}_share_of_copy",
                0.01,
                "share of a copy's bandwidth (%)",
                title=f"{model}, {way}",
                target=85,  # what a memory-bound kernel should reach
                where=lambda point, model=model: point.parameters.get("model") == model,  # type: ignore[misc]
                group=lambda point: point.label.replace("_", " "),
            )
            for way in ways
        )
        for model in models
    )
    layouts = tuple(
        Panel(
            f"{way}_time",
            MS,
            "time (ms)",
            title=f"attention, {way}",
            where=lambda point: point.label == "attention",
            group=lambda point: str(point.parameters["model"]),
        )
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
