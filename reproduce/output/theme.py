"""The look of all figures: sizes, colours, markers, one style over matplotlib's defaults; and figures as files.

Figures are as wide as a column of the paper (timelines as its page), in 7 pt, with fonts that stay text in the PDF, in
colours that are told apart with any colour vision. A `FigureLook` asks for another width, font or file format. Figures
are made with matplotlib's figure objects, without global state; the same record gives the same bytes.
"""

import io
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import zip_longest
from math import ceil
from typing import TYPE_CHECKING, Any

from results.records.errors import UnavailableError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches: a column and the text width of the ACM's two-column layout, in which the paper is set.
COLUMN, PAGE = 3.33, 7.0
WIDTHS = {"column": COLUMN, "page": PAGE}
NARROWEST, WIDEST = 2.0, 20.0  # inches; in less, the labels leave no room for the figure
HEIGHT = 2.3
LETTER, HANDLE = 3.9, 25  # points that a letter and a handle of a legend take
SMALL_PRINT = 5.5  # points
LINE = 1.2 / 72  # inches that a line of text takes per point of its size
# Okabe and Ito's, without the yellow; in this order neighbours differ under every colour deficiency.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "D", "v", "P")
# What was predicted for what then ran: a bar across its marker; `predicted` gives it the tone of a series.
PREDICTED: Mapping[str, Any] = {
    "marker": "_", "color": "#222222", "markersize": 10, "markeredgewidth": 1.3, "linestyle": "none", "zorder": 3,
}  # fmt: skip
# Points that do not fit, above the axes.
OUT_OF_MEMORY: Mapping[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.0, "linestyle": "none"}
OOM = "out of memory"
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
    "grid.color": "#dddddd",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
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


STYLES = ("screen", "paper")  # of a paper's figure the small print is left to the caption


@dataclass(frozen=True)
class FigureLook:
    """How figures are made for where they go.

    `width` in inches (None: each figure's usual one), `font` of `FONTS`, `formats` of `FORMATS`; with `captioned`,
    where the numbers come from is left to a caption in a text file beside the figure.
    """

    width: float | None = None
    font: str = "sans"
    formats: tuple[str, ...] = ("pdf", "png")
    captioned: bool = False


USUAL = FigureLook()
_WIDTH: ContextVar[float | None] = ContextVar("width of figures", default=None)


@contextmanager
def style(look: FigureLook = USUAL) -> Iterator[None]:
    """The suite's style, for as long as it lasts: over matplotlib's defaults, not over the user's own."""
    import matplotlib

    settings: Any = {**STYLE, **FONTS[look.font]}  # its keys are a closed list to the type checker
    token = _WIDTH.set(look.width)
    try:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(settings)
            yield
    finally:
        _WIDTH.reset(token)


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
    """The width in inches that the look asks for, else the usual one of this kind of figure."""
    return _WIDTH.get() or usual


def new_figure(usual: float = COLUMN, height: float = HEIGHT) -> "Figure":
    """An empty figure, laid out so that nothing overlaps; draw inside `style()`.

    Sizes are in inches; if the look asks for another width, the height grows with the square root of it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    width = figure_width(usual)
    size = (width, height * (width / usual) ** 0.5)
    engine = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
    figure = Figure(figsize=size, layout=engine, dpi=STYLE["savefig.dpi"])  # it is laid out for what it is saved as
    FigureCanvasAgg(figure)
    return figure


def lay_out(figure: "Figure") -> None:
    """Place the parts of a figure so that nothing overlaps, where it has a layout engine; nothing is drawn."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def figure_files(figure: "Figure", title: str, name: str = "figure", look: FigureLook = USUAL) -> dict[str, bytes]:
    """The figure in the look's formats, byte-stable, by file name; with the caption as text if the look leaves it out.

    Save inside the `style(look)` that it was drawn in. Raises `UnavailableError` for pgf without LaTeX, whose sizes of
    letters matplotlib needs.
    """
    files = {}
    if look.captioned:
        files[f"{name}.txt"] = f"{title}. {take_origin(figure)}.\n".encode()
    for format in look.formats:
        files[f"{name}.{format}"] = figure_bytes(figure, format, title)
    return files


def figure_bytes(figure: "Figure", format: str, title: str) -> bytes:
    """The figure as a file of that format, without the date."""
    lay_out(figure)
    figure.set_layout_engine(None)  # once for all formats: for each that still has to, matplotlib draws twice
    without_date: Mapping[str, Mapping[str, str | None]] = {
        "pdf": {"CreationDate": None, "Title": title},
        "png": {"Software": None},
        "svg": {"Date": None, "Title": title},
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


def add_origin(figure: "Figure", lines: list[str]) -> None:
    """Small text at the foot of the figure that says where its numbers come from; its label is that as one line."""
    look: dict[str, Any] = {"fontsize": SMALL_PRINT, "color": "#555555"}
    figure.supxlabel("\n".join(lines), gid=ORIGIN, label=". ".join(lines), **look)


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

    All columns are equally long, with '' where there is nothing; the labels `below` begin a row of their own.
    """
    for most in (4, 3, 2, 1):
        above, under = (_columns(part, ceil(len(part) / most)) for part in (labels, below))
        pairs = zip_longest(above, under)
        columns = [
            [*(upper or [""] * len(above[0])), *(lower or [""] * len((under or [[]])[0]))] for upper, lower in pairs
        ]
        if sum(LETTER * max(map(len, column)) + HANDLE for column in columns) <= 72 * width:
            break
    return columns


def _columns(labels: Sequence[str], rows: int) -> list[list[str]]:
    """The labels in columns of so many rows, filled from above, with '' at the end."""
    starts = range(0, len(labels), max(rows, 1))
    return [[*labels[start : start + rows], *[""] * (start + rows - len(labels))] for start in starts]


def hollow(color: str, marker: str) -> dict[str, Any]:
    """How the paper's points look: hollow, larger than ours, on a broad pale line below ours, to be seen under them."""
    return {
        "marker": marker, "markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 0.9,
        "markeredgecolor": color, "color": (color, 0.3), "linewidth": 3.2, "zorder": 1.8,
    }  # fmt: skip


def predicted(color: str) -> dict[str, Any]:
    """How the prediction for a series of this colour looks: a bar in a darker tone, so that it is told from others'."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (0.55 * part for part in to_rgb(color))
    return {**PREDICTED, "color": to_hex((red, green, blue))}
