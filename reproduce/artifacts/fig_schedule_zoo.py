"""Beyond the paper: bubble against activation memory of every pipeline schedule, and their throughput on 96 GPUs.

The bubbles are those of the executed tables at equal times of F, I and W; the throughputs are simulated, with Figure
12's model, GPUs and full recomputation.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.records import PointResult
from ptdp_core.schedules import Summary, build, definition, names, summary
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact, out_of_memory
from reproduce.experiment.quantities import XAxis
from reproduce.experiment.results import OURS, Judgement, Results, holds_if
from reproduce.experiment.sweep import Level, Sweep, batches
from reproduce.output import theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.records import Record

SMALL, LARGE = 24, 48  # sequences in a batch: multiples of p, and at least 2p for DualPipeV


RECOMPUTED, KEPT = f"Batch size = {LARGE}", f"Batch size = {LARGE}, no recomputation"


def notes(results: Results) -> tuple[str, ...]:
    """What limits a comparison."""
    return (
        "Not in the paper. Every schedule has the fewest model chunks that it has: one, or two.",
        "With recomputation an input gradient takes twice as long as F or W. V-Half and V-Min then wait in every "
        "period, as their authors say (they need W + 2I >= 2F and W + 2F >= 2I); and what split backward passes keep "
        "until their W is more than the stash of others. Without it, memory decides which schedules can run at all.",
        *out_of_memory(results),
    )


def draw(artifact: Artifact, record: "Record") -> "Figure":
    """Left the schedules, by number, in the plane of memory and bubble; right their throughput at two batch sizes."""
    figure = theme.new_figure(theme.PAGE, 3.6)
    plane, bars = figure.subplots(1, 2, width_ratios=(1.1, 1))
    small = [point for point in record.points if point.parameters["B"] == SMALL]
    _plane(plane, small)
    _bars(bars, record.points, len(small))
    theme.add_origin(figure, ["left: derived, executed tables, equal times of F, I and W; right: simulated"])
    return figure


def _summary(point: PointResult) -> Summary:
    parameters = point.parameters
    p, v, m = (int(str(parameters[size])) for size in ("p", "v", "B"))
    return summary(build(str(parameters["schedule"]), p, m, v))


def _plane(axes: "Axes", points: Sequence[PointResult]) -> None:
    costs = [_summary(point) for point in points]
    flush = next(cost for point, cost in zip(points, costs, strict=True) if point.parameters["schedule"] == "1f1b")
    places: dict[tuple[float, float], list[int]] = defaultdict(list)
    for number, cost in enumerate(costs, 1):
        memory = float(cost.peak_stash / flush.peak_stash)
        bubble, own_bubble = (float(value / flush.bubble) for value in (cost.bubble, cost.own_bubble))
        axes.plot([memory, memory], [own_bubble, bubble], color=theme.PALETTE[0], linewidth=0.8, zorder=1)
        axes.plot(memory, own_bubble, "o", markersize=3.5, markerfacecolor="white", color=theme.PALETTE[0])
        axes.plot(memory, bubble, "o", markersize=4, color=theme.PALETTE[0])
        places[round(memory, 1), round(bubble, 2)].append(number)  # one text for those that lie together
    for place, numbers in places.items():
        text = ", ".join(map(str, numbers))
        axes.annotate(text, place, (3, 3), textcoords="offset points", fontsize=6.5)
    axes.set(xlim=(0, None), ylim=(-0.04, 1.12), xlabel="Activation memory, over 1F1B's", ylabel="Bubble, over 1F1B's")
    axes.set_title("hollow: without what the flush adds", fontsize=6.5, loc="left")


def _bars(axes: "Axes", points: Sequence[PointResult], count: int) -> None:
    titles = list(dict.fromkeys(point.label for point in points))
    for shift, (series, color) in enumerate(zip(dict.fromkeys(p.series for p in points), theme.PALETTE, strict=False)):
        for point in points:
            if point.series == series:
                y = titles.index(point.label) + 0.28 * (shift - 1)
                metric = point.metrics.get(q.THROUGHPUT.name)
                if point.status == "ok" and metric is not None and metric.value is not None:
                    axes.barh(y, metric.value / q.THROUGHPUT.factor, 0.26, color=color, label=series)
                else:
                    axes.text(1, y, point.status.replace("oom", theme.OOM), fontsize=5, va="center", color="#555555")
    axes.set_yticks(range(count), [f"{title}  {number}" for number, title in enumerate(titles, 1)])
    axes.set(ylim=(count - 0.4, -0.6), xlabel=q.THROUGHPUT.axis)
    axes.grid(axis="y", visible=False)
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axes.legend(
        unique.values(), unique.keys(), loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderpad=0.2, fontsize=6
    )


ARTIFACT = Artifact(
    id="fig_schedule_zoo",
    title="Pipeline schedules: bubble against memory, and throughput of GPT-3 175B on 96 GPUs",
    description=(
        "Left, the bubble over 1F1B's against activation memory over 1F1B's, of the executed tables at equal times of "
        "F, I and W. Right, the simulated throughput per GPU with p=12, t=8, microbatch size 1, as in Figure 12, and "
        "without recomputing activations. FLOP/s by the paper's count (eq. 3)."
    ),
    quantities=(*q.USUAL, q.PIPELINE_TIME),
    sweeps={
        "paper": Sweep(
            series=(
                *batches(SMALL, LARGE),
                Level(KEPT, "none", {"B": LARGE, "recompute": "none"}),
            ),
            x=[
                Level(definition(name).title, name, {"schedule": name, "v": definition(name).chunks[0]})
                for name in names()
            ],
            **published.configuration("fig_interleaved"),
        )
    },
    columns={"schedule": "schedule", "v": "v", "B": "B"},
    x_axis=XAxis("schedule", "Schedule", scale="category"),
    draw=draw,
    notes=notes,
)


@ARTIFACT.claim(
    "A schedule that stashes less pays off by what need not be recomputed, though its bubble is larger.",
    OURS,
    "the fastest iteration without recomputation is shorter than the fastest with it, at the larger batch size",
)
def less_memory_pays_off(results: Results) -> Judgement:
    times: dict[str, dict[str, float]] = {RECOMPUTED: {}, KEPT: {}}
    for point in results.points:
        if point.status == "ok" and point.series in times:
            times[point.series][point.label] = results.value(point.key, q.ITERATION.name)
    fastest = {series: min(line, key=line.__getitem__) for series, line in times.items() if line}
    if len(fastest) < len(times):
        return holds_if(False, "no schedule fits in memory without recomputation")
    text = "; ".join(f"{series}: {name} {times[series][name]:.2f} s" for series, name in fastest.items())
    return holds_if(times[KEPT][fastest[KEPT]] < times[RECOMPUTED][fastest[RECOMPUTED]], text)
