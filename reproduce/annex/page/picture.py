"""Figure 12 as the page shows it before Python has loaded: the paper's rings as static SVG, nothing simulated.

Places and letters are those of chart.js, so that nothing moves when the simulated lines join.
"""

from collections.abc import Iterable, Iterator
from html import escape
from math import ceil, floor
from typing import NamedTuple

from ptdp_core.schedules import build, execute
from reproduce.experiment import catalog
from reproduce.experiment.sweep import PAPER

FIGURE = "fig_interleaved"
SIZES = ((596, 530), (324, 330))  # of a desk's and of a phone's screen, in pixels; home.js shows one of them
HIGH, STEP, LETTER = 26, 20, 7  # pixels of the top, the shown unit between lines, pixels of a letter


class Frame(NamedTuple):
    """The axes of a picture: its edges in pixels, the values on the x axis, and the ends of the y axis."""

    left: float
    right: float
    low: float
    xs: list[float]
    ends: tuple[int, int]

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands, in pixels from the left and the top."""
        share = (x - self.xs[0]) / (self.xs[-1] - self.xs[0])
        height = (y - self.ends[0]) / (self.ends[1] - self.ends[0])
        across = self.left + 14 + share * (self.right - self.left - 28)
        return round(across, 1), round(self.low - height * (self.low - HIGH), 1)


KEY = {  # of the home page's chart: what is drawn, how wide, and what it means
    '<path class="line s1" d="M0 8H22"/><circle class="f1" cx="11" cy="8" r="3.5"/>': (22, "simulated here"),
    '<circle class="pub s1" cx="8" cy="8" r="7"/>': (16, "the paper’s points"),
    '<rect class="ar f1" width="22" height="16"/>': (22, "where 9 of 10 real values fall"),
}


def marks() -> dict[str, str]:
    """What the page's placeholders stand for: the picture for both widths, and what it is."""
    shown = catalog.load(FIGURE)
    claims = len({claim.sentence for claim in shown.claims})
    return {
        "@PICTURE_CLAIMS@": f"{shown.label} and its {claims} sentences",
        "@KEY@": "".join(
            f'<li><svg width="{width}" height="16" aria-hidden="true">{drawn}</svg>{words}</li>'
            for drawn, (width, words) in KEY.items()
        ),
        "@PICTURE@": "".join(_picture(*size) for size in SIZES),
    }


def _published() -> dict[str, list[tuple[float, float]]]:
    """The published points of each series, in the shown unit."""
    shown = catalog.load(FIGURE)
    quantity, x_axis = shown.quantities[0], shown.x_axis
    assert x_axis is not None
    series: dict[str, list[tuple[float, float]]] = {}
    for point in shown.points(PAPER):
        value = point.paper[quantity.name].value / quantity.factor
        series.setdefault(point.series, []).append((float(point.parameters[x_axis.parameter]), value))
    return series


def _small(drawn: Iterable[str]) -> str:
    return f'<svg width="96" height="64" viewBox="0 0 96 64" aria-hidden="true">{"".join(drawn)}</svg>'


def _boxes(look: str, boxes: Iterable[tuple[float, float, float, float]]) -> str:
    """Rectangles of one look, each given by its left, top, width and height."""
    return f'<path class="{look}" d="{"".join(f"M{x:.3g} {y:g}h{w:.3g}v{h:g}h{-w:.3g}z" for x, y, w, h in boxes)}"/>'


def small_figure() -> str:
    """Figure 12 as small as a door has it: the published points, joined."""
    drawn = ['<path class="grid" d="M0 62H96M0 40H96M0 18H96"/>']
    for kind, points in enumerate(_published().values(), start=1):
        places = [(6 + 84 * (x - 12) / 48, 62 - 0.66 * (y - 60)) for x, y in points]
        drawn.append(f'<path class="line s{kind}" d="M{"L".join(f"{x:.0f} {y:.0f}" for x, y in places)}"/>')
        drawn += [f'<circle class="pub s{kind}" cx="{x:.0f}" cy="{y:.0f}" r="5"/>' for x, y in places[::2]]
    return _small(drawn)


def small_cluster() -> str:
    """Six nodes of three GPUs: stages and replicas."""
    nodes = [(33.0 * column + 1, 34.0 * row + 1) for row in (0, 1) for column in range(3)]
    gpus = [
        [(x + 5 + 7 * gpu, y + 5, 5.0, 18.0) for x, y in half for gpu in range(3)] for half in (nodes[:3], nodes[3:])
    ]
    return _small(
        [_boxes("box", ((x, y, 28.0, 28.0) for x, y in nodes)), _boxes("fwd", gpus[0]), _boxes("bwd", gpus[1])]
    )


def small_timeline() -> str:
    """The passes of 1F1B on four stages with four microbatches."""
    rows = execute(build("1f1b", 4, 4), 1, 2, 0)
    unit = 96 / max(float(event.end) for row in rows for event in row)
    passes = {
        kind: [
            (unit * float(event.start), 17.0 * rank, unit * float(event.end - event.start) - 1, 13.0)
            for rank, row in enumerate(rows)
            for event in row
            if event.kind == kind
        ]
        for kind in "FB"
    }
    return _small([_boxes("fwd", passes["F"]), _boxes("bwd", passes["B"])])


def _picture(width: int, height: int) -> str:
    """The published points as the live chart marks them: rings, without a line."""
    shown = catalog.load(FIGURE)
    quantity, x_axis = shown.quantities[0], shown.x_axis
    assert x_axis is not None
    series = _published()
    values = [y for points in series.values() for _, y in points]
    ends = (STEP * floor(min(values) / STEP) - STEP, STEP * ceil(max(values) / STEP))
    names = 22 + max(LETTER * len(name) + 4 for name in series) if width > 500 else 14
    xs = sorted({x for points in series.values() for x, _ in points})
    frame = Frame(31, width - names, height - 44, xs, ends)
    drawn = [*_axes(frame, x_axis.label, quantity.axis or quantity.heading)]
    for kind, (name, points) in enumerate(series.items(), start=1):
        places = [frame.place(*point) for point in points]
        drawn += [f'<circle class="pub s{kind}" cx="{x}" cy="{y}" r="7"/>' for x, y in places]
        x, y = (frame.right + 6, places[-1][1] - 2) if width > 500 else (places[2][0], places[2][1] + 42 - 28 * kind)
        drawn.append(f'<text x="{x}" y="{y}" class="b {"" if width > 500 else "mid"} f{kind}">{escape(name)}</text>')
        if width > 500:
            drawn.append(f'<text x="{x}" y="{y + 17}">paper {points[-1][1]:.0f}</text>')
    label = escape(f"{shown.label}, the published values: {quantity.axis} over {x_axis.label}")
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg class="published" role="img" aria-label="{label}" {box}>{"".join(drawn)}</svg>'


def _axes(frame: Frame, x_label: str, y_label: str) -> Iterator[str]:
    """Lines at round values, the numbers beside and below them, and what the axes are."""
    yield f'<text x="0" y="12" class="k b">{escape(y_label)}</text>'
    for y in range(frame.ends[0], frame.ends[1] + 1, STEP):
        _, height = frame.place(frame.xs[0], y)
        yield f'<path class="grid" d="M{frame.left} {height}H{frame.right}"/>'
        yield f'<text x="{frame.left - 8}" y="{height + 4}" class="end">{y}</text>'
    for x in frame.xs:
        yield f'<text x="{frame.place(x, 0)[0]}" y="{frame.low + 20}" class="mid">{x:g}</text>'
    yield f'<text x="{frame.left}" y="{frame.low + 38}">{escape(x_label)} →</text>'
