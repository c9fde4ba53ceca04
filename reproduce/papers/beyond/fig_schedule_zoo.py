"""Beyond the paper: bubble against activation memory of every pipeline schedule, and their throughput on 96 GPUs.

The bubbles are those of the executed tables at equal times of F, I and W; the throughputs are simulated, with Figure
12's model and number of GPUs, on its cluster and on one of today.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import build, definition, names, summary
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.fidelity import PAPERS_CLUSTER
from reproduce.experiment.predictions import predicted
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Level, Sweep, batches
from reproduce.output import theme
from reproduce.output.figures import fit_labels
from reproduce.output.origins import cluster_title, interval_label
from reproduce.papers.shared.models import FIGURE_12_ON_A_LAPTOP
from results.records import PointResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from results.records import Record

CLUSTERS = {"": "A100 (Selene)", "h100": "H100, sequence parallelism"}  # by the parameter of the points
LETTER = 0.022  # width of a letter of a schedule's name, in units of the memory axis
SMALL, LARGE = 24, 48  # sequences in a batch: multiples of p, and at least 2p for DualPipeV


RECOMPUTED, KEPT = f"Batch size = {LARGE}", f"Batch size = {LARGE}, no recomputation"


def _series(*sizes: int, **parameters: Any) -> list[Level]:
    """Batches of these sizes, and of the last of them without recomputation; on another cluster if one is named."""
    kept = Level(f"Batch size = {sizes[-1]}, no recomputation", "none", {"B": sizes[-1], "recompute": "none"})
    label, key = (f", {parameters['cluster']}".upper(), f"_{parameters['cluster']}") if parameters else ("", "")
    return [
        Level(level.label + label, level.key + key, {**level.parameters, **parameters})
        for level in (*batches(*sizes), kept)
    ]


def _schedules() -> list[Level]:
    """Every schedule with the fewest chunks that it has."""
    return [
        Level(definition(name).title, name, {"schedule": name, "v": definition(name).chunks[0]}) for name in names()
    ]


def merit(record: "Record") -> str:
    """The fastest schedule on Figure 12's cluster."""
    results = Results.of_record(record)
    here = [point for point in record.points if "cluster" not in point.parameters and point.status == "ok"]
    if not here:
        return ""
    best = max(here, key=lambda point: results.value(point.key, q.MODEL_THROUGHPUT))
    on = record.provenance.cluster
    where = "A100s" if on is None or on.name == PAPERS_CLUSTER else cluster_title(on.name)
    return f"fastest on {where}: {best.label}, {best.series}"


def draw(artifact: Artifact, record: "Record") -> "Figure":
    """Above the schedules in the plane of memory and bubble; below the throughput of each, a panel for each cluster."""
    panels: dict[str, list[PointResult]] = defaultdict(list)
    for point in record.points:
        panels[str(point.parameters.get("cluster", ""))].append(point)
    figure = theme.new_figure(theme.PAGE, 6.6)
    grid = figure.add_gridspec(3, len(panels), height_ratios=(1, 0.07, 1.5))
    plane = figure.add_subplot(grid[0, :])
    theme.name_panel(plane, "a", "bubble against activation memory")
    _plane(plane, [p for p in record.points if p.series == record.points[0].series])
    key = figure.add_subplot(grid[1, :])
    key.axis("off")
    shown: list[Axes] = []
    for column, points in enumerate(panels.values()):
        shown.append(figure.add_subplot(grid[2, column], sharey=shown[0] if shown else None))
        _bars(shown[-1], points)
        shown[-1].tick_params(labelleft=column == 0)
    for axes, letter, cluster in zip(shown, "bc", panels, strict=False):
        theme.name_panel(axes, letter, f"throughput, {_machine(record, cluster)}" if len(panels) > 1 else "throughput")
    handles = {text: handle for handle, text in zip(*shown[0].get_legend_handles_labels(), strict=True)}
    handles |= {text: handles.pop(text) for text in (theme.OOM,) if text in handles}  # last
    key.legend(handles.values(), handles.keys(), loc="center", ncols=len(handles), columnspacing=1.2)
    below = record.fidelity + "; black marks: simulated" * ("predicted" in handles)
    if interval := interval_label(artifact, [record]):
        below += f"; black lines: {interval}"
    above = "derived from the executed schedules, with passes F, I and W of equal length, relative to 1F1B"
    theme.add_origin(figure, [f"(a) {above}", f"below: {below}"])
    fit_labels(figure)
    return figure


