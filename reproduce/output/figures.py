"""The figures of records: the line plot that most of them are, and drawing any of them as files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, pairwise
from math import ceil, floor, log2, log10
from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.results import MissingResultError
from reproduce.output import colours, theme
from reproduce.output.chart import (
    Mark,
    at_each_x,
    chart_data,
    interval_label,
    numbers,
    of_series,
    origin_lines,
    overlay_caption,
    overlay_lines,
    own_rows,
)
from reproduce.output.colours import KEY
from reproduce.output.tables import csv_text
from results.records import Record

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

LINES: tuple[Any, ...] = ("-", (0, (4, 1.2)), (0, (1, 1)), (0, (4, 1.2, 1, 1.2)))  # of the results in an overlay
# Points of one's own: black edges tell them from the paper's, which are hollow, and from ours; nothing joins them.
OWN: Mapping[str, Any] = MappingProxyType(
    {"linestyle": "none", "markersize": 5, "markeredgecolor": "black", "markeredgewidth": 0.8, "zorder": 3}
)
# Their bars: before the markers, with caps broader than these, so that a short one is seen.
CAPS: Mapping[str, Any] = MappingProxyType(
    {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 4.5, "capthick": 0.8, "zorder": 4}
)
LEAST_GAP = 0.08  # between labelled ticks, of the axis
CHARACTER = 0.025  # width of a digit beside a tick, of the axis of a figure one column wide
HIDDEN = 0.02  # a series this close to another one, relative to its largest value, lies under it
PAPER, PREDICTED = "paper", "predicted"  # numbers of a `Mark`, and what the legend calls them
MOST_LETTERS = 60  # in a line across a figure one column wide
SIDE_BY_SIDE = 4.5  # points between series
MOST_BANDS = 2  # over each other; the intervals of more series are bars, since bands mix to grey
MOST_LABELS, LONGEST_LABEL = 5, 16  # series, and letters of their names, that are written at the ends of their lines
LABEL_GAP = 8.0  # points between such names
ROOM_LEFT = 0.4  # of the x values lie left of the first cross where its meaning is written there
DECADES = 300  # a logarithmic axis this long has ticks by decades, not at the points
LARGEST_GAP, UNEVEN = 0.35, 1.3  # between neighbours on a linear axis: of the axis, and of evenly spaced ones


def render(
    artifact: Artifact, record: Record, look: theme.FigureLook = theme.USUAL, name: str = "figure"
) -> dict[str, bytes]:
    """A record's figure in the look's formats, by file name; nothing for an artifact that draws none."""
    if artifact.draw is None:
        return {}
    with theme.style(look):
        title = f"{artifact.label}: {artifact.title}"
        figure = drawn(artifact, record)
        return theme.figure_files(figure, title, name, look, lambda: csv_text(record))


def drawn(artifact: Artifact, record: Record) -> "Figure":
    """A record's figure; if it lacks points without which there is none, as after an interruption, a line that says so.

    Raises ValueError for an artifact that draws none.
    """
    if artifact.draw is None:
        raise ValueError(f"{artifact.id} has no figure")
    try:
        return artifact.draw(artifact, record)
    except MissingResultError as error:
        figure = theme.new_figure()
        axes = figure.subplots()
        axes.set_axis_off()
        lines = wrap(f"Nothing to draw: {error.args[0]}.", MOST_LETTERS)
        axes.text(0.5, 0.5, "\n".join(lines), ha="center", va="center")
        theme.add_origin(figure, origin_lines(artifact, record))
        return figure


def render_overlay(
    artifact: Artifact,
    records: Mapping[str, Record],
    own: Mapping[str, Sequence[Mark]] = MappingProxyType({}),
    look: theme.FigureLook = theme.USUAL,
    name: str = "overlay",
) -> dict[str, bytes]:
    """What `overlay` draws in the look's formats, by file name."""
    with theme.style(look):
        title = f"{artifact.label}: {artifact.title} ({', '.join([*records, *own])})"
        figure = overlay(artifact, records, own)
        return theme.figure_files(
            figure, title, name, look, lambda: csv_text(*records.values(), others=own_rows(artifact, records, own))
        )


