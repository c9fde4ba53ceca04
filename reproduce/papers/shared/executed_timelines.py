"""Figures 3 and 4: their quantities and drawings, and at scale 'laptop' the schedules as the engine executes them.

Executed, they are drawn above the simulator's: four layers a device, forward passes of about 30 ms without
recomputation (t_b is then about 2 t_f), every device on its own node. A point of the figure itself keeps two timelines:
when each of its passes began and ended as executed, and as predicted. Other artifacts draw their timelines with the
same functions.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import bubble_fraction
from ptdp_core.schedules import Action, TimelineEvent
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.predictions import BUBBLE, BUBBLE_WORST, PREFIX
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.results import MissingResultError, Results, argmax, counted, where
from reproduce.experiment.sweep import LAPTOP, Point, Sweep
from reproduce.output import timeline_figure
from reproduce.output.chart import cluster_title
from reproduce.output.timeline import Timeline, from_schedule, schedule_of
from reproduce.output.traces import trace
from results.records import Metric, PointResult, Record, RecordedEvent, RecordedTimeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reproduce.experiment.artifact import EmulatedIteration

FIGURE = "the figure"  # the series of what is drawn
FORMULA = "formula_bubble_fraction"
QUANTITIES = (
    Quantity("bubble_fraction", "bubble", "1", "%", 0.01, 2),
    Quantity("makespan", "time", "1", "t_f", digits=1),
    Quantity("peak_stash", "peak stash", "count", "microbatches", digits=1),
    Quantity("messages", "messages", "count", "", digits=0),
    Quantity(FORMULA, "bubble by (p-1)/(vm)", "1", "%", 0.01, 2),
    Quantity("iteration_time", "iteration", "s", "s", 1, 3),
)


def sweep(what: str, runs: Iterable[tuple[str, str, str, int, int, int]]) -> Sweep:
    """Schedules at scale 'laptop', which can be emulated: key, series, schedule, p, m and v of each.

    `what` begins the description.
    """
    points = tuple(
        Point(key, series, f"{schedule}, p={p}, m={m}" + (f", v={v}" if v > 1 else ""), {
            "layers": 4 * p, "hidden": 8192, "heads": 64, "seq": 1024, "vocab": 1024, "schedule": schedule,
            "p": p, "t": 1, "d": 1, "v": v, "b": 1, "B": m, "m": m, "recompute": "none", "gpus_per_node": 1,
        })
        for key, series, schedule, p, m, v in runs
    )  # fmt: skip
    description = (
        f"{what}, executed by the engine in real time on emulated nodes and drawn above the simulator's: 4 "
        "layers a device of hidden size 8192, sequences of 1024, no recomputation, one device a node. The table "
        "compares bubble and time with the simulator's for the same configuration, and the bubble with the paper's "
        "formula."
    )
    return Sweep(lambda: points, title="executed", description=description)


def metrics(point: Point, emulation: "EmulatedIteration") -> dict[str, float | Metric]:
    """The formula's bubble, and the stash of whole devices; for `Artifact.emulated`."""
    parallel = emulation.config.parallel
    return {
        FORMULA: Metric(bubble_fraction(parallel.p, parallel.m, parallel.v), "1", "derived"),
        "peak_stash": emulation.peak_stash / parallel.v,
    }


def recorded(point: Point, emulation: "EmulatedIteration") -> tuple[RecordedTimeline, ...]:
    """The timelines of a point of the figure itself; for `Artifact.timelines`."""
    return executed_and_predicted(emulation) if point.series == FIGURE else ()


def executed_and_predicted(emulation: "EmulatedIteration") -> tuple[RecordedTimeline, ...]:
    """When each pass of an emulated iteration ran, and when the simulator has it run."""
    return _recorded("emulated", emulation.timeline), _recorded("simulated", emulation.prediction.timeline)


