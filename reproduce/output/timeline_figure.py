"""Timelines of pipeline schedules as figures like the paper's Figures 3 and 4: `draw`.

One row per device, a numbered box per pass. Forward passes are blue, backward passes orange, the first model chunk dark
and the last one light; of a split backward pass the input gradient is dark brown, the weight gradient violet and
hatched, so that the two differ without any colour, too. The two of a fused pair lie above each other. Idle time is a
grey that stays apart from all of them with any colour vision. Figures are as wide as a page, so that the numbers can be
read in print; in narrower ones titles take two lines, and what comes after the first batch is left out.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from ptdp_core.schedules import Action, TimelineEvent
from reproduce.output import theme
from reproduce.output.colours import IDLE, NOTE
from reproduce.output.timeline import Time, Timeline
from reproduce.output.timeline_colours import HATCHES, PASSES, colour, text_colour
from reproduce.output.timeline_memory import STRIP, draw_memory, most_held
from reproduce.output.timeline_memory import handles as memory_handles
from reproduce.output.timeline_titles import title

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST, SMALLEST = 7.0, 4.5  # points: numbers in boxes
OUTLINE = 0.6  # points, of a box
THIN = 0.4  # height of a row of predicted passes, in rows of boxes
_LEFT, _RIGHT, _TITLE, _FLUSH, _BELOW, _BETWEEN = 0.53, 0.13, 0.2, 0.14, 0.38, 0.12  # inches
_LINE, _FOOT, _SMALL_LINE = 0.13, 0.03, 0.09  # inches: a row of the legend or line of a title, the foot, small print
_NARROW = 6.5  # inches: in less, titles do not fit on a line
_PEAK = 0.2  # inches, of the memory's peak
_POINTS = 72  # per inch
_SMALL_LETTER = 2.7  # points that a letter of the small print takes
Shown = list[tuple[float, float, TimelineEvent[Time], Action]]  # upper edge, height, box, and the pass that it shows


def draw(
    timelines: Sequence[Timeline],
    until: float | None = None,
    predictions: Sequence[Timeline] = (),
    memory: bool = False,
) -> "Figure":
    """A panel per timeline, above each other on one time scale, cut at `until` (default: end of the longest).

    Call it, and save, inside `theme.style()`. Boxes have their microbatch's number, counted from 1 as in
    the paper, where it fits. With `predictions`, one for each timeline, a thin row under each row shows the device's
    passes as they were predicted; with `memory` a strip there shows the activations that it holds. Not both.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    until = max(float(timeline.end) for timeline in (*timelines, *predictions)) if until is None else until
    wide, narrow = theme.figure_width(theme.PAGE), theme.figure_width(theme.PAGE) < _NARROW
    if narrow and all(timeline.flushes for timeline in timelines):
        until = max(float(timeline.flushes[0]) for timeline in timelines)
    pitch = 1 + (STRIP if memory else THIN if predictions else 0)
    right = _RIGHT + _PEAK * memory
    row = 0.17 if max(timeline.p for timeline in timelines) <= 16 else 0.12
    row *= 1.5 if any(timeline.fused for timeline in timelines) else 1
    above = [
        _TITLE + (_LINE + 0.02) * narrow + (_FLUSH if timeline.flushes else 0.03) + _BETWEEN for timeline in timelines
    ]
    above[0] -= _BETWEEN
    handles = _handles(timelines, bool(predictions)) | (memory_handles(timelines) if memory else {})
    columns = theme.legend_columns(list(handles), wide - _LEFT) if narrow or memory else [[label] for label in handles]
    whole = _origin(timelines, predictions)
    origin = wrap(whole, int((wide - _RIGHT) * _POINTS / _SMALL_LETTER))
    foot = _FOOT + _SMALL_LINE * len(origin) + _FOOT
    rows = sum(timeline.p for timeline in timelines) * row * pitch
    height = sum(above) + rows + _BELOW + len(columns[0]) * _LINE + foot
    figure = Figure(figsize=(wide, height), dpi=300)
    FigureCanvasAgg(figure)
    top = height
    for timeline, space in zip(timelines, above, strict=True):
        top -= space + timeline.p * row * pitch
        width = wide - _LEFT - right
        size = (_LEFT / wide, top / height, width / wide, timeline.p * row * pitch / height)
        axes = figure.add_axes(size, gid=timeline.schedule)
        _panel(axes, timeline, pitch, until, width * _POINTS / until, row * _POINTS, last=timeline is timelines[-1])
        if memory:
            draw_memory(axes, timeline, until, max(most_held(each) / each.v for each in timelines))
        _heading(axes, timeline, width, lines=1 + narrow)
    for axes, prediction in zip(figure.axes, predictions, strict=False):
        passes = [
            (rank * pitch + 1 + THIN * top, THIN * height, box, action)
            for rank, top, height, box, action in prediction.places
        ]
        _boxes(axes, prediction, passes, until, width * _POINTS / until, " predicted")
    _time_axis(figure.axes[-1], timelines[-1], narrow)
    _legend(figure, handles, len(columns), foot)
    text = "\n".join(origin)
    for letter in "fbw":
        text = text.replace(f"t_{letter}", f"$t_{letter}$")
    look: dict[str, Any] = {"fontsize": theme.SMALL_PRINT, "color": NOTE, "gid": theme.ORIGIN, "label": whole}
    figure.text(1 - _RIGHT / wide, _FOOT / height, text, ha="right", va="bottom", **look)
    return figure


