"""Drawing: one style for all figures, and the line plot that most of them are.

Figures are 3.0 in wide (a column of the paper; time lines 5.2 in), in 7 pt, with fonts that stay text in the
PDF, in colours that are told apart with any colour vision. They are made from the record alone, with
matplotlib's figure objects, no global state; the same record gives the same bytes.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks.records import PointResult, Record
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import accuracy
from reproduce.experiment.predictions import counted, predicted, time_differences
from reproduce.experiment.quantities import Quantity, XAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.0
WIDE = 5.2
HEIGHT = 2.3
LEAST_GAP = 0.08  # between labelled ticks, of the axis
LETTER, HANDLE = 3.9, 25  # points that a letter and a handle of a legend take
# Okabe and Ito's, without the yellow; in this order neighbours differ under every colour deficiency.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "D", "v", "P")
# The paper's points, or what was predicted for ours: hollow, so that they can be seen around ours.
HOLLOW: Mapping[str, Any] = {
    "markersize": 5.5,
    "markerfacecolor": "none",
    "markeredgewidth": 0.8,
    "linestyle": (0, (2, 2)),
    "linewidth": 0.7,
}
# Points that do not fit, on the x axis.
OUT_OF_MEMORY: Mapping[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.0, "linestyle": "none"}
OOM = "out of memory"
STYLE: Mapping[str, Any] = {
    "font.size": 7,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "text.usetex": False,
    "savefig.dpi": 300,
    "svg.hashsalt": "ptdp",
}


@contextmanager
def style() -> Iterator[None]:
    """The suite's style, for as long as it lasts: over matplotlib's defaults, not over the user's own."""
    import matplotlib

    settings: Any = STYLE  # its keys are a closed list to the type checker
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> "Figure":
    """An empty figure of that size in inches, laid out so that nothing overlaps; draw inside `style()`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    FigureCanvasAgg(figure)
    return figure


def render(artifact: Artifact, record: Record) -> dict[str, bytes]:
    """`figure.pdf` and `figure.png` of a record, byte-stable; nothing for an artifact that draws none."""
    if artifact.draw is None:
        return {}
    with style():
        figure = artifact.draw(artifact, record)
        return {
            "figure.pdf": figure_bytes(
                figure, "pdf", {"CreationDate": None, "Title": f"{artifact.label}: {artifact.id}"}
            ),
            "figure.png": figure_bytes(figure, "png", {"Software": None}),
        }


def figure_bytes(figure: "Figure", format: str, metadata: Mapping[str, str | None]) -> bytes:
    """The figure as a file of that format, in memory."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format, metadata=dict(metadata))
    return buffer.getvalue()


def add_origin(figure: "Figure", lines: list[str]) -> None:
    """Small text at the foot of the figure that says where its numbers come from."""
    figure.supxlabel("\n".join(lines), fontsize=5.5, color="#555555")


def origin_lines(artifact: Artifact, record: Record) -> list[str]:
    """What the foot of a figure says: origin of our numbers and the paper's, how far apart they are."""
    hows = sorted({p.paper[artifact.main.name].how for p in record.points if artifact.main.name in p.paper})
    cluster = record.provenance.cluster
    ours = f"{record.fidelity}: ptdp on {cluster.name.capitalize()} model" if cluster else f"{record.fidelity}: ptdp"
    if record.fidelity == "measured":
        ours = f"measured: ptdp's engine on {devices(record)}; bars: range of samples"
    lines = [f"{ours}; hollow: paper ({', '.join(hows)})" if hows else ours]
    if times := time_differences(record.points):
        on = f", {cluster.name.capitalize()} model" if cluster else ""
        lines[0] = f"{record.fidelity}: ptdp's engine in real time{on}; hollow: simulated"
        lines.append(
            f"iteration time: mean error {times.mean:.1%} on {counted(times.count)} (worst {times.worst:+.1%})"
        )
    if found := accuracy(artifact, record.points):
        count = "1 published point" if found.count == 1 else f"{found.count} published points"
        apart = f"{record.fidelity}, mean error {found.mean:.1%} on {count} (worst {found.worst:.1%})"
        equal = f"all {found.count} points equal the paper's, as rounded"
        lines.append(equal if found.equal == found.count else apart)
    if record.state != "complete":
        lines.append("PARTIAL: the run was interrupted")
    return lines


def devices(record: Record) -> str:
    """What a measured record was measured on, in a few words."""
    host = record.provenance.host
    if record.scale == "cpu":
        return f"{host.logical_cores} cores of a CPU"
    used = 1 if record.scale == "gpu" else host.gpu_count
    return f"{used} x {host.gpus[0]}" if host.gpus else "GPUs"


