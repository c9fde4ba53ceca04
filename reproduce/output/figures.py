"""The figures of records: the line plot that most of them are, and drawing any of them as files."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, pairwise
from math import ceil, log2
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import OURS
from reproduce.experiment.predictions import PREFIX
from reproduce.output import theme
from reproduce.output.origins import origin_lines, overlay_lines, reversed_claims
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from pandas import DataFrame

LINES: tuple[Any, ...] = ("-", (0, (4, 1.2)), (0, (1, 1)), (0, (4, 1.2, 1, 1.2)))  # of the results in an overlay
LEAST_GAP = 0.08  # between labelled ticks, of the axis
HIDDEN = 0.02  # a series this close to another one, relative to its largest value, lies under it
ROOM = 1.35  # of the axis over the highest marker, at most: a wide band is cut off
BAND = 0.15  # opacity of what lies between low and high
LARGEST_GAP, UNEVEN = 0.35, 1.3  # between neighbours on a linear axis: of the axis, and of evenly spaced ones


def render(
    artifact: Artifact, record: Record, look: theme.FigureLook = theme.USUAL, name: str = "figure"
) -> dict[str, bytes]:
    """A record's figure in the look's formats, by file name; nothing for an artifact that draws none."""
    if artifact.draw is None:
        return {}
    with theme.style(look):
        figure = artifact.draw(artifact, record)
        return theme.figure_files(figure, f"{artifact.label}: {artifact.title}", name, look)


def render_overlay(
    artifact: Artifact,
    records: Mapping[str, Record],
    own: "Mapping[str, DataFrame]" = MappingProxyType({}),
    look: theme.FigureLook = theme.USUAL,
    name: str = "overlay",
) -> dict[str, bytes]:
    """What `overlay` draws in the look's formats, by file name."""
    with theme.style(look):
        title = f"{artifact.label}: {artifact.title}: {', '.join([*records, *own])}"
        return theme.figure_files(overlay(artifact, records, own), title, name, look)


def line_plot(artifact: Artifact, record: Record) -> "Figure":
    """The main quantity over the x axis: for `Artifact.draw`.

    A line per series for ours, with bars over 80% of the samples where there are samples, and a light band over the
    intervals of simulated values. The paper's values are hollow markers on a broad pale line below ours, what was
    predicted is a short bar in a darker tone of the line, a point out of memory is a cross above the axes. A series
    that lies under later ones is broader, so that it is seen. The y axis starts at zero, so that ratios can be seen.
    `artifact.looks` may give a series its own color, marker and linestyle.
    """
    figure = overlay(artifact, {"": record})
    if reversed_claims(artifact, record):
        whose = "the" if artifact.place == OURS else "the paper's"
        figure.axes[0].set_title(f"opposite to {whose} claim, but no test of it", fontsize=7)
    return figure


def overlay(
    artifact: Artifact, records: Mapping[str, Record], own: "Mapping[str, DataFrame]" = MappingProxyType({})
) -> "Figure":
    """Several results of a line chart in one, by name: colours and markers are the series', line styles the results'.

    `own` are points that no record has (`own_points.read_points`), drawn as one more result each. The first record is
    solid and has the paper's values; bars of predictions are left out. `artifact` is as the first record's scale shows
    it. One result alone is drawn as `line_plot` says. Raises ValueError for more results than there are line styles.
    """
    from matplotlib.lines import Line2D

    drawn = [*records, *own]
    if len(drawn) > len(LINES):
        raise ValueError(f"{len(drawn)} results in one figure; needs at most {len(LINES)}")
    data = chart_data(artifact, records, own)
    alone = len(drawn) == 1
    first = next(iter(records.values()))
    names = list(dict.fromkeys(data.series))
    usual = zip(names, cycle(theme.PALETTE), cycle(theme.MARKERS), strict=False)
    styles = {name: {"color": color, "marker": mark, **artifact.looks.get(name, {})} for name, color, mark in usual}
    keys = ["paper"] if data.paper.notna().any() else []
    keys += ["predicted"] if alone and data.predicted.notna().any() else []
    keys += [theme.OOM] if "oom" in set(data.status) else []
    results = {} if alone else dict(zip(drawn, LINES, strict=False))
    shown = {name: name or (first.fidelity if alone else "ours") for name in names}
    columns = theme.legend_columns(list(shown.values()), theme.figure_width(), [*results, *keys])
    figure = theme.new_figure(height=theme.HEIGHT + 0.14 * (len(columns[0]) - 1))
    axes = figure.subplots()
    handles: dict[str, Line2D] = {}
    for result in reversed(drawn):  # the first result last, above the others
        looks = styles if alone else {name: {**look, "linestyle": results[result]} for name, look in styles.items()}
        spread = "band" if result in records and records[result].fidelity == "simulated" else "bars"
        lines = series_lines(axes, data[data.result == result], looks, err_style=spread)
        if alone:
            handles = lines
            for name, line in lines.items():
                line.set(**_breadth(data, name))
    others: dict[str, list[Artist]] = {
        result: [Line2D([], [], color="#444444", linestyle=linestyle)] for result, linestyle in results.items()
    }
    others |= {key: [] for key in keys}
    for name, look in styles.items():
        for key, artist in _draw_others(axes, data[data.series == name], name, look, keys):
            others[key].append(artist)
    _label_axes(axes, artifact, data)
    handles = {shown[name]: handles.get(name) or Line2D([], [], **look) for name, look in styles.items()}
    _legend(figure, {**handles, **{key: tuple(lines[:2]) for key, lines in others.items()}}, columns)
    theme.add_origin(figure, origin_lines(artifact, first) if alone else overlay_lines(artifact, records, list(own)))
    _fit_label(figure, axes)
    return figure


