"""The figures of records: the line plot that most of them are, and drawing any of them as files."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, log2
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from benchmarks.records import Record
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import accuracy
from reproduce.experiment.predictions import PREFIX, counted, time_differences
from reproduce.output.theme import (
    HEIGHT,
    MARKERS,
    OOM,
    OUT_OF_MEMORY,
    PALETTE,
    PREDICTED,
    add_origin,
    figure_bytes,
    hollow,
    legend_shape,
    new_figure,
    style,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from pandas import DataFrame

LEAST_GAP = 0.08  # between labelled ticks, of the axis
HIDDEN = 0.02  # a series this close to another one, relative to its largest value, lies under it
LARGEST_GAP, UNEVEN = 0.35, 1.3  # between neighbours on a linear axis: of the axis, and of evenly spaced ones


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


def origin_lines(artifact: Artifact, record: Record) -> list[str]:
    """What the foot of a figure says: origin of our numbers and the paper's, how far apart they are."""
    hows = sorted({p.paper[artifact.main.name].how for p in record.points if artifact.main.name in p.paper})
    cluster = record.provenance.cluster
    ours = f"{record.fidelity}: ptdp on {cluster.name.capitalize()} model" if cluster else f"{record.fidelity}: ptdp"
    if record.fidelity == "measured":
        ours = f"measured: ptdp's engine on {devices(record)}; bars: 80% of the samples"
    lines = [f"{ours}; hollow: paper ({', '.join(hows)})" if hows else ours]
    if times := time_differences(record.points):
        on = f", {cluster.name.capitalize()} model" if cluster else ""
        lines[0] = f"{record.fidelity}: ptdp's engine in real time{on}; short bars: simulated"
        lines.append(
            f"iteration time: mean error {times.mean:.1%} on {counted(times.count)} (worst {times.worst:+.1%})"
        )
    if found := accuracy(artifact, record.points):
        count = "1 published point" if found.count == 1 else f"{found.count} published points"
        apart = f"{record.fidelity}, mean error {found.mean:.1%} on {count} (worst {found.worst:.1%})"
        equal = f"all {found.count} points equal the paper's, as rounded"
        lines.append(equal if found.equal == found.count else apart)
    if record.scale == "cpu":
        lines.append("the ranks share these cores: this tests no claim of the paper")
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
    """The main quantity over the x axis: for `Artifact.draw`.

    A line per series for ours, with bars over 80% of the samples where there are samples. The paper's values are hollow
    markers on a broad pale line below ours, what was predicted is a short bar, a point out of memory is a cross above
    the axes. A series that lies under later ones is broader, so that it is seen. The y axis starts at zero, so that
    ratios can be seen. `looks` may give a series its own color, marker and linestyle.
    """
    from matplotlib.lines import Line2D

    assert artifact.x_axis is not None
    data = chart_data(artifact, record)
    names = list(dict.fromkeys(data.series))
    styles = {
        name: {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)], **looks.get(name, {})}
        for i, name in enumerate(names)
    }
    keys = [key for key, there in (("paper", "paper"), ("predicted", "predicted")) if data[there].notna().any()]
    keys += [OOM] if "oom" in set(data.status) else []
    columns, rows = legend_shape([name or record.fidelity for name in names])
    figure = new_figure(height=HEIGHT + 0.14 * (rows - 1 + bool(keys)))
    axes = figure.subplots()
    lines = series_lines(axes, data, styles)
    for name, line in lines.items():
        line.set(**_breadth(data, name))
    others: dict[str, list[Artist]] = {key: [] for key in keys}
    for name, look in styles.items():
        for key, artist in _draw_others(axes, data[data.series == name], name, look):
            others[key].append(artist)
    _label_axes(axes, artifact, data)
    handles = {name or record.fidelity: lines.get(name) or Line2D([], [], **look) for name, look in styles.items()}
    _legend(figure, handles, others, columns)
    add_origin(figure, origin_lines(artifact, record))
    _fit_label(figure, axes)
    return figure


def chart_data(artifact: Artifact, record: Record) -> "DataFrame":
    """A row per point, by key: series, label, status, at (its x value), x (where that is drawn), and its numbers."""
    from reproduce.output.frame import column, frame

    assert artifact.x_axis is not None
    tidy, parameter = frame(record), column(artifact.x_axis.parameter)
    points = tidy.drop_duplicates("key").set_index("key")[["series", "label", "status"]]
    points["at"] = tidy.drop_duplicates("key").set_index("key")[parameter]
    numbers = tidy[tidy.metric == artifact.main.name].set_index("key")[["value", "low", "high", "paper"]]
    numbers["predicted"] = tidy[tidy.metric == PREFIX + artifact.main.name].set_index("key").value
    category = artifact.x_axis.scale == "category"
    places = {at: i for i, at in enumerate(dict.fromkeys(points["at"]))}
    points["x"] = points["at"].map(places) if category else points["at"].astype(float)
    return points.join(numbers / artifact.main.factor)