def _machine(record: "Record", cluster: str) -> str:
    """What a panel's points ran on: the cluster that they name, or else the record's."""
    on = record.provenance.cluster
    if not cluster and on is not None and on.name != PAPERS_CLUSTER:
        return cluster_title(on.name)
    return CLUSTERS[cluster]


def _plane(axes: "Axes", points: Sequence[PointResult]) -> None:
    configs = {point.label: TrainingConfig.from_plain(point.parameters).parallel for point in points}
    costs = {label: summary(build(config.schedule, config.p, config.m, config.v)) for label, config in configs.items()}
    flush = costs[definition("1f1b").title]
    places = {}
    for name, cost in costs.items():
        memory = float(cost.peak_stash / flush.peak_stash)
        bubble, own_bubble = (float(value / flush.bubble) for value in (cost.bubble, cost.own_bubble))
        places[name] = memory, bubble
        axes.plot([memory, memory], [own_bubble, bubble], color=theme.PALETTE[0], linewidth=0.8)
        hollow, filled = (axes.plot(memory, y, "o", color=theme.PALETTE[0], zorder=3)[0] for y in (own_bubble, bubble))
        hollow.set_markerfacecolor("white")
        hollow.set_zorder(2)
    best = [  # no other one has less of both, or less of one and as much of the other
        (memory, bubble)
        for memory, bubble in sorted(places.values())
        if all(memory < m or bubble < b or (memory, bubble) == (m, b) for m, b in places.values())
    ]
    (front,) = axes.step(*zip(*best, strict=True), where="post", color="#999999", linewidth=0.9, zorder=1)
    _name(axes, places)
    axes.set(xlim=(0, 2.6), ylim=(-0.05, 1.15), xlabel="Activation memory, over 1F1B's", ylabel="Bubble, over 1F1B's")
    texts = ("with a pipeline flush", "without a flush: first to last pass", "Pareto front")
    axes.legend((filled, hollow, front), texts, loc="upper left")


def _name(axes: "Axes", places: Mapping[str, tuple[float, float]]) -> None:
    """Write the names of schedules beside their markers.

    A name stands to the right of its marker and a little above; to the left if another marker is in the way, and a
    little below if the name of a marker just above is there.
    """
    names: dict[tuple[float, float], list[str]] = defaultdict(list)
    for name, place in places.items():
        names[place].append(name)
    for (memory, bubble), together in names.items():
        text = ", ".join(together)
        reach = memory + LETTER * (len(text) + 2)
        beside = [(x, y) for x, y in names if x > memory and abs(y - bubble) < 0.06]
        left = any(x < reach and y == bubble for x, y in beside)
        below = any(y > bubble for _, y in beside)
        axes.annotate(
            text, (memory, bubble), (-4 if left else 4, -8 if below else 3), textcoords="offset points", fontsize=7,
            ha="right" if left else "left",
        )  # fmt: skip


def _bars(axes: "Axes", points: Sequence[PointResult]) -> None:
    """A bar for each schedule and series with its interval, a mark where it was predicted.

    A cross left of the axis says that it does not fit in memory.
    """
    titles = list(dict.fromkeys(point.label for point in points))
    series = list(dict.fromkeys(point.series for point in points))
    height = 0.84 / len(series)
    factor = q.MODEL_THROUGHPUT.factor
    out, predictions, intervals = [], [], []
    for name, color in zip(series, theme.PALETTE, strict=False):
        bars = []
        for point in (point for point in points if point.series == name):
            y = titles.index(point.label) + height * (series.index(name) - (len(series) - 1) / 2)
            metric, prediction = point.metrics.get(q.MODEL_THROUGHPUT.name), predicted(point, q.MODEL_THROUGHPUT.name)
            if prediction is not None and point.status == "ok":
                predictions.append((prediction / factor, y))
            if point.status == "ok" and metric is not None and metric.value is not None:
                bars.append((y, metric.value / factor))
                if metric.interval:
                    intervals.append((y, metric.interval.low / factor, metric.interval.high / factor))
            elif point.status == "oom":
                out.append((y, color))
        if bars:
            places, values = zip(*bars, strict=True)
            axes.barh(places, values, height=height, color=color, label=name)
    if intervals:
        axes.hlines(*zip(*intervals, strict=True), color="black", linewidth=0.7)
    reach = axes.get_xlim()[1]
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "clip_on": False, **theme.OUT_OF_MEMORY}
    for number, (y, color) in enumerate(out):
        axes.plot(-0.015, y, color=color, label=theme.OOM if number == 0 else None, **{**beside, "markersize": 3.5})
    if predictions:
        axes.plot(*zip(*predictions, strict=True), label="predicted", **{**theme.PREDICTED, "marker": "|"})
    axes.set_yticks(range(len(titles)), titles)
    axes.set(xlim=(0, reach), ylim=(len(titles) - 0.4, -0.6), xlabel=q.MODEL_THROUGHPUT.axis)
    axes.tick_params(axis="y", length=0, pad=9)
    axes.grid(axis="y", visible=False)


