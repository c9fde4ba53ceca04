"""Beyond the paper: bubble against activation memory of every pipeline schedule, and their throughput on 96 GPUs.

The bubbles are those of the executed tables at equal times of F, I and W; the throughputs are simulated, with Figure
12's model and number of GPUs, on its cluster and on one of today.
"""

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
from reproduce.experiment.told import told
from reproduce.output import colours, theme
from reproduce.output.chart import cluster_title, interval_label
from reproduce.output.figures import fit_labels
from reproduce.papers.shared.paper_models import FIGURE_12_ON_A_LAPTOP
from results.records import PointResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from results.records import Record

CLUSTERS = {"": "A100 (Selene)", "h100": "H100, sequence parallelism"}  # by the parameter of the points
AROUND, ROW = 1.15, 0.165  # inches: above and below the schedules, and of one
APART = 0.27  # of a row, between series
FEWEST = 4  # rows that a figure has room for
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
    """A row for each schedule, the least memory first: memory, bubble, and its throughput on each cluster."""
    clusters = list(dict.fromkeys(str(point.parameters.get("cluster", "")) for point in record.points))
    costs = _costs(record.points)
    figure = theme.new_figure(theme.PAGE, AROUND + ROW * max(len(costs), FEWEST))
    ratios = (1, 1, *(3 / len(clusters) for _ in clusters))
    memory, bubble, *shown = panels = figure.subplots(1, len(ratios), sharey=True, width_ratios=ratios)
    _counted(memory, bubble, costs)
    for axes, cluster in zip(shown, clusters, strict=True):
        _rates(axes, [p for p in record.points if str(p.parameters.get("cluster", "")) == cluster], list(costs))
    names = ["memory", "bubble", *(_machine(record, cluster) for cluster in clusters)]
    for axes, letter, name in zip(panels, "abcd", names, strict=False):
        theme.name_panel(axes, letter, name)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        for row in range(0, len(costs), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=colours.STRIPE, linewidth=0, zorder=0)
    memory.set(ylim=(len(costs) - 0.5, -0.5))
    memory.set_yticks(range(len(costs)), list(costs))
    best = _front(costs)
    for label in memory.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() in best else "normal")
    figure.align_xlabels()
    handles, texts = shown[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=len(texts), columnspacing=1.2)
    below = f"{'(c), (d)' if len(clusters) > 1 else '(c)'} {record.fidelity}"
    if any(point.status == "oom" for point in record.points):
        below += "; no mark: out of memory"
    if interval := interval_label(artifact, [record]):
        below += f"; lines: {interval}"
    above = "(a), (b) derived from the executed schedules, passes F, I and W of equal length"
    theme.add_origin(figure, [f"{above}; bold: none has less of one and no more of the other", below])
    fit_labels(figure)
    return figure


def _machine(record: "Record", cluster: str) -> str:
    """What a panel's points ran on: the cluster that they name, or else the record's."""
    on = record.provenance.cluster
    if not cluster and on is not None and on.name != PAPERS_CLUSTER:
        return cluster_title(on.name)
    return CLUSTERS[cluster]


def _costs(points: Sequence[PointResult]) -> dict[str, tuple[float, float, float]]:
    """Memory, bubble, and bubble from the first to the last pass of each schedule, over 1F1B's; the least first."""
    first = {point.label: point for point in reversed(points)}  # of the first series, where that has one
    configs = {label: TrainingConfig.from_plain(point.parameters).parallel for label, point in first.items()}
    costs = {label: summary(build(config.schedule, config.p, config.m, config.v)) for label, config in configs.items()}
    flush = {label: summary(build("1f1b", config.p, config.m)) for label, config in configs.items()}
    over = {
        label: (
            float(c.peak_stash / flush[label].peak_stash),
            float(c.bubble / flush[label].bubble),
            float(c.own_bubble / flush[label].bubble),
        )
        for label, c in costs.items()
    }
    return dict(sorted(over.items(), key=lambda item: item[1]))


def _front(costs: Mapping[str, tuple[float, float, float]]) -> set[str]:
    """The schedules of which no other has less memory and no more bubble, or less bubble and no more memory."""
    both = {label: cost[:2] for label, cost in costs.items()}
    return {
        label
        for label, (memory, bubble) in both.items()
        if not any(m <= memory and b <= bubble and (m, b) != (memory, bubble) for m, b in both.values())
    }


def _counted(memory: "Axes", bubble: "Axes", costs: Mapping[str, tuple[float, float, float]]) -> None:
    """A dot for each schedule; a hollow one for a bubble that is less without a pipeline flush."""
    rows = range(len(costs))
    held, idle, own = zip(*costs.values(), strict=True)
    memory.plot(held, rows, "o", color=colours.BLUE, clip_on=False)
    bubble.hlines(rows, own, idle, color=colours.BLUE, linewidth=0.8)
    bubble.plot(own, rows, "o", color=colours.BLUE, markerfacecolor="white", clip_on=False)
    bubble.plot(idle, rows, "o", color=colours.BLUE, clip_on=False)
    memory.set(xlim=(0, 2.1), xticks=(0, 1, 2), xlabel="Over 1F1B's")
    bubble.set(xlim=(-0.06, 1.06), xticks=(0, 0.5, 1), xlabel="Over 1F1B's\n(hollow: no flush)")


def _rates(axes: "Axes", points: Sequence[PointResult], titles: Sequence[str]) -> None:
    """The throughput of each schedule and series with its interval, and a mark where it was predicted."""
    series = list(dict.fromkeys(point.series for point in points))
    factor, predictions = q.MODEL_THROUGHPUT.factor, []
    for place, name in enumerate(series):
        rows, values, intervals = [], [], []
        for point in points:
            metric, prediction = point.metrics.get(q.MODEL_THROUGHPUT.name), predicted(point, q.MODEL_THROUGHPUT.name)
            if point.series != name or point.status != "ok" or metric is None or metric.value is None:
                continue
            rows.append(titles.index(point.label) + APART * (place - (len(series) - 1) / 2))
            values.append(metric.value / factor)
            if prediction is not None:
                predictions.append((prediction / factor, rows[-1]))
            if metric.interval:
                intervals.append((rows[-1], metric.interval.low / factor, metric.interval.high / factor))
        look: dict[str, Any] = {"color": colours.PALETTE[place], "zorder": 3}
        if intervals:
            axes.hlines(*zip(*intervals, strict=True), linewidth=0.7, **look)
        axes.plot(values, rows, theme.MARKERS[place], markersize=3.2, markeredgewidth=0, label=name, **look)
    if predictions:
        axes.plot(*zip(*predictions, strict=True), label="predicted", **{**theme.PREDICTED, "marker": "|"})
    axes.set(xlim=(0, None), xlabel=q.MODEL_THROUGHPUT.axis)


ARTIFACT = told(
    __name__,
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
    draw=draw,
    merit=merit,
)


@ARTIFACT.judge
def less_memory_pays_off(results: Results) -> Judgement:
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
