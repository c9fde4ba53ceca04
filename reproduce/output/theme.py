"""The look of all figures: sizes, colours, markers, one style over matplotlib's defaults; and figures as files.

Figures are as wide as a column of the paper (timelines as its page), in 7 pt, with fonts that stay text in the PDF, in
colours that are told apart with any colour vision. A `FigureLook` asks for another width, font or file format. Figures
are made with matplotlib's figure objects, without global state; the same record gives the same bytes.
"""

import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from reproduce.output.colours import GRID, MARK, NOTE
from results.records.errors import UnavailableError
from results.visible import has_control, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: a column and the text width of the ACM's two-column layout, in which the paper is set.
COLUMN, PAGE = 3.33, 7.0
WIDTHS = {"column": COLUMN, "page": PAGE}
NARROWEST, WIDEST = 2.0, 20.0  # inches; in less, the labels leave no room for the figure
HEIGHT = 2.3
LETTER, HANDLE, MARGIN = 4.1, 24, 8  # points that a letter in the usual size, a handle and both edges of a legend take
MOST_COLUMNS = 5  # of a legend
SMALL_PRINT = 5.5  # points
SMALL_LETTERS = 24  # that fit an inch of it
LINE = 1.2 / 72  # inches that a line of text takes per point of its size
MARKERS = ("o", "s", "^", "D", "v", "P")
# What was predicted for what then ran: a bar across its marker; `predicted` gives it the tone of a series.
PREDICTED: Mapping[str, Any] = {
    "marker": "_", "color": MARK, "markersize": 5.5, "markeredgewidth": 1.3, "linestyle": "none", "zorder": 3,
}  # fmt: skip
# Points that do not fit, above the axes.
OUT_OF_MEMORY: Mapping[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.0, "linestyle": "none"}
OOM = "out of memory"
DASHED: Any = (0, (3, 2))  # the line of the paper's points
BAND = 0.15  # opacity of the band over intervals
ORIGIN = "origin"  # marks the text that says where a figure's numbers come from
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
    "grid.color": GRID,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.35,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "text.usetex": False,
    "savefig.dpi": 300,
    "svg.hashsalt": "ptdp",
}


FORMATS = ("pdf", "png", "svg", "pgf")
# Of a font: which letters combine, and how far apart they stand. A PDF's text has its places, and reducing these tables
# to the letters that it needs took half the time of writing it.
LAYOUT_TABLES = ("GDEF", "GPOS", "GSUB")
# Both come with matplotlib, so that figures look alike on every machine; STIX is metrically a Times.
FONTS: Mapping[str, Mapping[str, Any]] = {
    "sans": {},
    "serif": {"font.family": "serif", "font.serif": ["STIXGeneral"], "mathtext.fontset": "stix"},
}


@dataclass(frozen=True)
class Venue:
    """What a venue prints: inches of a column and of the text, points of labels and of smaller letters."""

    column: float
    page: float
    labels: float
    small: float


# Widths are those of the style files (neurips.sty, icml.sty, acmart's sigconf, IEEEtran). Letters of NeurIPS and ICML
# are tueplots' (0.2.5): one point less than text and captions, two less for ticks and legends; ACM's text is of 9
# points, and IEEE asks for labels of 8 to 10.
VENUES: Mapping[str, Venue] = {
    "neurips": Venue(5.5, 5.5, 9, 7),
    "icml": Venue(3.25, 6.75, 8, 6),
    "acm": Venue(COLUMN, PAGE, 8, 7),
    "sc": Venue(COLUMN, PAGE, 8, 7),
    "ieee": Venue(3.5, 7.16, 8, 8),
}
STYLES = ("screen", "paper", *VENUES)  # in all but the first the small print is left to the caption


@dataclass(frozen=True)
class FigureLook:
    """How figures are made for where they go.

    `width` in inches (None: each figure's usual one, or the venue's), `font` of `FONTS`, `formats` of `FORMATS`; with
    `captioned`, where the numbers come from is left to a caption in a text file beside the figure, and the numbers are
    in a CSV file there.
    """

    width: float | None = None
    font: str = "sans"
    formats: tuple[str, ...] = ("pdf", "png")
    captioned: bool = False
    venue: Venue | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The style's parameters of matplotlib."""
        sizes: dict[str, float] = {}
        if self.venue:
            sizes |= dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), self.venue.labels)
            sizes |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), self.venue.small)
        return {**STYLE, **FONTS[self.font], **sizes}


USUAL = FigureLook()