def _recorded(origin: str, rows: Sequence[Sequence[TimelineEvent[float]]]) -> RecordedTimeline:
    passes = ([(event.action, event.start, event.end) for event in row if event.action] for row in rows)
    return RecordedTimeline(origin, tuple(tuple(RecordedEvent(*a, start, end) for a, start, end in r) for r in passes))


def _timeline(point: PointResult, origin: str, shown_origin: str) -> Timeline:
    """The timeline of this origin that a point's record has."""
    parallel = TrainingConfig.from_plain(point.parameters).parallel
    bubble = point.metrics[(PREFIX if origin == "simulated" else "") + BUBBLE].value
    assert bubble is not None
    timeline = next(timeline for timeline in point.timelines if timeline.origin == origin)
    rows = tuple(
        tuple(TimelineEvent(e.kind, Action(e.kind, e.stage, e.microbatch), float(e.start), float(e.end)) for e in rank)
        for rank in timeline.ranks
    )
    return Timeline(parallel.schedule, parallel.placement, parallel.m, "s", rows, (), float(bubble), shown_origin)


def _both(record: Record) -> tuple[list[Timeline], list[Timeline]]:
    """The timelines of the points that have them, executed and simulated. Raises `MissingResultError` for none."""
    drawn = [point for point in record.points if point.timelines and point.status == "ok"]
    if not drawn:
        raise MissingResultError("no point has a timeline")
    cluster = record.provenance.cluster
    on = f", {cluster_title(cluster.name)} model" if cluster else ""
    executed = [_timeline(point, "emulated", f"emulated: ptdp's engine in real time{on}") for point in drawn]
    return executed, [_timeline(point, "simulated", "simulated, same configuration") for point in drawn]


def scheduled(record: Record) -> list[Timeline]:
    """The figure's schedules, executed in units of t_f, with the begin of a second batch.

    Raises `MissingResultError` if none was evaluated.
    """
    shown = Results.of_record(record).of(FIGURE)
    return [from_schedule(*schedule_of(point.parameters), batches=2) for point in shown]


def draw_figure(artifact: Artifact, record: Record, *, after_flush: int) -> "Figure":
    """The figure's schedules one above the other, cut `after_flush` t_f after the first one's flush.

    At scale 'laptop' what the engine executed is drawn instead (`draw`).
    """
    if record.scale == LAPTOP:
        return draw(record)
    shown = scheduled(record)
    return timeline_figure.draw(shown, until=float(shown[0].flushes[0]) + after_flush)


def figure_files(artifact: Artifact, record: Record) -> Mapping[str, Callable[[], bytes]]:
    """The drawn timelines as one trace file, a process for each."""
    return files(record) if record.scale == LAPTOP else {"trace.json": lambda: trace(scheduled(record))}


def draw(record: Record) -> "Figure":
    """The executed passes in rows of boxes, the simulated ones in thin rows under them."""
    executed, simulated = _both(record)
    return timeline_figure.draw(executed, predictions=simulated)


def files(record: Record) -> Mapping[str, Callable[[], bytes]]:
    """Both as one trace, a process each."""
    executed, simulated = _both(record)
    pairs = zip(executed, simulated, strict=True)
    return {"trace.json": lambda: trace([timeline for pair in pairs for timeline in pair])}


def notes(results: Results) -> tuple[str, ...]:
    """How far the executed bubbles are from the paper's formula."""
    apart = {
        where(point): results.value(point.key, BUBBLE) - results.value(point.key, FORMULA)
        for point in results.points
        if point.status == "ok" and {BUBBLE, FORMULA} <= point.metrics.keys()
    }
    if not apart:
        return ()
    worst = argmax(apart, abs)
    within = abs(apart[worst]) <= BUBBLE_WORST
    return (
        f"bubble, {results.fidelity} against (p-1)/(vm) over {counted(len(apart))}: at most {100 * apart[worst]:+.1f} "
        f"points of compute time ({worst}); {'within' if within else 'NOT within'} the {100 * BUBBLE_WORST:.0f} that "
        "were fixed beforehand",
    )
