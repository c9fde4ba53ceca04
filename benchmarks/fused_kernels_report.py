"""The table and the figure of a record of `benchmarks.fused_kernels`. Everything drawn is in the record."""

import csv
import io
import platform
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from benchmarks.records import PointResult, Record

if TYPE_CHECKING:
    import torch
    from matplotlib.axes import Axes

STEPS = ("forward", "backward")
COLUMNS = ("operator", "model", "implementation", "step", "time_s", "share_of_copy", "speedup", "remark")
COLOURS = {
    "reference": "#999999",
    "compiled": "#0072b2",
    "triton": "#e69f00",
    "[b, s, a, h]": "#999999",
    "[s, b, a, h]": "#0072b2",
    "sdpa": "#e69f00",
}
TARGET = 0.85


def device_name(device: "torch.device") -> str:
    """The model of the GPU, or the architecture of the CPU (its model is in the record's provenance)."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def progress(what: str) -> None:
    """Say on a terminal what is being measured."""
    if sys.stderr.isatty():
        print(f"measuring {what}", file=sys.stderr)


def rows(record: Record) -> list[dict[str, Any]]:
    """The table: one row per operator, model, implementation and step; numbers as in the record, or None."""
    found = []
    for point in _measured(record):
        for step in STEPS:
            values = {name: point.metrics.get(f"{step}_{name}") for name in ("time", "share_of_copy", "speedup")}
            numbers = [metric.value if metric else None for metric in values.values()]
            remark = f"{point.status}: {point.reason}" if point.reason else ""
            cells = (point.label, point.parameters["model"], point.series, step, *numbers, remark)
            found.append(dict(zip(COLUMNS, cells, strict=True)))
    return found


def table(record: Record) -> str:
    """The table as Markdown, forward and backward side by side; skipped implementations are named below it."""
    bandwidth = record.points[0].metrics["bandwidth"].value or 0.0
    head = ["operator", "model", "implementation"]
    head += [f"{step} {what}" for step in STEPS for what in ("ms", "of copy", "speed-up")]
    lines = [head, ["---"] * 3 + ["---:"] * 6]
    for point in _measured(record):
        if point.status == "ok":
            cells = [point.label, str(point.parameters["model"]), point.series]
            for step in STEPS:
                cells += [
                    _shown(point, f"{step}_time", lambda x: f"{x * 1e3:.3f}"),
                    _shown(point, f"{step}_share_of_copy", lambda x: f"{x:.0%}"),
                    _shown(point, f"{step}_speedup", lambda x: f"{x:.2f}"),
                ]
            lines.append(cells)
    skipped = {f"{p.series}: {p.status}, {p.reason}" for p in _measured(record) if p.status != "ok"}
    text = ["| " + " | ".join(cells) + " |" for cells in lines]
    text += ["", f"{origin(record)}. Copy: {bandwidth / 1e9:.1f} GB/s."]
    return "\n".join(text + sorted(skipped)) + "\n"


def origin(record: Record) -> str:
    """Where the numbers come from, in one line."""
    parameters, host = record.points[0].parameters, record.provenance.host
    device = parameters["device"] if not parameters["threads"] else host.cpu or parameters["device"]
    count = parameters["threads"]
    threads = f", {count} thread{'s' if count != 1 else ''}" if count else ""
    sequence = record.points[1].parameters["s"] if len(record.points) > 1 else "?"
    torch_version = record.provenance.versions.get("torch", "?")
    return f"measured: {device}{threads}, {parameters['dtype']}, s={sequence}, torch {torch_version}"


def files(record: Record) -> dict[str, bytes]:
    """table.md, table.csv, figure.pdf and figure.png."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(record))
    return {"table.md": table(record).encode(), "table.csv": text.getvalue().encode(), **_figures(record)}


def _figures(record: Record) -> dict[str, bytes]:
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 7, "pdf.fonttype": 42, "axes.spines.top": False, "axes.spines.right": False}):
        figure = draw(record)
        made = {}
        for kind, metadata in (("pdf", {"CreationDate": None}), ("png", {"Software": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
            made[f"figure.{kind}"] = buffer.getvalue()
    return made


def draw(record: Record) -> Any:
    """Bars of the share of a copy's bandwidth, forward and backward, one row per model; at the right the layouts."""
    from matplotlib.figure import Figure

    points = [point for point in _measured(record) if point.status == "ok"]
    models = list(dict.fromkeys(str(point.parameters["model"]) for point in points))
    figure = Figure(figsize=(7.2, 0.4 + 1.9 * len(models)), layout="constrained")
    grid = figure.subplots(len(models), 3, squeeze=False, width_ratios=(3, 3, 1))
    for model, axes in zip(models, grid, strict=True):
        own = [point for point in points if point.parameters["model"] == model]
        for step, panel in zip(STEPS, axes, strict=False):
            _bars(panel, [point for point in own if f"{step}_share_of_copy" in point.metrics], f"{step}_share_of_copy")
            panel.axhline(TARGET, color="black", linewidth=0.6, linestyle=":")
            panel.annotate(f"{TARGET:.0%}", (1, TARGET), xycoords=("axes fraction", "data"), va="bottom", ha="right")
            panel.set_title(f"{model}, {step}")
            panel.set_ylabel("share of copy bandwidth")
        _layouts(axes[2], [point for point in own if point.label == "attention"])
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
    figure.supxlabel(origin(record), fontsize=6)
    return figure


def _bars(axes: "Axes", points: list[PointResult], metric: str) -> None:
    operators = list(dict.fromkeys(point.label for point in points))
    series = list(dict.fromkeys(point.series for point in points))
    width = 0.8 / max(1, len(series))
    for place, name in enumerate(series):
        own = [point for point in points if point.series == name]
        at = [operators.index(point.label) + (place + 0.5) * width - 0.4 for point in own]
        axes.bar(at, [point.metrics[metric].value or 0.0 for point in own], width, color=COLOURS[name], label=name)
    axes.set_xticks(range(len(operators)), [name.replace("_", "\n") for name in operators], fontsize=5.5)


def _layouts(axes: "Axes", points: list[PointResult]) -> None:
    for place, point in enumerate(points):
        total = sum(point.metrics[f"{step}_time"].value or 0.0 for step in STEPS)
        axes.bar(place, total * 1e3, 0.7, color=COLOURS[point.series])
    axes.set_xticks(range(len(points)), [point.series for point in points], rotation=40, ha="right")
    axes.set_title("attention")
    axes.set_ylabel("forward + backward (ms)")


def _measured(record: Record) -> Iterable[PointResult]:
    return (point for point in record.points if point.series != "copy")


def _shown(point: PointResult, metric: str, show: Any) -> str:
    value = point.metrics[metric].value if metric in point.metrics else None
    return "" if value is None else show(value)