def look_of(
    style: str, font: str | None = None, width: float | None = None, formats: tuple[str, ...] = USUAL.formats
) -> FigureLook:
    """The look of one of `STYLES`: a venue's letters are serif unless `font` says otherwise."""
    venue = VENUES.get(style)
    return FigureLook(width, font or ("serif" if venue else USUAL.font), formats, style != STYLES[0], venue)


_LOOK: ContextVar[FigureLook] = ContextVar("look of figures", default=USUAL)


@contextmanager
def style(look: FigureLook = USUAL) -> Iterator[None]:
    """The suite's style, for as long as it lasts: over matplotlib's defaults, not over the user's own."""
    import matplotlib

    settings: Any = look.settings  # its keys are a closed list to the type checker
    token = _LOOK.set(look)
    try:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(settings)
            yield
    finally:
        _LOOK.reset(token)


def width_of(width: str | float) -> float:
    """The inches of 'column', 'page' or a number. Raises `ValueError` for another text, or for what nothing fits in."""
    try:
        inches = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        raise ValueError(f"unknown width {width!r}; needs column, page or inches; try column") from None
    if not NARROWEST <= inches <= WIDEST:
        raise ValueError(f"a width of {width} in; needs {NARROWEST:g} to {WIDEST:g} inches")
    return inches


def figure_width(usual: float = COLUMN) -> float:
    """The width in inches that the look asks for, else the usual one of this kind of figure, a column's or a page's."""
    look = _LOOK.get()
    if look.width or not look.venue:
        return look.width or usual
    return look.venue.column if usual <= COLUMN else look.venue.page


def new_figure(usual: float = COLUMN, height: float = HEIGHT) -> "Figure":
    """An empty figure, laid out so that nothing overlaps; draw inside `style()`.

    Sizes are in inches; if the look asks for another width, the height grows with the square root of it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = figure_width(usual)
    size = (width, height * (width / usual) ** 0.5)
    engine = ConstrainedLayoutEngine(w_pad=0.04, h_pad=0.03)
    figure = Figure(figsize=size, layout=engine, dpi=STYLE["savefig.dpi"])  # it is laid out for what it is saved as
    FigureCanvasAgg(figure)
    return figure


def name_panel(axes: "Axes", letter: str, text: str) -> None:
    """Write '(a)' and what a part of a figure shows above it, at the left."""
    axes.set_title(f"({letter}) {text}", loc="left", fontsize=_LOOK.get().settings["axes.labelsize"])


def lay_out(figure: "Figure") -> None:
    """Place the parts of a figure so that nothing overlaps, where it has a layout engine; nothing is drawn.

    Texts are made visible: an SVG with control characters is none.
    """
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if has_control(text.get_text()):
            text.set_text(visible(text.get_text()))
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def figure_files(
    figure: "Figure",
    title: str,
    name: str = "figure",
    look: FigureLook = USUAL,
    numbers: Callable[[], str] | None = None,
) -> dict[str, bytes]:
    """The figure in the look's formats, byte-stable, by file name; if the look is captioned, with caption and numbers.

    `numbers` makes the text of the CSV file. Save inside the `style(look)` that it was drawn in. Raises
    `UnavailableError` for pgf without LaTeX, whose sizes of letters matplotlib needs.
    """
    files = {}
    if look.captioned:
        files[f"{name}.txt"] = f"{title}. {take_origin(figure)}.\n".encode()
        if numbers:
            files[f"{name}.csv"] = numbers().encode()
    text = numbers() if numbers else ""
    for format in look.formats:
        files[f"{name}.{format}"] = figure_bytes(figure, format, title, text)
    return files


def alternative(figure: "Figure", title: str) -> str:
    """What a figure shows, for those who do not see it: its axes, and each line's first and last value."""
    import numpy as np

    parts = [f"{title}."]
    for axes in figure.axes:
        lines = {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in axes.lines}
        said = [f"{name} {y[0]:.4g} to {y[-1]:.4g}" for name, y in lines.items() if name[:1] != "_" and y.size]
        if said:
            parts.append(f"{axes.get_ylabel()} over {axes.get_xlabel()}: {'; '.join(said)}.".replace("\n", " "))
    return visible(" ".join(parts))


