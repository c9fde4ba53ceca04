"""Parts of the paper's diagrams, drawn from the objects of `ptdp_core.layout`, so that they change when those do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptdp_core.layout import COLUMN, ROW, Parameter, ShardSpec
from reproduce.output.colours import BLUE, ORANGE, PALE_BLUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# In the units of `draw_block`, 104 of which are its width: the longest side of a matrix that is four times as long as
# the model is wide, what is left for the sizes under a matrix, and at least for a rank.
LONGEST, SIZES, LEAST_ROW = 22.0, 8.0, 20.0


def arrow(axes: "Axes", x: float, y: float, to_x: float, to_y: float, colour: str = "k", style: str = "-|>") -> None:
    """A thin arrow from (x, y) to (to_x, to_y), in data coordinates; `style` is matplotlib's arrow style."""
    look: dict[str, Any] = {"arrowstyle": style, "mutation_scale": 5, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops={**look, "linewidth": 0.6, "color": colour})


def box(axes: "Axes", x: float, y: float, width: float, height: float, face: str, edge: str | None = None) -> None:
    """A rectangle with its lower left corner at (x, y), in data coordinates; with a thin outline if one is given."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linewidth=0.5))


def block_height(weights: Sequence[Parameter]) -> float:
    """Height of what `draw_block` draws, in its units: the rows of two ranks."""
    return 2 * max(LEAST_ROW, max(height for _, height in _sides(weights)) + SIZES)


def draw_block(axes: "Axes", weights: Sequence[Parameter], t: int, between: str) -> None:
    """A block of two matrices (Figure 5): X, f, the slices of the first and of the last of t ranks, g, Z.

    f is drawn before a column-parallel matrix and g after a row-parallel one; `between` says what is computed between
    the two. All is to one scale.
    """
    axes.set_axis_off()
    half = block_height(weights) / 2
    axes.set(xlim=(-2, 102), ylim=(-half, half), aspect="equal")
    for end, name in ((3, "X"), (97, "Z")):
        axes.text(end, 0, f"{name}\ns×b×h", ha="center", va="center", fontsize=6)
    for tp, row in [(0, half / 2), (t - 1, -half / 2)] if t > 1 else [(0, 0.0)]:
        y, towards = row + SIZES / 2, 2.0 if row > 0 else -2.0
        edges = []
        for x, weight, (width, height) in zip((34.0, 70.0), weights, _sides(weights), strict=True):
            _matrix(axes, (x - width / 2, y + height / 2, width, height), weight, weight.shard(t, tp))
            edges += [x - width / 2 - 0.8, x + width / 2 + 0.8]
            if weight.split == COLUMN:
                _operator(axes, x - 18, 0, "f")
                arrow(axes, x - 15.5, towards, edges[-2], y)
            elif weight.split == ROW:
                arrow(axes, edges[-1], y, x + 15.5, towards)
                _operator(axes, x + 17.5, 0, "g")
        arrow(axes, edges[1], y, edges[2], y)
        axes.text((edges[1] + edges[2]) / 2, y + 1, between, ha="center", va="bottom", fontsize=6)
        axes.text(3, y, f"rank {tp}", ha="center", va="center", fontsize=6.5, color=BLUE)
    if t > 2:
        axes.text(34, 0, "⋮", ha="center", va="center", fontsize=8)
    arrow(axes, 8, 0, 13, 0)
    arrow(axes, 90, 0, 92.5, 0)


def _sides(weights: Sequence[Parameter]) -> list[tuple[float, float]]:
    """Width and height of each matrix as the paper writes it, inputs down and outputs across."""
    longest = max(4 * weights[0].shape[1], *(size for weight in weights for size in weight.shape))
    return [(LONGEST * outputs / longest, LONGEST * inputs / longest) for outputs, inputs in (w.shape for w in weights)]


def _operator(axes: "Axes", x: float, y: float, text: str) -> None:
    look = {"boxstyle": "circle,pad=0.25", "facecolor": "white", "edgecolor": ORANGE, "linewidth": 0.8}
    axes.text(x, y, text, ha="center", va="center", fontsize=7, style="italic", bbox=look, zorder=4)


def _matrix(axes: "Axes", place: tuple[float, float, float, float], weight: Parameter, shard: ShardSpec) -> None:
    """A matrix with this rank's slice filled, and the sizes of both; `place` is its left, top, width and height."""
    left, top, width, height = place
    box(axes, left, top - height, width, height, PALE_BLUE, BLUE)
    across, down = (0.0, 1.0), (0.0, 1.0)
    if weight.split is not None:
        part = shard.start / weight.shape[weight.split], shard.stop / weight.shape[weight.split]
        across, down = (part, down) if weight.split == COLUMN else (across, part)
    sides = (across[1] - across[0]) * width, (down[1] - down[0]) * height
    box(axes, left + across[0] * width, top - down[1] * height, *sides, BLUE)
    x, side = (left + width, "right") if weight.split == ROW else (left + width / 2, "center")  # an arrow goes to g
    look: dict[str, Any] = {"ha": side, "va": "top", "fontsize": 6}
    for below, (outputs, inputs), colour, words in ((1.0, shard.shape, BLUE, ""), (3.8, weight.shape, "k", "of ")):
        axes.text(x, top - height - below, f"{words}{inputs}×{outputs}", color=colour, **look)
