"""Figure 3: the GPipe schedule of 4 devices and 8 microbatches, all forward passes and then all backward passes."""

from functools import partial
from typing import Any

from reproduce.experiment.claims import Judgement, holds_if
from reproduce.experiment.results import Results, numbers_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.output.timeline import Timeline, derive, from_schedule, schedule_of
from reproduce.papers.shared import executed_timelines
from reproduce.papers.shared.executed_timelines import FIGURE, QUANTITIES
from results.records import PaperValue, PointResult

P, M = 4, 8
SMALL, MUCH_LARGER = 0.05, 10  # a bubble, and m over p
FACTORS, SIZES = "other t_b/t_f", "other sizes"


def _point(series: str, p: int, m: int, t_b: float) -> Point:
    parameters: dict[str, Any] = {"schedule": "gpipe", "p": p, "m": m, "v": 1, "t_f": 1, "t_b": t_b}
    # What the paper's formulas say there, (p-1)/m and m (Section 2.2.1).
    paper = {
        "bubble_fraction": PaperValue((p - 1) / m, "1", "text"),
        "peak_stash": PaperValue(m, "count", "text"),
    }
    return Point(f"gpipe-p{p}-m{m}-tb{t_b:g}", series, f"p={p}, m={m}, t_b={t_b:g} t_f", parameters, paper)


def points() -> tuple[Point, ...]:
    """The figure's schedule, the same with other ratios of backward to forward time, and other sizes."""
    factors = [_point(FACTORS, P, M, t_b) for t_b in (1, 1.5, 3)]
    sizes = [_point(SIZES, p, m, 2) for p, m in ((2, 8), (8, 8), (4, 4), (4, 32), (8, 64), (4, 128))]
    return (_point(FIGURE, P, M, 2), *factors, *sizes)


def timeline(point: PointResult) -> Timeline:
    """The point's schedule, executed."""
    return from_schedule(*schedule_of(point.parameters))


ARTIFACT = told(
    __name__,
    points=points,
    sweeps={
        "laptop": executed_timelines.sweep(
            "The GPipe schedule on 4 devices, 8 microbatches",
            (
                (f"gpipe-p{p}-m{m}", series, "gpipe", p, m, 1)
                for series, p, m in ((FIGURE, P, M), (SIZES, 2, 8), (SIZES, 4, 4), (SIZES, 6, 8))
            ),
        )
    },
    quantities=QUANTITIES,
    derive=derive,
    emulated=executed_timelines.metrics,
    timelines=executed_timelines.recorded,
    draw=partial(executed_timelines.draw_figure, after_flush=M),
    notes=executed_timelines.notes,
    files=executed_timelines.figure_files,
)


@ARTIFACT.judge
def gpipe_bubble_time(results: Results) -> Judgement:
    wrong = []
    for point in results.points:
        results.value(point.key, "makespan")
        run, factor = timeline(point), schedule_of(point.parameters)[1]
        last = run.rows[-1]
        waits = (last[0].start, run.end - last[-1].end)
        idle = {run.end - sum(box.end - box.start for box in row) for row in run.rows}
        if waits != (run.p - 1, (run.p - 1) * factor) or idle != {sum(waits)}:
            wrong.append(point.label)
    return holds_if(
        not wrong,
        f"in all {len(results.points)} schedules the last device waits p-1 forward passes at the start and p-1 "
        "backward passes at the end; the devices before it idle as long, in part between the two phases"
        if not wrong
        else f"not for {'; '.join(wrong)}",
    )


@ARTIFACT.judge
def gpipe_ideal_time(results: Results) -> Judgement:
    wrong = []
    for point in results.points:
        results.value(point.key, "makespan")
        busy = {sum(box.end - box.start for box in row) for row in timeline(point).rows}
        if busy != {point.parameters["m"] * (1 + schedule_of(point.parameters)[1])}:
            wrong.append(point.label)
    text = "computes for m(t_f + t_b), in units of t_f, in all schedules"
    return holds_if(not wrong, f"not for {'; '.join(wrong)}" if wrong else f"every device {text}")


@ARTIFACT.judge
def gpipe_needs_many_microbatches(results: Results) -> Judgement:
    small = {
        point.label: point.parameters["m"] / point.parameters["p"]
        for point in results.points
        if results.value(point.key, "bubble_fraction") <= SMALL
    }
    least = min(small.values(), default=0.0)
    text = f"bubbles of at most {SMALL:.0%}: {', '.join(small) or 'none'}; the least m is {least:g} times p"
    return holds_if(least >= MUCH_LARGER, text, numbers_of("derived", least_m_over_p=least))
