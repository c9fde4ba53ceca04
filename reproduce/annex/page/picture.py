"""Figure 12 as the page shows it before Python has loaded: the published points as static SVG, nothing simulated."""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil
from typing import NamedTuple

from reproduce.experiment import catalog
from reproduce.experiment.sweep import PAPER

FIGURE = "fig_interleaved"
WIDTHS = (760, 358)  # of a desk's and of a phone's screen, in pixels; the style sheet shows one of them
HEIGHT = 380
LEFT, RIGHT, TOP, BOTTOM, INSET = 56, 20, 20, 44, 12
COLOURS = ("#0072b2", "#d55e00")  # as those of the first series in chart.js
GRID = 20  # between lines, in the shown unit


class Frame(NamedTuple):
    """The axes of a picture: its width in pixels, the values on the x axis, and the largest one on the y axis."""

    width: int
    xs: list[float]
    top: int

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands, in pixels from the left and the top."""
        inner = self.width - LEFT - RIGHT - 2 * INSET
        share = (x - self.xs[0]) / (self.xs[-1] - self.xs[0])
        height = (HEIGHT - BOTTOM - TOP) * y / self.top
        return round(LEFT + INSET + inner * share, 1), round(HEIGHT - BOTTOM - height, 1)


def marks() -> dict[str, str]:
    """What the page's placeholders stand for: title, description, and the picture for both widths."""
    shown = catalog.load(FIGURE)
    return {
        "@PICTURE_TITLE@": escape(f"{shown.label}: {shown.title}"),
        "@PICTURE_DESCRIPTION@": escape(shown.description),
        "@PICTURE@": "".join(map(_picture, WIDTHS)),
    }


def _picture(width: int) -> str:
    """The published points as the live chart marks them: hollow, on dashed lines."""
    shown = catalog.load(FIGURE)
    quantity, x_axis = shown.quantities[0], shown.x_axis
    assert x_axis is not None
    series: dict[str, list[tuple[float, float]]] = {}
    for point in shown.points(PAPER):
        value = point.paper[quantity.name].value / quantity.factor
        series.setdefault(point.series, []).append((float(point.parameters[x_axis.parameter]), value))
    points = [point for of_series in series.values() for point in of_series]
    frame = Frame(width, sorted({x for x, _ in points}), GRID * ceil(max(y for _, y in points) / GRID))
    drawn = [*_axes(frame, x_axis.label, quantity.axis)]
    for i, (name, of_series) in enumerate(series.items()):
        drawn += _series([frame.place(*point) for point in of_series], COLOURS[i])
        drawn.append(_text(width - RIGHT, HEIGHT - BOTTOM - 56 + 24 * i, f"○ {name} (paper)", "end", COLOURS[i]))
    label = escape(f"{shown.label}, the published values: {quantity.axis} over {x_axis.label}")
    box = f'viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}"'
    return f'<svg class="published w{width}" role="img" aria-label="{label}" {box}>{"".join(drawn)}</svg>'


def _axes(frame: Frame, x_label: str, y_label: str) -> Iterator[str]:
    """Lines at round values, the numbers beside and below them, and what the axes are."""
    for y in range(0, frame.top + 1, GRID):
        _, height = frame.place(frame.xs[0], y)
        yield f'<path class="grid" d="M{LEFT} {height}H{frame.width - RIGHT}"/>'
        yield _text(LEFT - 8, height + 4, y, "end")
    for x in frame.xs:
        yield _text(frame.place(x, 0)[0], HEIGHT - BOTTOM + 18, f"{x:g}", "middle")
    yield _text(frame.width - RIGHT, HEIGHT - 8, f"{x_label} →", "end")
    yield _text(4, 10, f"↑ {y_label}", "start")


def _series(places: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    """A dashed line, and a hollow mark for each point."""
    yield f'<path class="paper" stroke="{colour}" d="M{"L".join(f"{x} {y}" for x, y in places)}"/>'
    for x, y in places:
        yield f'<circle class="mark" stroke="{colour}" cx="{x}" cy="{y}" r="7"/>'


def _text(x: float, y: float, text: object, anchor: str, colour: str = "currentColor") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(str(text))}</text>'