def series_lines(
    axes: "Axes", data: "DataFrame", styles: Mapping[str, Mapping[str, Any]], err_style: str = "bars"
) -> "dict[str, Line2D]":
    """The values over x by seaborn, with what lies between low and high as bars or a band: the line of each series.

    `data` has the columns series, x, value, low, high; `styles` the color, marker and perhaps the linestyle by series.
    """
    import seaborn

    # Of low, value and high, the median is the value and the range the bar.
    numbers = data.melt(["series", "x"], ["value", "low", "high"], value_name="y").dropna()
    there = [name for name in styles if (numbers.series == name).any()]
    seaborn.lineplot(
        numbers, x="x", y="y", hue="series", style="series", hue_order=there, style_order=there, ax=axes, legend=False,
        palette={name: styles[name]["color"] for name in there}, dashes=False, clip_on=False, markeredgewidth=0,
        markers={name: styles[name]["marker"] for name in there}, estimator="median",
        errorbar=("pi", 100) if data.low.notna().any() else None, err_style=err_style,
        err_kws={"elinewidth": 0.7} if err_style == "bars" else {"linewidth": 0},
    )  # fmt: skip
    drawn = [line for line in axes.lines if line.get_linestyle() != "None"]  # bars come with a line that is none
    for name, line in zip(there, drawn, strict=True):
        line.set(label=name, linestyle=styles[name].get("linestyle", "-"))
    return dict(zip(there, drawn, strict=True))


def _breadth(data: "DataFrame", name: str) -> dict[str, Any]:
    """How broad a series is drawn: broader for each later series that lies on it."""
    values = data.pivot_table(index="x", columns="series", values="value", sort=False)
    later = values.loc[:, name:].iloc[:, 1:]
    apart = later.sub(values[name], axis=0).abs().max() / values[name].max()
    hidden = int((apart < HIDDEN).sum())
    return {"linewidth": 1.2 + 1.3 * hidden, "markersize": 4 + 2.5 * hidden}


def _draw_others(
    axes: "Axes", points: "DataFrame", name: str, look: Mapping[str, Any]
) -> "Iterator[tuple[str, Artist]]":
    """What a series is compared with, and where it has no value: each with the key that it has in the legend."""
    drawn = {key: points.dropna(subset=key) for key in ("paper", "predicted")}
    for (key, rows), marks in zip(drawn.items(), (hollow(look["color"], look["marker"]), PREDICTED), strict=True):
        if len(rows):
            yield key, axes.plot(rows.x, rows[key], label=f"{name} ({key})".strip(), clip_on=False, **marks)[0]
    out = points[points.status == "oom"]
    if len(out):
        taken = sum(str(line.get_label()).endswith(f"({OOM})") for line in axes.lines)  # crosses of other series
        above = {"transform": axes.get_xaxis_transform(), "clip_on": False, "color": look["color"], **OUT_OF_MEMORY}
        heights = [1.03 + 0.05 * taken] * len(out)
        yield OOM, axes.plot(out.x, heights, label=f"{name} ({OOM})".strip(), **above)[0]


def _legend(
    figure: "Figure", series: "Mapping[str, Line2D]", others: "Mapping[str, list[Artist]]", columns: int
) -> None:
    """The series, and in a row of their own what else is drawn, as it looks for up to three of them."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    rows = ceil(len(series) / columns)
    entries: list[list[Any]] = [[*series.items()][at : at + rows] for at in range(0, len(series), rows)]
    further = [(key, tuple(lines[: 1 if key == "predicted" else 3])) for key, lines in others.items()]
    blank = ("", Line2D([], [], linestyle="none"))
    entries += [[] for _ in range(len(further) - len(entries))]
    for i, column in enumerate(entries):  # a legend is filled column by column
        column += [blank] * (rows - len(column))
        if further:
            column.append(further[i] if i < len(further) else blank)
    flat = [entry for column in entries for entry in column]
    figure.legend(
        [handle for _, handle in flat], [label for label, _ in flat], loc="outside upper center", ncols=len(entries),
        columnspacing=1.0, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.4)},
    )  # fmt: skip


def _label_axes(axes: "Axes", artifact: Artifact, data: "DataFrame") -> None:
    x_axis = artifact.x_axis
    assert x_axis is not None
    axes.set_xlabel(x_axis.label)
    axes.set_ylabel(artifact.main.axis or artifact.main.heading)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)  # room for the markers at the top
    ticks = data.drop_duplicates("x").set_index("x")
    places = list(ticks.index)
    texts = list(ticks.label) if x_axis.scale == "category" else [str(at) for at in ticks["at"]]
    if x_axis.scale == "log2" or (x_axis.scale == "linear" and _half_empty(places)):
        axes.set_xscale("log", base=2)
        texts = _apart([log2(place) for place in places], texts)
    elif x_axis.scale == "linear":
        texts = _apart(places, texts)
    axes.set_xticks(places, labels=texts)
    axes.minorticks_off()


def _half_empty(places: Sequence[float]) -> bool:
    """Whether a gap between neighbours takes so much of a linear axis that a logarithmic one shows more."""
    ordered = sorted(places)
    gaps = [after - before for before, after in pairwise(ordered)]
    most = max(LARGEST_GAP, UNEVEN / max(len(gaps), 1)) * (ordered[-1] - ordered[0])
    return ordered[0] > 0 and max(gaps, default=0.0) > most


def _apart(positions: Sequence[float], texts: Sequence[str]) -> list[str]:
    """The texts of ticks, without those too close to the one before to be read."""
    least = (max(positions) - min(positions)) * LEAST_GAP
    shown: list[str] = [""] * len(texts)
    last = float("-inf")
    for at, index in sorted((at, index) for index, at in enumerate(positions)):
        if at - last >= least:
            shown[index], last = texts[index], at
    return shown


def _fit_label(figure: "Figure", axes: "Axes") -> None:
    """Break a y label that is longer than its axis into lines, as few and as short as can be."""
    figure.draw_without_rendering()
    label = axes.yaxis.label
    count = ceil(label.get_window_extent().height / axes.get_window_extent().height)
    text = label.get_text()
    width = next(width for width in range(len(text) // count, len(text) + 1) if len(wrap(text, width)) <= count)
    label.set_text("\n".join(wrap(text, width)))