def _origin(timelines: Sequence[Timeline], predictions: Sequence[Timeline]) -> str:
    """Where boxes and thin rows come from; where one origin goes on from another, the longer says all of it."""
    origins = [timeline.origin for timeline in timelines] + [f"thin rows: {each.origin}" for each in predictions]
    return "; ".join(short for short in dict.fromkeys(origins) if not any(o.startswith(f"{short}, ") for o in origins))


def _panel(axes: "Axes", timeline: Timeline, pitch: float, until: float, scale: float, row: float, last: bool) -> None:
    """One timeline; `scale` is points per unit of time, `row` the height of a row in points, `pitch` rows from one
    device to the next."""
    tops, bottom = [rank * pitch for rank in range(timeline.p)], timeline.p * pitch
    axes.set(xlim=(0, until), ylim=(bottom, 0), facecolor=IDLE)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_yticks([top + 0.5 for top in tops], [f"Device {r + 1}" for r in range(timeline.p)])
    axes.tick_params(axis="y", length=0, pad=2, labelsize=min(7, row * 0.65))
    axes.tick_params(axis="x", length=2.5, pad=1.5, labelbottom=last, bottom=last)
    for top in tops[1:]:
        axes.axhline(top, color="white", linewidth=1.2, zorder=0.5)
    shown = [
        (tops[rank] + top, height, box, action)
        for rank, top, height, box, action in timeline.places
        if box.start < until
    ]
    _boxes(axes, timeline, shown, until, scale)
    _numbers(axes, timeline, shown, until, scale, row)
    _idle(axes, timeline, tops, until, scale)
    for flush in timeline.flushes:
        if flush <= until:
            x = float(flush)
            axes.plot([x, x], [bottom, -0.12], color="black", linewidth=1.1, clip_on=False, gid="flush")
            axes.annotate(
                "pipeline flush", (x, 0), (0, 3), textcoords="offset points", fontsize=7,
                ha="center" if x < 0.9 * until else "right", va="bottom", annotation_clip=False,
            )  # fmt: skip


def _heading(axes: "Axes", timeline: Timeline, width: float, lines: int) -> None:
    """The title above a timeline that is `width` inches wide, in one line or two, as large as fits."""
    text = title(timeline) if lines == 1 else title(timeline).replace(": ", ":\n", 1)
    heading = axes.annotate(
        text, (0, 1), (0, (_FLUSH if timeline.flushes else 0) * _POINTS + 3.5),
        xycoords="axes fraction", textcoords="offset points", fontsize=8, va="bottom", gid="title", linespacing=1.1,
    )  # fmt: skip
    heading.set_fontsize(min(8.0, 7.8 * width * _POINTS / _width(heading)))


def _width(artist: "Artist") -> float:
    """Width of what is drawn, in points."""
    figure = artist.get_figure(root=True)
    assert figure is not None
    return float(artist.get_window_extent().width) / figure.dpi * _POINTS


def _boxes(axes: "Axes", timeline: Timeline, shown: Shown, until: float, scale: float, what: str = "") -> None:
    """A collection of rectangles per pass and chunk, which its gid names, and `what` they are."""
    from matplotlib.collections import PolyCollection

    kinds: dict[tuple[str, int], list[list[tuple[float, float]]]] = defaultdict(list)
    for top, height, box, action in shown:
        left, right = float(box.start), min(float(box.end), until)
        margin = 0.04 if height in (1, THIN) else 0.02
        upper, lower = top + margin, top + height - margin
        corners = [(left, upper), (right, upper), (right, lower), (left, lower)]
        kinds[box.kind, timeline.chunk_of(action)].append(corners)
    narrow = min((float(box.end - box.start) for _, _, box, _ in shown), default=1.0) * scale
    for (kind, chunk), boxes in sorted(kinds.items()):
        look: dict[str, Any] = {"facecolor": colour(kind, chunk, timeline.v), "hatch": HATCHES.get(kind)}
        look |= {"edgecolor": "white", "linewidth": min(OUTLINE, 0.12 * narrow)}
        axes.add_collection(PolyCollection(boxes, gid=f"{kind}{chunk}{what}", zorder=1, **look))