def figure_bytes(figure: "Figure", format: str, title: str, numbers: str = "") -> bytes:
    """The figure as a file of that format, without the date, with an alternative text and its `numbers` in it."""
    lay_out(figure)
    title = visible(title)
    figure.set_layout_engine(None)  # once for all formats: for each that still has to, matplotlib draws twice
    said = alternative(figure, title)
    without_date: Mapping[str, Mapping[str, Any]] = {
        "pdf": {"CreationDate": None, "Title": title, "Subject": said, "Keywords": numbers or None},
        "png": {"Software": None, "Description": said},
        "svg": {"Date": None, "Title": title, "Description": said, "Coverage": numbers or None},
    }
    if format == "pgf" and not shutil.which("xelatex"):
        raise UnavailableError(
            "format pgf needs xelatex, which is not here; try --format pdf, or install TeX Live's xelatex"
        )
    buffer = io.BytesIO()
    options: dict[str, Any] = {"metadata": dict(without_date[format])} if format in without_date else {}
    with _fonts_without(LAYOUT_TABLES):
        figure.savefig(buffer, format=format, **options)
    return buffer.getvalue()


@contextmanager
def _fonts_without(tables: Sequence[str]) -> Iterator[None]:
    """Inside, a font that goes into a PDF loses these tables, too, instead of being searched through them."""
    from fontTools.subset import Options

    dropped = Options._drop_tables_default  # matplotlib passes no options on
    Options._drop_tables_default = [*dropped, *tables]
    try:
        yield
    finally:
        Options._drop_tables_default = dropped


def add_origin(figure: "Figure", lines: list[str], caption: str = "") -> None:
    """Small text at the foot of the figure that says where its numbers come from; its label is what a caption says.

    A caption that is not given is the lines as one.
    """
    look: dict[str, Any] = {"fontsize": SMALL_PRINT, "color": NOTE}
    letters = int(SMALL_LETTERS * figure.get_figwidth())
    shown = [part for line in lines for part in wrap(line, letters)]
    figure.supxlabel("\n".join(shown), gid=ORIGIN, label=caption or ". ".join(lines), **look)


def take_origin(figure: "Figure") -> str:
    """Take the text about where the numbers come from out of a figure, which gets as much lower."""
    from matplotlib.text import Text

    (text,) = (each for each in figure.findobj(Text) if isinstance(each, Text) and each.get_gid() == ORIGIN)
    lines = text.get_text().count("\n") + 1
    text.set(text="", in_layout=False)
    figure.set_figheight(figure.get_figheight() - lines * SMALL_PRINT * LINE)
    return str(text.get_label())


def legend_columns(labels: Sequence[str], width: float = COLUMN, below: Sequence[str] = ()) -> list[list[str]]:
    """The columns of a legend with these labels over a figure `width` inches wide: as few rows as fit.

    All columns are equally long, with '' where there is nothing; the labels `below` begin a row of their own unless
    this costs a row.
    """
    letter = LETTER * _LOOK.get().settings["legend.fontsize"] / STYLE["legend.fontsize"]
    apart, together = (_in_parts(parts, letter, width) for parts in ((labels, below), ([*labels, *below], ())))
    return min(apart, together, key=lambda columns: len(columns[0]) if columns else 0)


def _in_parts(parts: Sequence[Sequence[str]], letter: float, width: float) -> list[list[str]]:
    """Two parts, each from a row of its own, one below the other, in as many columns as fit."""
    for most in range(MOST_COLUMNS, 0, -1):
        above, under = (_columns(part, ceil(len(part) / most)) for part in parts)
        pairs = zip_longest(above, under)
        columns = [
            [*(upper or [""] * len((above or [[]])[0])), *(lower or [""] * len((under or [[]])[0]))]
            for upper, lower in pairs
        ]
        if _fits(columns, letter, width):
            break
    return columns


def _fits(columns: Sequence[Sequence[str]], letter: float, width: float) -> bool:
    """Whether a legend's columns, whose letters are so many points broad, fit in so many inches."""
    return sum(letter * max(map(len, column)) + HANDLE for column in columns) <= 72 * width - MARGIN


def _columns(labels: Sequence[str], rows: int) -> list[list[str]]:
    """The labels in columns of so many rows, filled from above, with '' at the end."""
    starts = range(0, len(labels), max(rows, 1))
    return [[*labels[start : start + rows], *[""] * (start + rows - len(labels))] for start in starts]


def hollow(color: str, marker: str) -> dict[str, Any]:
    """How the paper's points look: hollow, larger than ours so that they are seen under them, on a thin dashed line."""
    return {
        "marker": marker, "markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 0.9,
        "color": color, "linewidth": 0.8, "linestyle": DASHED, "zorder": 1.8,
    }  # fmt: skip


def predicted(color: str) -> dict[str, Any]:
    """How the prediction for a series of this colour looks: a bar in a darker tone, so that it is told from others'."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (0.55 * part for part in to_rgb(color))
    return {**PREDICTED, "color": to_hex((red, green, blue))}