def line_plot(artifact: Artifact, record: Record) -> "Figure":
    """The main quantity over the x axis: for `Artifact.draw`.

    A line per series for ours, with bars over 80% of the samples where there are samples, and a light band over the
    intervals of simulated values, or bars where there are more than two. Up to five short names stand at the ends of
    their lines if these end at one x, apart from each other; others are in the legend. The paper's values are hollow
    markers on a dashed line, what was predicted is a short bar in a darker tone of the line, a point out of memory is a
    cross above the axes. Where there are predictions, the series stand side by side; elsewhere a series that lies under
    later ones is broader, so that it is seen. The y axis starts at zero, so that ratios can be seen. `artifact.looks`
    may give a series its own color, marker and linestyle.
    """
    return overlay(artifact, {"": record})


def overlay(
    artifact: Artifact, records: Mapping[str, Record], own: Mapping[str, Sequence[Mark]] = MappingProxyType({})
) -> "Figure":
    """Several results of a line chart in one, by name: colours and markers are the series', line styles the results'.

    `own` are points that no record has (the annex `plot` reads them): black-edged markers without a line. The first
    record is solid and has the paper's values; bars of predictions are left out. `artifact` is as the first record's
    scale shows it. One result alone is drawn as `line_plot` says. Raises ValueError for more records than there are
    line styles.
    """
    from matplotlib.lines import Line2D

    if len(records) > len(LINES):
        raise ValueError(f"{len(records)} results in one figure; needs at most {len(LINES)}")
    data = chart_data(artifact, records, own)
    alone = len(records) + len(own) == 1
    main, first = next(iter(records.items()))
    styles = series_styles(artifact, data)
    interval = interval_label(artifact, records.values())
    keys = legend_keys(data, interval, alone)
    results = {} if alone else dict(zip(records, LINES, strict=False))
    shown = {name: name or (first.fidelity if alone else "ours") for name in styles}
    labelled = alone and ends_apart(data, list(shown))
    short = {} if labelled else dict(zip(shown, shortened(list(shown.values())), strict=True))
    beside = room_left_of_crosses(data)
    others = [key for key in keys if not (beside and key == theme.OOM)]
    columns = theme.legend_columns(list(short.values()), theme.figure_width(), [*results, *own, *others])
    figure = theme.new_figure(height=theme.HEIGHT + 0.14 * (len(columns[0]) - 1 if columns else 0))
    axes = figure.subplots()
    apart = SIDE_BY_SIDE if PREDICTED in keys else 0.0
    axes.margins(x=0.1 if apart else 0.05)
    lines: dict[str, dict[str, Line2D]] = {}
    for result in reversed([*records, *own]):  # the first result last, above the others
        marks = [mark for mark in data if mark.result == result]
        lines[result] = _result_lines(axes, marks, records.get(result), styles, results.get(result), apart)
    if alone and not apart:
        for name, line in lines[main].items():
            line.set(**breadth(data, name))
    ours = [mark for mark in data if mark.result in records]
    compared = draw_others(axes, ours, styles, keys, apart, spread_of(styles))
    only_own = styles.keys() - {mark.series for mark in ours}
    label_axes(axes, artifact, data)
    handles: dict[str, Any] = {
        short[name]: (lines[main].get(name) if alone else None)
        or Line2D([], [], **{**look, **(OWN if name in only_own else {})})
        for name, look in styles.items()
        if name in short
    }
    handles |= {result: Line2D([], [], color=KEY, linestyle=line) for result, line in results.items()}
    handles |= {result: tuple(lines[result].values())[:2] for result in own}
    add_legend(figure, handles | compared, columns)
    if alone:
        theme.add_origin(figure, origin_lines(artifact, first))
    else:
        theme.add_origin(figure, overlay_lines(artifact, records, list(own)), overlay_caption(artifact, records, own))
    if alone and len(styles) == 1:
        _write_differences(axes, artifact, data)
    if beside:
        name_crosses(axes)
    if labelled:
        write_ends(axes, data, {name: look["color"] for name, look in styles.items()}, apart)
    fit_labels(figure)
    return figure


def _result_lines(
    axes: "Axes",
    marks: Sequence[Mark],
    record: Record | None,
    styles: Mapping[str, Mapping[str, Any]],
    linestyle: Any,
    apart: float,
) -> "dict[str, Line2D]":
    """Draw a result, in a `linestyle` unless None, or without a record points of one's own; the line of each series."""
    if record is None:
        return series_lines(axes, marks, {name: {**look, **OWN} for name, look in styles.items()}, "caps", apart)
    extra = {} if linestyle is None else {"linestyle": linestyle}
    looks = {name: {**look, **extra} for name, look in styles.items()}
    return series_lines(axes, marks, looks, spread_of(styles) if record.fidelity == "simulated" else "bars", apart)


