"""Parts of the paper's diagrams, drawn from the objects of `ptdp_core.layout`, so that they change when those do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptdp_core.layout import COLUMN, ROW, Parameter, ShardSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE = "#0072b2", "#d55e00"
LIGHT, PALE = "#7db3e0", "#e8f0f6"
LONGEST = 20.0  # of a matrix, in the units of `draw_block`


def arrow(axes: "Axes", x: float, y: float, to_x: float, to_y: float, colour: str = "k", style: str = "-|>") -> None:
    """A thin arrow from (x, y) to (to_x, to_y), in data coordinates; `style` is matplotlib's arrow style."""
    look: dict[str, Any] = {"arrowstyle": style, "mutation_scale": 5, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (to_x, to_y), (x, y), arrowprops={**look, "linewidth": 0.6, "color": colour})


def box(axes: "Axes", x: float, y: float, width: float, height: float, face: str, edge: str | None = None) -> None:
    """A rectangle with its lower left corner at (x, y), in data coordinates; with a thin outline if one is given."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linewidth=0.5))


def draw_block(axes: "Axes", weights: Sequence[Parameter], t: int, between: str) -> None:
    """A block of two matrices (Figure 5): X, f, the slices of the first and of the last of t ranks, g, Z.

    f is drawn before a column-parallel matrix and g after a row-parallel one; `between` says what is computed between
    the two.
    """
    axes.set_axis_off()
    axes.set(xlim=(-2, 102), ylim=(-6, 68))
    for end, name in ((3, "X"), (97, "Z")):
        axes.text(end, 30, f"{name}\ns×b×h", ha="center", va="center", fontsize=6)
    longest = max(size for weight in weights for size in weight.shape)
    scale = LONGEST / max(longest, 4 * weights[0].shape[1]) ** 0.5
    ranks = [(0, 50.0), (t - 1, 12.0)] if t > 1 else [(0, 30.0)]
    for tp, y in ranks:
        towards = 4.0 if y > 30 else -4.0
        for x, weight in zip((34.0, 70.0), weights, strict=True):
            _matrix(axes, x, y, weight, weight.shard(t, tp), scale)
            if weight.split == COLUMN:
                _operator(axes, x - 18, 30, "f")
                arrow(axes, x - 15.5, 30 + towards, x - 11.5, y)
            elif weight.split == ROW:
                arrow(axes, x + 10.5, y, x + 15.5, 30 + towards)
                _operator(axes, x + 17.5, 30, "g")
        arrow(axes, 45.5, y, 59, y)
        axes.text(52, y + 2, between, ha="center", va="bottom", fontsize=6)
        axes.text(3, y, f"rank {tp}", ha="center", va="center", fontsize=6.5, color=BLUE)
    if t > 2:
        axes.text(52, 31, "⋮", ha="center", va="center", fontsize=8)
    arrow(axes, 8, 30, 13, 30)
    arrow(axes, 90, 30, 92.5, 30)


def _operator(axes: "Axes", x: float, y: float, text: str) -> None:
    look = {"boxstyle": "circle,pad=0.25", "facecolor": "white", "edgecolor": ORANGE, "linewidth": 0.8}
    axes.text(x, y, text, ha="center", va="center", fontsize=7, style="italic", bbox=look, zorder=4)


def _matrix(axes: "Axes", x: float, y: float, weight: Parameter, shard: ShardSpec, scale: float) -> None:
    """The matrix as the paper writes it, inputs down and outputs across, with this rank's slice filled.

    Sides go by the square root of their size, so that all of them can be seen.
    """
    width, height = (scale * size**0.5 for size in weight.shape)
    left, top = x - width / 2, y + height / 2
    box(axes, left, top - height, width, height, PALE, BLUE)
    across, down = (0.0, 1.0), (0.0, 1.0)
    if weight.split is not None:
        part = shard.start / weight.shape[weight.split], shard.stop / weight.shape[weight.split]
        across, down = (part, down) if weight.split == COLUMN else (across, part)
    sides = (across[1] - across[0]) * width, (down[1] - down[0]) * height
    box(axes, left + across[0] * width, top - down[1] * height, *sides, BLUE)
    outputs, inputs = shard.shape
    axes.text(x, top - height - 1, f"{inputs}×{outputs}", ha="center", va="top", fontsize=6)
