"""The activations that each device holds in the course of a timeline, as a strip under its row of boxes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ptdp_core.schedules import stash_course
from reproduce.output.colours import DEFERRED, STASHED
from reproduce.output.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRIP = 0.62  # height of a strip, in rows of boxes
_FILLED = 0.74  # of a strip's height, at the most that any device holds


def most_held(timeline: Timeline) -> int:
    """The most microbatches of a chunk that a device holds."""
    return max((stashed + deferred for row in timeline.rows for _, stashed, deferred in stash_course(row)), default=0)


def draw_memory(axes: "Axes", timeline: Timeline, until: float, scale: float) -> None:
    """A strip under each row, up to `until`, and its peak at the right, in microbatches of a whole device.

    `scale` are the microbatches of a whole device that fill a strip. Of split backward passes, what is kept only for
    weight gradients lies on top, in a lighter green.
    """
    from matplotlib.patches import Rectangle

    look: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False, "fontsize": 6.5}
    axes.annotate("peak", (until, 0), (4, 2), va="bottom", **look)
    for rank, row in enumerate(timeline.rows):
        top = rank * (1 + STRIP) + 1
        axes.add_patch(Rectangle((0, top), until, STRIP, facecolor="white", zorder=0.6, gid="strip"))
        course = stash_course(row)
        times = [0.0, *(min(float(time), until) for time, _, _ in course), until]
        held = [(0, 0), *((stashed, stashed + deferred) for _, stashed, deferred in course)]
        held.append(held[-1])
        unit, floor = STRIP * _FILLED / (scale * timeline.v), top + 0.88 * STRIP
        for part, shade, gid in ((1, DEFERRED, "deferred"), (0, STASHED, "stashed")):
            heights = [floor - unit * both[part] for both in held]
            axes.fill_between(times, floor, heights, step="post", color=shade, linewidth=0, zorder=0.7, gid=gid)
        peak = max(both for _, both in held) / timeline.v
        axes.annotate(f"{peak:.3g}", (until, floor), (4, -1), va="bottom", gid="peak", **look)


def handles(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """What the legend shows for the strips, by label."""
    from matplotlib.patches import Patch

    is_split = any("W" in timeline.kinds for timeline in timelines)
    held = {"Activations held (microbatches)": Patch(color=STASHED)}
    return held | ({"only for weight gradients": Patch(color=DEFERRED)} if is_split else {})