def _write_differences(axes: "Axes", artifact: Artifact, data: Sequence[Mark]) -> None:
    """Write beside each point that is farther from the paper's than the artifact's tolerance how far off it is."""
    for mark in data:
        if mark.value is None or mark.paper is None:
            continue
        if abs(off := mark.value / mark.paper - 1) > artifact.tolerance:
            place = (mark.x, (mark.value + mark.paper) / 2)
            axes.annotate(f"{off:+.0%}", place, (6, 0), textcoords="offset points", va="center")


def shortened(names: Sequence[str]) -> list[str]:
    """Names that begin alike up to an equals sign, 'b = 1' and 'b = 2', without that after the first.

    Others stay, as do those of several parts, 'b = 1, GPipe'.
    """
    begin = {name.rpartition(" = ")[0] for name in names}
    if len(names) < 2 or len(begin) > 1 or "" in begin or any(", " in name for name in names):
        return list(names)
    return [names[0], *(name.rpartition(" = ")[2] for name in names[1:])]


def ends_apart(data: Sequence[Mark], names: Sequence[str]) -> bool:
    """Whether names can stand at the right ends of their lines: few, short, of lines that end apart at one x."""
    if not 1 < len(names) <= MOST_LABELS or max(map(len, names)) > LONGEST_LABEL:
        return False
    last = _last(data)
    ends = numbers(last, "value")
    # The axes take about that share of the height.
    least = LABEL_GAP / (72 * 0.6 * theme.HEIGHT) * max(numbers(data, "value"), default=0.0)
    together = len({mark.x for mark in last}) == 1
    return len(last) == len(names) and together and all(b - a > 0.7 * least for a, b in pairwise(ends))


def _last(data: Sequence[Mark]) -> list[Mark]:
    """The last point of each series that has a value there, the lowest first."""
    lines = (of_series(data, name) for name in dict.fromkeys(mark.series for mark in data))
    return sorted((line[-1] for line in lines if line), key=lambda mark: mark.value or 0.0)


def write_ends(axes: "Axes", data: Sequence[Mark], colors: Mapping[str, str], apart: float = 0.0) -> None:
    """Write each series' name at the right end of its line, in its colour; names keep their distance.

    They stand right of marks that are drawn `apart` points apart.
    """
    points = 72 * 0.6 * theme.HEIGHT / axes.get_ylim()[1]
    moved = float("-inf")
    for end in _last(data):
        assert end.value is not None
        moved = max(end.value * points, moved + LABEL_GAP)
        axes.annotate(
            end.series, (end.x, end.value), (5 + apart, moved - end.value * points), textcoords="offset points",
            va="center", color=colors[end.series], annotation_clip=False,
            bbox={"fc": "white", "ec": "none", "pad": 0.3},
        )  # fmt: skip


def room_left_of_crosses(data: Sequence[Mark]) -> bool:
    """Whether there are points out of memory, and what they are can stand left of the first, above the axes."""
    places, crosses = sorted({mark.x for mark in data}), [mark.x for mark in data if mark.status == "oom"]
    return bool(crosses) and places.index(min(crosses)) >= ROOM_LEFT * (len(places) - 1)


def name_crosses(axes: "Axes") -> None:
    """Write what the crosses above the axes are, left of the first."""
    first = min(_crosses(axes), key=lambda line: min(line.get_xdata()))
    axes.annotate(
        theme.OOM, (min(first.get_xdata()), first.get_ydata()[0]), (-5, 0), xycoords=first.get_transform(),
        textcoords="offset points", ha="right", va="center", color=first.get_color(), annotation_clip=False,
    )  # fmt: skip


def _crosses(axes: "Axes") -> list[Any]:
    """The lines of crosses above the axes."""
    return [line for line in axes.lines if str(line.get_label()).endswith(f"({theme.OOM})")]


def series_styles(artifact: Artifact, data: Sequence[Mark]) -> dict[str, dict[str, Any]]:
    """The color and marker of each series, in order, and what else `artifact.looks` gives it."""
    series = dict.fromkeys(mark.series for mark in data)
    usual = zip(series, cycle(colours.PALETTE), cycle(theme.MARKERS), strict=False)
    return {name: {"color": color, "marker": mark, **artifact.looks.get(name, {})} for name, color, mark in usual}


def legend_keys(data: Sequence[Mark], interval: str, alone: bool) -> list[str]:
    """What the legend has beyond the series: the paper's values, `interval` if it is not '', predictions, crosses."""
    there = {
        PAPER: bool(numbers(data, PAPER)),
        interval: bool(interval),
        PREDICTED: alone and bool(numbers(data, PREDICTED)),
        theme.OOM: any(mark.status == "oom" for mark in data),
    }
    return [key for key, is_there in there.items() if is_there]


