"""Figure 12 as the page shows it before Python has loaded: the published points as static SVG, nothing simulated."""

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil

from reproduce.experiment import catalog
from reproduce.experiment.sweep import PAPER, Point

FIGURE = "fig_interleaved"
WIDTHS = (760, 358)  # of a desk's and of a phone's screen, in pixels; the style sheet shows one of them
HEIGHT = 380
LEFT, RIGHT, TOP, BOTTOM, INSET = 56, 20, 20, 44, 12
COLOURS = ("#0072b2", "#d55e00")  # as those of the first series in chart.js
GRID = 20  # between lines, in the shown unit


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
    quantity, x_axis, points = shown.quantities[0], shown.x_axis, shown.points(PAPER)
    assert x_axis is not None
    numbers = {point.key: point.paper[quantity.name].value / quantity.factor for point in points}
    xs = sorted({int(point.parameters[x_axis.parameter]) for point in points})  # type: ignore[arg-type]
    top = GRID * ceil(max(numbers.values()) / GRID)

    def place(x: int, y: float) -> tuple[float, float]:
        inner = width - LEFT - RIGHT - 2 * INSET
        return (
            round(LEFT + INSET + inner * (x - xs[0]) / (xs[-1] - xs[0]), 1),
            round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / top, 1),
        )

    def drawn() -> Iterator[str]:
        for y in range(0, top + 1, GRID):
            _, height = place(xs[0], y)
            yield f'<path class="grid" d="M{LEFT} {height}H{width - RIGHT}"/>' + _text(LEFT - 8, height + 4, y, "end")
        for x in xs:
            yield _text(place(x, 0)[0], HEIGHT - BOTTOM + 18, x, "middle")
        yield _text(width - RIGHT, HEIGHT - 8, f"{x_axis.label} →", "end")
        yield _text(4, 10, f"↑ {quantity.axis}", "start")
        for i, series in enumerate(dict.fromkeys(point.series for point in points)):
            of_series = [point for point in points if point.series == series]
            places = [place(int(point.parameters["B"]), numbers[point.key]) for point in of_series]
            yield from _series(of_series, places, COLOURS[i])

    label = escape(f"{shown.label}, the published values: {quantity.axis} over {x_axis.label}")
    box = f'viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}"'
    return f'<svg class="w{width}" role="img" aria-label="{label}" {box}>{"".join(drawn())}</svg>'


def _series(points: Sequence[Point], places: Sequence[tuple[float, float]], colour: str) -> Iterator[str]:
    """A dashed line, a hollow mark for each point, and the name of the series below the last one."""
    yield f'<path class="paper" stroke="{colour}" d="M{"L".join(f"{x} {y}" for x, y in places)}"/>'
    for x, y in places:
        yield f'<circle class="mark" stroke="{colour}" cx="{x}" cy="{y}" r="7"/>'
    x, y = places[-1]
    yield _text(x, y + 28, f"{points[0].series} (paper)", "end", colour)


def _text(x: float, y: float, text: object, anchor: str, colour: str = "currentColor") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{escape(str(text))}</text>'
