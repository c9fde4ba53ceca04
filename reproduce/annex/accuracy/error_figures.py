"""The figures of `reproduce accuracy`: how far each prediction is off, and how far each number moves the score."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas import DataFrame

from reproduce.annex.accuracy.accuracy import ALL, Assessment
from reproduce.annex.accuracy.scores import mean_error
from reproduce.annex.accuracy.sensitivity import DROPPED, HIGH, LOW, means
from reproduce.output import colours
from reproduce.output.chart import cluster_title
from reproduce.output.figures import fit_labels
from reproduce.output.theme import add_origin, figure_files, new_figure, style
from results.records import Record

BAND = 0.05
BARS = 14
NAME = 26  # letters of a group's name on a line
ROW, LINE, AROUND = 0.08, 0.115, 1.0  # inches: of a group, and of a line of its name; above and below all
COLUMNS = (18, 46)  # points right of the axes: ends of the number and of the mean error
# Two colours that differ under every colour deficiency, and black for what is dropped.
LOOKS = {LOW: colours.BLUE, HIGH: colours.AMBER}
TICKS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100)
# How parts of an identifier are written for people.
WORDS = {"gemm": "GEMM", "hca": "HCA", "hcas": "HCAs", "zero3": "ZeRO-3", "nvlink": "NVLink", "allreduce": "all-reduce"}


def render(assessment: Assessment) -> dict[str, bytes]:
    """figure.pdf, figure.png (errors), sensitivity.pdf, sensitivity.png; byte-stable."""
    with style():
        drawn = {"figure": published(assessment), "sensitivity": bars(assessment)}
        return {
            file: data
            for name, figure in drawn.items()
            for file, data in figure_files(figure, f"accuracy: {name}", name).items()
        }


def errors(points: DataFrame, of: str, lines: Sequence[str], band: float = BAND) -> Figure:
    """A row for each `group` of points, a dot for the `error` of each; beside it their number and mean error.

    The band is grey; the axis says `of` what they are the errors.
    """
    groups = [(str(name), 100 * rows.error) for name, rows in points.groupby("group", sort=False)]
    names = ["\n".join(wrap(name, NAME)) for name, _ in groups]
    height = ROW + LINE * max(1 + name.count("\n") for name in names)
    figure = new_figure(height=AROUND + height * len(groups))
    axes = figure.subplots()
    axes.axvspan(-100 * band, 100 * band, color=colours.BAND, linewidth=0, zorder=0)
    axes.axvline(0, color=colours.AXIS, linewidth=0.7, zorder=1)
    for place, (_, values) in enumerate(groups):
        look: dict[str, Any] = {
            "color": colours.BLUE,
            "alpha": 0.5,
            "markersize": 3.2,
            "markeredgewidth": 0,
            "zorder": 3,
        }
        axes.plot(values, [place] * len(values), "o", clip_on=False, **look)
        _beside(axes, place, str(len(values)), f"{mean_error(values):.1f}%")
    _beside(axes, -0.6 - 8 / (72 * height), "n", "mean")
    axes.set_yticks(range(len(groups)), labels=names)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(len(groups) - 0.4, -0.6), xlabel=f"Error of {of} (%)")
    axes.grid(False, axis="y")
    add_origin(
        figure,
        [*lines, f"a dot for each of {len(points)}, right of 0 if too high; grey: within {band:.0%}; mean: of sizes"],
    )
    fit_labels(figure)
    return figure


def _beside(axes: Axes, place: float, *texts: str) -> None:
    """Write texts in columns at the right of the axes."""
    for points, text in zip(COLUMNS, texts, strict=True):
        look: dict[str, Any] = {"xycoords": axes.get_yaxis_transform(), "annotation_clip": False}
        axes.annotate(text, (1, place), (points, 0), textcoords="offset points", ha="right", va="center", **look)


def published(assessment: Assessment) -> Figure:
    """The errors of all that is predicted and published, each configuration once, by artifact."""
    values = assessment.values[assessment.values.counted & assessment.values.ours.notna()]
    lines = [f"simulated: ptdp on {cluster_title(assessment.cluster.name)} model"]
    if score := assessment.scores[ALL].score:
        lines.append(f"all published values: mean error {score.mean:.1%}, worst {score.worst:+.1%}")
    return errors(values.assign(group=values.place), "simulated values", lines)


def sealed(record: Record, of: str, lines: Sequence[str]) -> Figure:
    """The errors of a record of predictions made before the truth was known, by series."""
    rows = [
        {"group": point.series, "error": point.metrics["relative_error"].value}
        for point in record.points
        if "relative_error" in point.metrics
    ]
    return errors(DataFrame(rows), of, lines)


def readable(identifier: str) -> str:
    """An identifier in words: 'gemm_plateau' as 'GEMM plateau'."""
    return " ".join(WORDS.get(word, word) for word in identifier.split("_"))


def bars(assessment: Assessment) -> Figure:
    """For the numbers and mechanisms that matter most: the overall mean error at low, at high, and dropped."""
    score = assessment.scores[ALL].score
    base = 100 * score.mean if score else 0.0
    everything = 100 * means(assessment.moves)
    shown = everything[:BARS]
    figure = new_figure(height=1.1 + 0.19 * len(shown))
    axes = figure.subplots()
    axes.set_xscale("log")  # one mechanism dropped may be six times as bad as another
    for place, (_, ways) in enumerate(shown.iterrows()):
        for way, end in ways.dropna().items():
            if way == DROPPED:
                axes.plot(end, place, "x", color=colours.BLACK, markersize=3.5, zorder=4)
            else:
                side = place + (-0.19 if way == LOW else 0.19)
                axes.barh(side, end - base, 0.36, left=base, color=LOOKS[way], linewidth=0, zorder=3)
    axes.axvline(base, color=colours.RULE, linewidth=0.8)
    axes.set_yticks(range(len(shown)), labels=map(readable, shown.index))
    least, most = min(base, shown.min(axis=None)), max(base, shown.max(axis=None))
    ends = 0.93 * least, 1.07 * most
    axes.set_xticks(ticks := [tick for tick in TICKS if ends[0] <= tick <= ends[1]], labels=map(str, ticks))
    axes.minorticks_off()
    axes.set(xlim=ends, ylim=(len(shown) - 0.4, -0.6), xlabel="Mean error (%), logarithmic")
    axes.grid(False, axis="y")
    handles: list[Any] = [
        Patch(color=LOOKS[LOW], linewidth=0, label="low end"),
        Patch(color=LOOKS[HIGH], linewidth=0, label="high end"),
        Line2D([], [], color=colours.BLACK, marker="x", markersize=3.5, linestyle="", label="without it"),
        Line2D([], [], color=colours.RULE, linewidth=0.8, label=f"as set: {base:.1f}%"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=0.8, handlelength=1.0)
    note = [
        f"simulated: ptdp on {cluster_title(assessment.cluster.name)} model; mean over all published values",
        "bars: one number at an end of its range; x: the effect left out",
    ]
    if left := len(everything) - len(shown):
        note.append(f"the {left} numbers and effects that are not shown matter less")
    add_origin(figure, note)
    return figure
