"""The look of all figures: sizes, colours, markers, one style over matplotlib's defaults.

Figures are 3.0 in wide, so that they fit a column of the paper (timelines take a page's width), in 7 pt, with fonts
that stay text in the PDF, in colours that are told apart with any colour vision. They are made with matplotlib's figure
objects, without global state; the same record gives the same bytes.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 3.0
WIDE = 7.0
HEIGHT = 2.3
LETTER, HANDLE = 3.9, 25  # points that a letter and a handle of a legend take
# Okabe and Ito's, without the yellow; in this order neighbours differ under every colour deficiency.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
MARKERS = ("o", "s", "^", "D", "v", "P")
# What was predicted for ours.
PREDICTED: Mapping[str, Any] = {
    "marker": "_", "color": "#222222", "markersize": 10, "markeredgewidth": 1.0, "linestyle": "none", "zorder": 3,
}  # fmt: skip
# Points that do not fit, above the axes.
OUT_OF_MEMORY: Mapping[str, Any] = {"marker": "x", "markersize": 4.5, "markeredgewidth": 1.0, "linestyle": "none"}
OOM = "out of memory"
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


@contextmanager
def style() -> Iterator[None]:
    """The suite's style, for as long as it lasts: over matplotlib's defaults, not over the user's own."""
    import matplotlib

    settings: Any = STYLE  # its keys are a closed list to the type checker
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> "Figure":
    """An empty figure of that size in inches, laid out so that nothing overlaps; draw inside `style()`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    FigureCanvasAgg(figure)
    return figure


def figure_bytes(figure: "Figure", format: str, metadata: Mapping[str, str | None]) -> bytes:
    """The figure as a file of that format, in memory."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=format, metadata=dict(metadata))
    return buffer.getvalue()


def add_origin(figure: "Figure", lines: list[str]) -> None:
    """Small text at the foot of the figure that says where its numbers come from."""
    figure.supxlabel("\n".join(lines), fontsize=5.5, color="#555555")


def legend_shape(labels: Sequence[str], width: float = WIDTH) -> tuple[int, int]:
    """Columns and rows of a legend with these labels over a figure `width` inches wide: as few rows as fit."""
    for columns in (4, 3, 2, 1):
        rows = ceil(len(labels) / columns)
        widest = [max(len(label) for label in labels[at : at + rows]) for at in range(0, len(labels), rows)]
        if sum(LETTER * letters + HANDLE for letters in widest) <= 72 * width:
            break
    return ceil(len(labels) / rows), rows  # columns are filled from above: of four labels, two columns of two


def hollow(color: str, marker: str) -> dict[str, Any]:
    """How the paper's points look: hollow, larger than ours, on a broad pale line below ours, to be seen under them."""
    pale = "#" + "".join(f"{round(0.3 * int(color[i : i + 2], 16) + 0.7 * 255):02x}" for i in (1, 3, 5))
    return {
        "marker": marker, "markersize": 6.5, "markerfacecolor": "none", "markeredgewidth": 0.9,
        "markeredgecolor": color, "color": pale, "linewidth": 3.2, "zorder": 1.8,
    }  # fmt: skip