def line_plot(
    artifact: Artifact, record: Record, looks: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> "Figure":
    """The main quantity over the x axis: a line per series for ours, hollow markers for the paper's or the predicted.

    For `Artifact.draw`. Points without a result leave a gap, a cross at the foot if they are out of memory; the y
    axis starts at zero, so that ratios can be seen. `looks` may give a series its own color, marker and linestyle.
    """
    import seaborn
    from matplotlib.lines import Line2D

    assert artifact.x_axis is not None
    main, series = artifact.main, list(dict.fromkeys(point.series for point in record.points))
    compared = next((name for name, there in _COMPARED.items() if there(artifact, record)), None)
    extra = [*([compared] if compared else []), *([OOM] if _has_oom(record) else [])]
    columns, rows = legend_shape([*(name or record.fidelity for name in series), *extra])
    figure = new_figure(height=HEIGHT + 0.14 * (rows - 1))
    axes = figure.subplots()
    positions = x_positions(artifact.x_axis, record)
    x_of = {point.key: positions[point.parameters[artifact.x_axis.parameter]] for point in record.points}
    handles = []
    unjoined = {"linestyle": "none"} if looks else {}  # the paper's dashes would hide what the looks say
    for index, name in enumerate(series):
        look: dict[str, Any] = {
            "color": PALETTE[index % len(PALETTE)],
            "marker": MARKERS[index % len(MARKERS)],
            "clip_on": False,
            **looks.get(name, {}),
        }
        points = [point for point in record.points if point.series == name]
        xs, ys = _ours(main, points, x_of)
        if xs:
            seaborn.lineplot(
                x=xs, y=ys, ax=axes, label=name or main.name, markeredgewidth=0, errorbar=None, legend=False, **look
            )
        for x, low, high in _spreads(main, points, x_of):
            axes.plot([x, x], [low, high], color=look["color"], linewidth=0.7)
        xs, ys = _others(main, points, x_of)
        if xs:
            axes.plot(xs, ys, label=f"{name} ({compared})".strip(), **{**look, **HOLLOW, **unjoined})
        if out := [x_of[point.key] for point in points if point.status == "oom"]:
            axes.plot(out, [0.0] * len(out), label=f"{name} ({OOM})".strip(), **{**look, **OUT_OF_MEMORY})
        handles.append(Line2D([], [], markeredgewidth=0, label=name or record.fidelity, **look))
    if compared:
        handles.append(Line2D([], [], color="#777777", marker="o", label=compared, **{**HOLLOW, **unjoined}))
    if _has_oom(record):
        handles.append(Line2D([], [], color="#777777", label=OOM, **OUT_OF_MEMORY))
    _label_axes(axes, artifact, record)
    figure.legend(handles=handles, loc="outside upper center", ncols=columns, columnspacing=1.0)
    add_origin(figure, origin_lines(artifact, record))
    return figure


def _has_paper(artifact: Artifact, record: Record) -> bool:
    return any(artifact.main.name in point.paper for point in record.points)


def _has_predictions(artifact: Artifact, record: Record) -> bool:
    return any(predicted(point, artifact.main.name) is not None for point in record.points)


_COMPARED = {"paper": _has_paper, "predicted": _has_predictions}


def _has_oom(record: Record) -> bool:
    return any(point.status == "oom" for point in record.points)


def legend_shape(labels: Sequence[str], width: float = WIDTH) -> tuple[int, int]:
    """Columns and rows of a legend with these labels over a figure `width` inches wide: as few rows as fit."""
    for columns in (3, 2, 1):
        rows = ceil(len(labels) / columns)
        widest = [max(len(label) for label in labels[at : at + rows]) for at in range(0, len(labels), rows)]
        if sum(LETTER * letters + HANDLE for letters in widest) <= 72 * width:
            break
    return ceil(len(labels) / rows), rows  # columns are filled from above: of four labels, two columns of two


def x_positions(x_axis: XAxis, record: Record) -> dict[Any, Any]:
    """Where each x value is drawn: at itself, or with scale 'category' at its rank."""
    values = dict.fromkeys(point.parameters[x_axis.parameter] for point in record.points)
    return {x: i if x_axis.scale == "category" else x for i, x in enumerate(values)}


def _ours(main: Quantity, points: list[PointResult], x_of: Mapping[str, Any]) -> tuple[list[Any], list[float]]:
    found = [
        (x_of[point.key], metric.value / main.factor)
        for point in points
        if (metric := point.metrics.get(main.name)) is not None and metric.value is not None
    ]
    return [x for x, _ in found], [y for _, y in found]


def _spreads(main: Quantity, points: list[PointResult], x_of: Mapping[str, Any]) -> list[tuple[Any, float, float]]:
    """Where measured points have their smallest and their largest sample."""
    return [
        (x_of[point.key], min(metric.samples) / main.factor, max(metric.samples) / main.factor)
        for point in points
        if (metric := point.metrics.get(main.name)) is not None and metric.origin == "measured" and metric.samples
    ]


def _others(main: Quantity, points: list[PointResult], x_of: Mapping[str, Any]) -> tuple[list[Any], list[float]]:
    """What ours is compared with: the paper's values, or where there are none the predicted ones."""
    papers = [(x_of[point.key], point.paper[main.name].value) for point in points if main.name in point.paper]
    found = papers or [
        (x_of[point.key], value) for point in points if (value := predicted(point, main.name)) is not None
    ]
    return [x for x, _ in found], [value / main.factor for _, value in found]


def _label_axes(axes: "Axes", artifact: Artifact, record: Record) -> None:
    x_axis = artifact.x_axis
    assert x_axis is not None
    axes.set_xlabel(x_axis.label)
    axes.set_ylabel(artifact.main.axis or artifact.main.heading)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)  # room for the markers at the top
    if x_axis.scale == "log2":
        axes.set_xscale("log", base=2)
    labels = {point.parameters[x_axis.parameter]: point.label for point in record.points}
    positions = x_positions(x_axis, record)
    texts = [labels[x] if x_axis.scale == "category" else str(x) for x in positions]
    if x_axis.scale == "linear":
        texts = _apart(list(positions.values()), texts)
    axes.set_xticks(list(positions.values()), labels=texts)
    axes.minorticks_off()


def _apart(positions: Sequence[float], texts: Sequence[str]) -> list[str]:
    """The texts of ticks, without those too close to the one before to be read."""
    least = (max(positions) - min(positions)) * LEAST_GAP
    shown: list[str] = [""] * len(texts)
    last = float("-inf")
    for at, index in sorted((at, index) for index, at in enumerate(positions)):
        if at - last >= least:
            shown[index], last = texts[index], at
    return shown
