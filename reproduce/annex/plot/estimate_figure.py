"""The figures of `reproduce simulate --plot`: throughput and iteration time of each configuration, or what limits it.

All are bars, from the top down. Call them, and save, inside `theme.style()`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reproduce.output import colours, theme
from reproduce.output.colours import IDLE
from reproduce.output.timeline_colours import DARK, LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW, AROUND = 0.22, 0.95  # inches: a configuration, and what is around all of them
PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "forward": (DARK["F"], ("forward",)),
    "recomputation": (LIGHT["F"], ("recompute",)),
    "backward": (DARK["B"], ("backward",)),
    "bubble": (IDLE, ("bubble",)),
    "communication": (colours.PALETTE[2], ("pipeline_communication", "data_parallel")),
    "other": (colours.PALETTE[3], ("embedding_and_logits", "optimizer", "host")),
}
WHY = {"oom": theme.OOM, "invalid": "invalid", "failed": "failed"}


def draw(points: Sequence[Mapping[str, Any]]) -> "Figure":
    """The answers of `reproduce simulate`; one without a result has a word in place of bars."""
    from pandas import DataFrame

    names = [point["label"] for point in points]
    fitting = [point if point["status"] == "ok" else None for point in points]
    speeds = [each and each["model_throughput_per_gpu"] / 1e12 for each in fitting]
    speeds = DataFrame({"speed": speeds}, names, dtype=float)
    times = DataFrame(
        {
            part: [each and sum(each["phase_times"].get(phase, 0.0) for phase in phases) for each in fitting]
            for part, (_, phases) in PARTS.items()
        },
        names,
        dtype=float,
    )
    figure = theme.new_figure(theme.PAGE, AROUND + ROW * len(points))
    left, right = figure.subplots(1, 2, sharey=True)
    look: dict[str, Any] = {"width": 0.75, "legend": False}
    speeds.plot.barh(ax=left, color=colours.BLUE, **look)
    times.plot.barh(ax=right, stacked=True, color=[color for color, _ in PARTS.values()], **look)
    for axes, label in ((left, "Achieved teraFLOP/s per GPU (model FLOPs)"), (right, "Iteration time (s)")):
        axes.set(xlabel=label, ylabel="", xlim=(0, None))
        axes.tick_params(axis="y", length=0)
        axes.grid(False, axis="y")
        for place, point in enumerate(points):
            if point["status"] != "ok":
                axes.text(0, place, f" {WHY[point['status']]}", va="center", style="italic")
    left.invert_yaxis()
    figure.legend(*right.get_legend_handles_labels(), loc="outside upper center", ncols=len(PARTS))
    _add_origin(figure, points)
    return figure


def draw_elasticities(points: Sequence[Mapping[str, Any]]) -> "Figure":
    """What each change makes of the tokens per second: a panel for each answer that has `elasticities`."""
    answered = [point for point in points if point.get("elasticities")]
    changes = max((len(point["elasticities"]) for point in answered), default=1)
    panels = max(1, len(answered))
    figure = theme.new_figure(theme.PAGE, panels * (AROUND + ROW * changes))
    for axes, point in zip(figure.subplots(panels, 1, squeeze=False)[:, 0], answered, strict=False):
        rows = point["elasticities"]
        gains = [100 * row["faster_by"] for row in rows]
        colors = [colours.BLUE if row["fits"] else IDLE for row in rows]
        axes.barh([row["change"] + ("" if row["fits"] else " (does not fit)") for row in rows], gains, color=colors)
        axes.set(xlabel="Tokens per second gained (%)", title=point["label"])
        axes.axvline(0, color="black", linewidth=0.6)
        axes.grid(False, axis="y")
        axes.invert_yaxis()
    _add_origin(figure, points)
    return figure


def draw_counts(document: Mapping[str, Any]) -> "Figure":
    """What `reproduce plan` finds on several numbers of GPUs: days, or seconds of an iteration, and MFU."""
    rows = [row for row in document["counts"] if row["configuration"]]
    gpus = [row["gpus"] for row in rows]
    days = bool(rows) and rows[0]["run"] is not None
    times = [row["run"]["run_time"] if days else row["iteration_time"] for row in rows]
    figure = theme.new_figure(theme.PAGE, 2.6)
    left, right = figure.subplots(1, 2)
    left.plot(gpus, times, marker="o", label="best on each")
    if rows:
        ideal = [times[0] * gpus[0] / n for n in gpus]
        left.plot(gpus, ideal, linestyle="--", color="0.6", label="as fast on each GPU as on the first")
    if days and document["deadline_days"]:
        left.axhline(document["deadline_days"], color="black", linewidth=0.6, label="deadline")
    left.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="Days" if days else "Iteration time (s)")
    utilization = [100 * row["model_flops_utilization"] for row in rows]
    right.plot(gpus, utilization, marker="o")
    right.set(xscale="log", xlabel="GPUs", ylabel="MFU (%)", ylim=(0, 1.15 * max(utilization, default=1)))
    for axes in (left, right):
        axes.set_xticks(gpus, [str(n) for n in gpus])
        axes.minorticks_off()
    left.yaxis.set_major_formatter("{x:g}")
    left.legend()
    _add_origin(figure, [document])
    return figure


def _add_origin(figure: "Figure", points: Sequence[Mapping[str, Any]]) -> None:
    clusters = ", ".join(dict.fromkeys(point["cluster"] for point in points if point["cluster"]))
    theme.add_origin(figure, [f"simulated: ptdp on {clusters}" if clusters else "simulated: ptdp"])