ARTIFACT = Artifact(
    id="fig_schedule_zoo",
    title="Pipeline schedules: bubble against memory, and throughput of GPT-3 175B on 96 GPUs",
    description=(
        "Above, the bubble over 1F1B's against activation memory over 1F1B's, of the executed tables at equal times of "
        "F, I and W. Below, the simulated throughput per GPU with p=12, t=8, microbatch size 1: on the A100s of Figure "
        "12, and on H100s with sequence parallelism; also without recomputing activations. FLOP/s of the model, "
        "without recomputed passes."
    ),
    quantities=(*q.USUAL_BEYOND, q.PIPELINE_TIME),
    sweeps={
        "paper": Sweep(
            series=(*_series(SMALL, LARGE), *_series(SMALL, LARGE, cluster="h100", sequence_parallel=True)),
            x=_schedules(),
            **published.configuration("fig_interleaved"),
        ),
        "laptop": Sweep(
            series=_series(8),
            x=_schedules(),
            **FIGURE_12_ON_A_LAPTOP,
            title="4 stages on 8 GPUs",
        ),
    },
    columns={"schedule": "schedule", "v": "v", "B": "B"},
    x_axis=q.XAxis("schedule", "Schedule", scale="category"),
    draw=draw,
    merit=merit,
    notes=(
        "Not in the paper. Every schedule has the fewest model chunks that it has: one, or two.",
        "With recomputation an input gradient takes twice as long as F or W. V-Half and V-Min then wait in every "
        "period, as their authors say (they need W + 2I >= 2F and W + 2F >= 2I); and what split backward passes keep "
        "until their W is more than the stash of others. Without it, memory decides which schedules can run at all.",
    ),
)


@ARTIFACT.claim(
    "GPT-3 on 96 A100s of Selene (p = 12, t = 8), B = 48, thirteen schedules and DualPipeV overlapped: the "
    "fastest iteration of those that fit without recomputation is shorter than the fastest of all with it, and "
    "is of a schedule that stashes less than 1F1B, counted in its executed table; not tested: that its bubble is "
    "larger"
)
def less_memory_pays_off(results: Results) -> Judgement:
    """A schedule that stashes less pays off by what need not be recomputed, though its bubble is larger."""
    times: dict[str, dict[str, float]] = {RECOMPUTED: {}, KEPT: {}}
    for point in results.points:
        if point.status == "ok" and point.series in times:
            times[point.series][point.label] = results.value(point.key, q.ITERATION.name)
    fastest = {series: min(line, key=line.__getitem__) for series, line in times.items() if line}
    if len(fastest) < len(times):
        return holds_if(False, "no schedule fits in memory without recomputation")
    stash = _stash(results, fastest[KEPT])
    text = "; ".join(f"{series}: {name} {times[series][name]:.2f} s" for series, name in fastest.items())
    text += f"; {fastest[KEPT]} stashes {stash:.0%} of what 1F1B does"
    return holds_if(times[KEPT][fastest[KEPT]] < times[RECOMPUTED][fastest[RECOMPUTED]] and stash < 1, text)


def _stash(results: Results, label: str) -> float:
    """The activations that a schedule keeps over those of 1F1B, of the executed tables."""
    point = next(point for point in results.points if (point.series, point.label) == (KEPT, label))
    config = TrainingConfig.from_plain(point.parameters).parallel
    ours, flush = build(config.schedule, config.p, config.m, config.v), build("1f1b", config.p, config.m)
    return float(summary(ours).peak_stash / summary(flush).peak_stash)