def chart_data(
    artifact: Artifact, records: Mapping[str, Record], own: "Mapping[str, DataFrame]" = MappingProxyType({})
) -> "DataFrame":
    """A row per point: result (its name), series, label, status, at (its x value), x (where that is drawn), numbers."""
    import pandas

    assert artifact.x_axis is not None
    parts = [_points(artifact, record).assign(result=name) for name, record in records.items()]
    parts += [points.assign(result=name) for name, points in own.items()]
    data = pandas.concat(parts, ignore_index=True)
    places = {value: i for i, value in enumerate(dict.fromkeys(data["at"]))}
    category = artifact.x_axis.scale == "category"
    return data.assign(x=data["at"].map(places) if category else data["at"].astype(float))


def _points(artifact: Artifact, record: Record) -> "DataFrame":
    """The points of a record with the main quantity: value, low and high, the paper's, and what was predicted."""
    from reproduce.output.frame import by_point, column, frame, of_metric

    assert artifact.x_axis is not None
    tidy = frame(record)
    points = by_point(tidy).rename(columns={column(artifact.x_axis.parameter): "at"})
    numbers = of_metric(tidy, artifact.main.name)[["value", "low", "high", "paper"]]
    numbers["predicted"] = of_metric(tidy, PREFIX + artifact.main.name).value
    return points[["series", "label", "status", "at"]].join(numbers / artifact.main.factor)


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
    if not there:
        return {}  # seaborn would warn of a palette without series
    before = len(axes.lines)
    seaborn.lineplot(
        numbers, x="x", y="y", hue="series", style="series", hue_order=there, style_order=there, ax=axes, legend=False,
        palette={name: styles[name]["color"] for name in there}, dashes=False, clip_on=False, markeredgewidth=0,
        markers={name: styles[name]["marker"] for name in there}, estimator="median",
        errorbar=("pi", 100) if data.low.notna().any() else None, err_style=err_style,
        err_kws={"elinewidth": 0.7} if err_style == "bars" else {"linewidth": 0, "alpha": BAND},
    )  # fmt: skip
    drawn = [line for line in axes.lines[before:] if line.get_linestyle() != "None"]  # bars come with one that is none
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
    axes: "Axes", points: "DataFrame", name: str, look: Mapping[str, Any], keys: Sequence[str]
) -> "Iterator[tuple[str, Artist]]":
    """What a series is compared with, and where it has no value: each with the key that it has in the legend."""
    for key, marks in (
        ("paper", theme.hollow(look["color"], look["marker"])),
        ("predicted", theme.predicted(look["color"])),
    ):
        rows = points.dropna(subset=key).drop_duplicates("x")
        if key in keys and len(rows):
            yield key, axes.plot(rows.x, rows[key], label=f"{name} ({key})".strip(), clip_on=False, **marks)[0]
    out = points[points.status == "oom"].drop_duplicates("x")
    if len(out):
        crosses = sum(str(line.get_label()).endswith(f"({theme.OOM})") for line in axes.lines)  # of other series
        above = {"transform": axes.get_xaxis_transform(), "clip_on": False, "color": look["color"]}
        heights = [1.03 + 0.05 * crosses] * len(out)
        yield (
            theme.OOM,
            axes.plot(out.x, heights, label=f"{name} ({theme.OOM})".strip(), **above, **theme.OUT_OF_MEMORY)[0],
        )


def _legend(figure: "Figure", handles: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> None:
    """The legend of these columns of labels, above the axes."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    nothing = {"": Line2D([], [], linestyle="none")}
    labels = [label for column in columns for label in column]  # a legend is filled column by column
    figure.legend(
        [{**nothing, **handles}[label] for label in labels], labels, loc="outside upper center", ncols=len(columns),
        columnspacing=1.0, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.4)},
    )  # fmt: skip


def _label_axes(axes: "Axes", artifact: Artifact, data: "DataFrame") -> None:
    x_axis = artifact.x_axis
    assert x_axis is not None
    axes.set_xlabel(x_axis.label)
    axes.set_ylabel(artifact.main.axis or artifact.main.heading)
    highest = data[["value", "paper", "predicted"]].max(axis=None)
    axes.set_ylim(0, min(axes.get_ylim()[1] * 1.05, ROOM * highest))  # room for the markers at the top
    ticks = data.drop_duplicates("x").set_index("x")
    places = list(ticks.index)
    texts = list(ticks.label) if x_axis.scale == "category" else [str(value) for value in ticks["at"]]
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
    for position, index in sorted((position, index) for index, position in enumerate(positions)):
        if position - last >= least:
            shown[index], last = texts[index], position
    return shown


def _fit_label(figure: "Figure", axes: "Axes") -> None:
    """Break a y label that is longer than its axis into lines, as few and as short as can be."""
    theme.lay_out(figure)
    label = axes.yaxis.label
    count = ceil(label.get_window_extent().height / axes.get_window_extent().height)
    text = label.get_text()
    width = next(width for width in range(len(text) // count, len(text) + 1) if len(wrap(text, width)) <= count)
    label.set_text("\n".join(wrap(text, width)))
