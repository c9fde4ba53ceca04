"""The figures of `reproduce accuracy`: predictions against the truth, and how far each number moves the score."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas import DataFrame

from reproduce.annex.accuracy.accuracy import ALL, THROUGHPUTS, Assessment
from reproduce.annex.accuracy.sensitivity import DROPPED, HIGH, LOW, means
from reproduce.output.origins import cluster_title
from reproduce.output.theme import MARKERS, PALETTE, add_origin, figure_files, new_figure, style

BAND = 0.05
BARS = 14
# Two colours that differ under every colour deficiency, and black for what is dropped.
LOOKS = {LOW: "#0072b2", HIGH: "#e69f00"}
# Eight colours and eleven markers, used in turn: no two of eleven groups have the same marker, no two of 88 look alike.
COLOURS = (*PALETTE, "#000000", "#999999")
GROUP_MARKERS = (*MARKERS, "X", "<", "*", ">", "p")


def render(assessment: Assessment) -> dict[str, bytes]:
    """figure.pdf, figure.png (predicted against published), sensitivity.pdf, sensitivity.png; byte-stable."""
    with style():
        drawn = {"figure": published(assessment), "sensitivity": bars(assessment)}
        return {
            file: data
            for name, figure in drawn.items()
            for file, data in figure_files(figure, f"accuracy: {name}", name).items()
        }


def scatter(axes: Axes, points: DataFrame, ends: Sequence[float], band: float, **look: Any) -> None:
    """Points (`x`, `y`), a colour and marker per `group`, with the diagonal and a grey band around it."""
    looks = zip(cycle(COLOURS), cycle(GROUP_MARKERS), strict=False)
    for (group, rows), (color, marker) in zip(points.groupby("group", sort=False), looks, strict=False):
        axes.plot(rows.x, rows.y, linestyle="", color=color, marker=marker, markeredgewidth=0, label=group, **look)
    lower, upper = ([end * factor for end in ends] for factor in (1 - band, 1 + band))
    axes.fill_between(ends, lower, upper, color="#dddddd", linewidth=0)
    axes.plot(ends, ends, color="#777777", linewidth=0.7)
    axes.set(xlim=ends, ylim=ends, aspect="equal")


def published(assessment: Assessment) -> Figure:
    """Predicted against published throughput, a colour and marker per artifact, with the diagonal and the 5% band."""
    values = assessment.values[assessment.values.counted & assessment.values.ours.notna()]
    drawn = values[values.throughput]
    points = DataFrame({"group": drawn.place, "x": drawn.paper / 1e12, "y": drawn.ours / 1e12})
    end = 1.05 * points[["x", "y"]].max(axis=None)
    figure = new_figure(height=3.5)
    axes = figure.subplots()
    scatter(axes, points, [0, end], BAND, markersize=3.6, alpha=0.85, zorder=3)
    axes.annotate(f"±{BAND:.0%}", (end * 0.17, end * 0.17), (4, -9), textcoords="offset points", color="#555555")
    ticks = range(0, int(end) + 1, 50)
    axes.set(xticks=ticks, yticks=ticks, xlabel="Published teraFLOP/s per GPU", ylabel="Simulated teraFLOP/s per GPU")
    figure.legend(loc="outside upper center", ncols=3, columnspacing=1.0, handletextpad=0.3)
    lines = [f"simulated: ptdp on {cluster_title(assessment.cluster.name)} model"]
    for name, what in ((THROUGHPUTS, "throughputs per GPU"), (ALL, "published values, drawn or not")):
        if name in assessment.scores and (score := assessment.scores[name].score):
            lines.append(f"{score.n} {what}: mean error {score.mean:.1%}, worst {score.worst:+.1%}")
    add_origin(figure, lines)
    return figure


def bars(assessment: Assessment) -> Figure:
    """For the numbers and mechanisms that matter most: the overall mean error at low, at high, and dropped."""
    score = assessment.scores[ALL].score
    base = 100 * score.mean if score else 0.0
    everything = 100 * means(assessment.moves)
    shown = everything[:BARS]
    # Past every bar, so that a dropped mechanism far out is marked at the edge.
    limit = 1.15 * max(2 * base, shown[[LOW, HIGH]].max(axis=None))
    figure = new_figure(height=1.1 + 0.19 * len(shown))
    axes = figure.subplots()
    for place, (_, ways) in enumerate(shown.iterrows()):
        for way, end in ways.dropna().items():
            if way == DROPPED:
                _cross(axes, end, place, limit)
            else:
                side = place + (-0.19 if way == LOW else 0.19)
                axes.barh(side, end - base, 0.36, left=base, color=LOOKS[way], linewidth=0, zorder=3)
    axes.axvline(base, color="#333333", linewidth=0.8)
    axes.set_yticks(range(len(shown)), labels=shown.index)
    axes.set(xlim=(0, limit), ylim=(len(shown) - 0.4, -0.6), xlabel="Mean error (%)")
    axes.grid(False, axis="y")
    handles: list[Any] = [
        Patch(color=LOOKS[LOW], linewidth=0, label="low end"),
        Patch(color=LOOKS[HIGH], linewidth=0, label="high end"),
        Line2D([], [], color="#000000", marker="x", markersize=3.5, linestyle="", label="without it"),
        Line2D([], [], color="#333333", linewidth=0.8, label=f"as set: {base:.1f}%"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=0.8, handlelength=1.0)
    note = [
        f"simulated: ptdp on {cluster_title(assessment.cluster.name)} model; mean over all published values",
        "bars: one number at an end of its range; x: the effect left out",
    ]
    if (shown > limit).any(axis=None):
        note.append("arrow: the effect left out, off the chart")
    if left := len(everything) - len(shown):
        note.append(f"the {left} numbers and effects that are not shown matter less")
    add_origin(figure, note)
    return figure


def _cross(axes: Axes, end: float, place: int, limit: float) -> None:
    """The mark of a dropped mechanism; off the chart an arrow with its value."""
    look: dict[str, Any] = {"color": "#000000", "markersize": 3.5, "clip_on": False, "zorder": 4}
    axes.plot(min(end, limit * 0.985), place, marker=">" if end > limit else "x", **look)
    if end > limit:
        axes.annotate(f"{end:.0f}%", (limit, place), (-7, 0), textcoords="offset points", ha="right", va="center")