def spread_of(styles: Mapping[str, Any]) -> str:
    """How the intervals of these series are drawn: as bands, or as bars where there are too many."""
    return "band" if len(styles) <= MOST_BANDS else "bars"


def series_lines(
    axes: "Axes",
    data: Sequence[Mark],
    styles: Mapping[str, Mapping[str, Any]],
    spread: str = "bars",
    apart: float = 0.0,
) -> "dict[str, Line2D]":
    """The values over x, with what lies between low and high as `spread`, bars or a band: the line of each series.

    `styles` has the color, marker and perhaps the linestyle by series.
    Neighbouring series are drawn `apart` points apart, around their x. With the `spread` caps the bars are black, with
    caps, before the markers, and may reach to one side only.
    """
    lines = {}
    for (name, look), points in _side_by_side(styles, apart):
        line = of_series(data, name)
        if not line:
            continue
        with _aside(axes, points):
            usual = {"label": name, "clip_on": False, "markeredgewidth": 0}
            (lines[name],) = axes.plot([mark.x for mark in line], numbers(line, "value"), **{**usual, **look})
            sure = [mark for mark in line if mark.low is not None]
            reach = [mark.x for mark in sure], numbers(sure, "low"), numbers(sure, "high")
            if spread == "caps":
                _capped_bars(axes, line)
            elif spread == "bars":
                axes.vlines(*reach, color=look["color"], linewidth=0.7)
            elif sure:
                axes.fill_between(*reach, color=look["color"], alpha=theme.BAND, linewidth=0)
    return lines


def _capped_bars(axes: "Axes", line: Sequence[Mark]) -> None:
    """Bars of one's own points, each from its low to its high, as far as it has them."""
    for mark in line:
        assert mark.value is not None
        low, high = (mark.value if end is None else end for end in (mark.low, mark.high))
        if low < high:
            axes.errorbar([mark.x], [mark.value], [[mark.value - low], [high - mark.value]], **CAPS)


def _side_by_side(
    styles: Mapping[str, Mapping[str, Any]], apart: float
) -> Iterator[tuple[tuple[str, Mapping[str, Any]], float]]:
    """Each series and its look, with the points by which it is moved to the right."""
    for place, series in enumerate(styles.items()):
        yield series, apart * (place - (len(styles) - 1) / 2)


@contextmanager
def _aside(axes: "Axes", points: float) -> Iterator[None]:
    """What is drawn inside stands so many points to the right of its x."""
    from matplotlib.transforms import ScaledTranslation

    figure = axes.get_figure(root=True)
    assert figure is not None
    before = set(axes.get_children())
    yield
    if points:
        moved = ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)
        for artist in set(axes.get_children()) - before:
            artist.set_transform(artist.get_transform() + moved)


def breadth(data: Sequence[Mark], name: str) -> dict[str, Any]:
    """How broad a series is drawn: broader for each later series that lies on it."""
    series = list(dict.fromkeys(mark.series for mark in data if mark.value is not None))
    own = {mark.x: mark.value or 0.0 for mark in of_series(data, name)}
    hidden = 0
    for later in series[series.index(name) + 1 :]:
        gaps = [abs((mark.value or 0.0) - own[mark.x]) for mark in of_series(data, later) if mark.x in own]
        hidden += bool(gaps) and max(gaps) / max(own.values()) < HIDDEN
    return {"linewidth": 1.2 + 1.3 * hidden, "markersize": 4 + 2.5 * hidden}