def _digit_width() -> float:
    """Width of a digit in points, at one point."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return float(TextPath((0, 0), "0000", size=100, prop=FontProperties()).get_extents().width) / 390


def _numbers(axes: "Axes", timeline: Timeline, shown: Shown, until: float, scale: float, row: float) -> None:
    """The microbatches' numbers: all in one size, narrow boxes in a smaller one, too narrow boxes without."""
    from matplotlib.patheffects import withStroke

    digit, fits = _digit_width(), []
    for top, height, box, action in shown:
        left, right = float(box.start), min(float(box.end), until)
        number = str(action.microbatch + 1)
        room = 0.86 * ((right - left) * scale - OUTLINE)
        size = min(room / (digit * len(number)), LARGEST, (0.62 if height == 1 else 0.45) * row)
        background = colour(box.kind, timeline.chunk_of(action), timeline.v)
        fits.append((top + 0.52 * height, (left + right) / 2, number, size, background, box.kind in HATCHES))
    usual = sorted(size for _, _, _, size, _, _ in fits)[len(fits) // 3] if fits else 0.0
    for y, x, number, size, background, hatched in fits:
        if size >= SMALLEST:
            text = axes.text(
                x, y, number, fontsize=min(size, max(usual, SMALLEST)), color=text_colour(background),
                ha="center", va="center_baseline", gid="number",
            )  # fmt: skip
            if hatched:  # keep the hatch away from the digits
                text.set_path_effects([withStroke(linewidth=2.0, foreground=background)])


def _idle(axes: "Axes", timeline: Timeline, tops: Sequence[float], until: float, scale: float) -> None:
    """Says 'devices idle' in the widest gap before the first flush (the end), if it fits there."""
    end = min(float(timeline.flushes[0] if timeline.flushes else timeline.end), until)
    gaps = []
    for top, row in zip(tops, timeline.rows, strict=True):
        before = [box for box in row if box.start < end]
        begins, ends = [0.0, *(float(box.end) for box in before)], [*(float(box.start) for box in before), end]
        gaps += [(end - begin, top, begin) for begin, end in zip(begins, ends, strict=True)]
    width, top, left = max(gaps, key=lambda gap: (gap[0], -gap[1]), default=(0.0, 0.0, 0.0))
    for text, needed in (("devices idle", 52), ("idle", 20)):
        if width * scale >= needed:
            look: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 7, "style": "italic"}
            axes.text(left + width / 2, top + 0.52, text, **look)
            break


def _time_axis(axes: "Axes", timeline: Timeline, narrow: bool) -> None:
    place: dict[str, Any] = {"xycoords": "axes points", "annotation_clip": False}
    arrow = {"arrowstyle": "-|>", "linewidth": 0.8, "color": "black", "shrinkA": 0, "shrinkB": 0}
    unit = "in $t_f$, a device's forward pass" + ("" if narrow else " for one microbatch")
    unit = "in seconds" if timeline.unit == "s" else unit
    axes.annotate("Time", (0, -21), va="center", fontsize=7, **place)
    axes.annotate("", (52, -21), (20, -21), textcoords="axes points", arrowprops=arrow, **place)
    axes.annotate(unit, (57, -21), va="center", fontsize=7, **place)


def _handles(timelines: Sequence[Timeline], predicted: bool) -> dict[str, Any]:
    """What the legend shows, by label."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = frozenset().union(*(timeline.kinds for timeline in timelines))
    handles: dict[str, Any] = {}
    for kind in (kind for kind in PASSES if kind in kinds):
        v = max(timeline.v for timeline in timelines if kind in timeline.kinds)
        label = PASSES[kind] + {1: "", 2: ", chunks 1 and 2"}.get(v, f", chunks 1 to {v}")
        handles[label] = tuple(
            Patch(facecolor=colour(kind, chunk, v), edgecolor="white", linewidth=0, hatch=HATCHES.get(kind))
            for chunk in range(v)
        )
    if any(timeline.fused for timeline in timelines):
        handles["Above each other: run together"] = tuple(Patch(facecolor=colour(kind, 0, 1)) for kind in "FB")
    handles["Idle"] = Patch(color=IDLE)
    if predicted:
        thin = (Line2D([], [], color=colour(kind, 0, 1), linewidth=2, solid_capstyle="butt") for kind in "FB")
        handles["Thin rows: predicted"] = tuple(thin)
    return handles


def _legend(figure: "Figure", handles: Mapping[str, Any], columns: int, foot: float) -> None:
    """The legend `foot` inches above the lower edge, in letters as large as fit."""
    from matplotlib.legend_handler import HandlerTuple

    wide, height = figure.get_size_inches()
    for size in (7.0, 6.0, 5.0):
        legend = figure.legend(
            handles.values(), handles.keys(), ncols=columns, handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
            loc="lower left", bbox_to_anchor=(_LEFT / wide, foot / height), labelspacing=0.3,
            borderpad=0, borderaxespad=0, columnspacing=1.2, handletextpad=0.5, handlelength=1.6, fontsize=size,
        )  # fmt: skip
        if _width(legend) <= (wide - _LEFT) * _POINTS or size == 5.0:
            break
        legend.remove()