def draw_others(
    axes: "Axes",
    data: Sequence[Mark],
    styles: Mapping[str, Mapping[str, Any]],
    keys: Sequence[str],
    apart: float = 0.0,
    spread: str = "bars",
) -> dict[str, Any]:
    """What the series are compared with, and where they have no value: the legend's handle of each of `keys` drawn.

    `keys` are those of `legend_keys`, `apart` and `spread` are as `series_lines` has them.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: dict[str, list[Artist]] = {key: [] for key in keys}
    for (name, look), points in _side_by_side(styles, apart):
        rows = [mark for mark in data if mark.series == name]
        with _aside(axes, points):
            for key, artist in _marks(axes, rows, name, look, keys):
                handles[key].append(artist)
        if numbers(rows, "low"):
            band: Artist = Patch(color=look["color"], alpha=theme.BAND, linewidth=0)
            if spread == "bars":
                band = Line2D([], [], color=look["color"], linewidth=0.7)
            for key in set(keys) - {PAPER, PREDICTED, theme.OOM}:
                handles[key].append(band)
    return {key: tuple(artists[:2]) for key, artists in handles.items() if artists}


def _marks(
    axes: "Axes", rows: Sequence[Mark], name: str, look: Mapping[str, Any], keys: Sequence[str]
) -> "Iterator[tuple[str, Artist]]":
    """The paper's values, the predictions and the crosses of a series, each with its key."""
    for key, marks in (
        (PAPER, theme.hollow(look["color"], look["marker"])),
        (PREDICTED, theme.predicted(look["color"])),
    ):
        there = at_each_x(mark for mark in rows if getattr(mark, key) is not None)
        if key in keys and there:
            named = {"label": f"{name} ({key})".strip(), "clip_on": False, **marks}
            yield key, axes.plot([mark.x for mark in there], numbers(there, key), **named)[0]
    out = at_each_x(mark for mark in rows if mark.status == "oom")
    if out:
        above = {"transform": axes.get_xaxis_transform(), "clip_on": False, "color": look["color"]}
        heights = [1.03 + 0.05 * len(_crosses(axes))] * len(out)  # over those of other series
        label = f"{name} ({theme.OOM})".strip()
        yield theme.OOM, axes.plot([mark.x for mark in out], heights, label=label, **above, **theme.OUT_OF_MEMORY)[0]


def add_legend(figure: "Figure", handles: Mapping[str, Any], columns: Sequence[Sequence[str]]) -> None:
    """The legend of these columns of labels, above the axes."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    nothing = {"": Line2D([], [], linestyle="none")}
    labels = [label for column in columns for label in column]  # a legend is filled column by column
    figure.legend(
        [{**nothing, **handles}[label] for label in labels], labels, loc="outside upper center", ncols=len(columns),
        columnspacing=1.0, handler_map={tuple: HandlerTuple(ndivide=None, pad=0.4)},
    )  # fmt: skip


def finish(
    figure: "Figure", handles: Mapping[str, Any], columns: Sequence[Sequence[str]], artifact: Artifact, record: Record
) -> None:
    """The legend above the axes, what the numbers are below them, and labels that fit."""
    add_legend(figure, handles, columns)
    theme.add_origin(figure, origin_lines(artifact, record))
    fit_labels(figure)


def label_axes(axes: "Axes", artifact: Artifact, data: Sequence[Mark]) -> None:
    """Name both axes, begin the y axis at zero and have a tick at every x, or on a long logarithmic axis at decades."""
    x_axis = artifact.x_axis
    assert x_axis is not None
    axes.set_xlabel(x_axis.label)
    axes.set_ylabel(artifact.main.axis or artifact.main.heading)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])  # room for the markers at the top
    ticks = at_each_x(data)
    places = [mark.x for mark in ticks]
    texts = [mark.label if x_axis.scale == "category" else str(mark.at) for mark in ticks]
    if x_axis.scale == "log2" and places and max(places) >= DECADES * min(places):
        axes.set_xscale("log")
        first, last = ceil(log10(min(places))), floor(log10(max(places)))
        axes.set_xticks([10**power for power in range(first, last + 1)])
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return
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
    """The texts of ticks, without those too close to the last one, or to the one before, to be read."""
    length = max(positions) - min(positions)
    ordered = sorted(range(len(texts)), key=positions.__getitem__)
    shown = ordered[-1:]
    for index in ordered[:-1]:
        if all(
            abs(positions[index] - positions[other])
            >= length * max(LEAST_GAP, CHARACTER * (len(texts[index]) + len(texts[other]) + 1) / 2)
            for other in {shown[0], shown[-1]}  # the last tick of all, and the one before
        ):
            shown.append(index)
    return [text if index in shown else "" for index, text in enumerate(texts)]


def fit_labels(figure: "Figure") -> None:
    """Break each label that is longer than its axis into lines, as few and as short as can be."""
    theme.lay_out(figure)
    for axes in figure.axes:
        room = axes.get_window_extent()
        for label, along in ((axes.xaxis.label, "width"), (axes.yaxis.label, "height")):
            count = ceil(getattr(label.get_window_extent(), along) / getattr(room, along))
            if count > 1:
                text = label.get_text()
                widths = range(len(text) // count, len(text) + 1)
                ways = (wrap(text, width, break_long_words=False) for width in widths)
                label.set_text("\n".join(next(lines for lines in ways if len(lines) <= count)))
