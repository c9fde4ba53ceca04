"""Beyond the paper: its three pipeline schedules and ZB-H1, 175B on 96 GPUs, against batch size.

A schedule is data here, so one that is younger than the paper runs, simulates, and is drawn like the paper's own. ZB-H1
is of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024). The configuration is Figure 12's.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ptdp_core.schedules import build
from reproduce.experiment import margins, published
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact, out_of_memory
from reproduce.experiment.results import MissingResultError, Results, listed
from reproduce.experiment.sweep import Level, Point, Sweep, levels
from reproduce.experiment.told import told
from reproduce.output import theme, timeline_figure
from reproduce.output.chart import chart_data, interval_label, of_series
from reproduce.output.colours import UNSURE
from reproduce.output.figures import (
    breadth,
    draw_others,
    finish,
    label_axes,
    legend_keys,
    line_plot,
    series_lines,
    series_styles,
)
from reproduce.output.timeline import Timeline, from_schedule
from reproduce.output.traces import trace
from reproduce.papers.shared import executed_timelines
from reproduce.papers.shared.paper_models import FIGURE_12_ON_A_LAPTOP
from results.records import RecordedTimeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reproduce.experiment.artifact import EmulatedIteration
    from results.records import Record

GPIPE, DEFAULT, INTERLEAVED, SPLIT = "GPipe", "1F1B", "Interleaved 1F1B", "ZB-H1"
LARGE_BATCH = 120  # beyond Figure 12's: there GPipe no longer fits
SHOWN_P, SHOWN_M, SHOWN_V = 4, 8, 2  # of the timelines, as in the paper's Figure 4


def _schedules(v: int) -> tuple[Level, ...]:
    """A series for every schedule, the interleaved one with v chunks: the paper's three, and ZB-H1."""
    return (
        Level(GPIPE, "gpipe", {"v": 1, "schedule": "gpipe"}),
        Level(DEFAULT, "1f1b", {"v": 1, "schedule": "1f1b"}),
        Level(INTERLEAVED, "interleaved", {"v": v, "schedule": "interleaved"}),
        Level(SPLIT, "zb_h1", {"v": 1, "schedule": "zb-h1"}),
    )


def notes(results: Results) -> tuple[str, ...]:
    """How the schedules compare: no sentence of the paper is judged here."""
    sentences = [
        "Not in the paper. ZB-H1 splits a backward pass into the input's gradient, which the stage before waits for, "
        "and the weights' gradients, which fill the pipeline's gaps: an idle time of (p-1)(t_f + t_i - t_w) in place "
        "of 1F1B's (p-1)(t_f + t_i + t_w)."
    ]
    for other in (DEFAULT, INTERLEAVED):
        if gains := _relative(results, q.THROUGHPUT, SPLIT, other):
            sentences.append(f"Throughput of ZB-H1 over {other}, by batch size: {listed(gains, '{:+.1%}')}.")
    if memory := _relative(results, "peak_memory", SPLIT, DEFAULT):
        sentences.append(
            f"Peak memory of ZB-H1 over {DEFAULT}, by batch size: {listed(memory, '{:+.0%}')}. Its authors' equal peak "
            "is without recomputation; with it, what a layer has recomputed for its input's gradient is kept until its "
            "weights' gradients are computed, for up to p microbatches."
        )
    return (*sentences, *out_of_memory(results))


def _relative(results: Results, metric: str | q.Quantity, of: str, over: str) -> dict[Any, float]:
    """One series' metric over another's, less one, by batch size, where both have it."""
    try:
        return results.gains(of, over, metric, "B")
    except MissingResultError:
        return {}


def merit(record: "Record") -> str:
    """What ZB-H1 gains over 1F1B."""
    gains = _relative(Results.of_record(record), q.THROUGHPUT, SPLIT, DEFAULT).values()
    return f"{SPLIT} {max(gains):+.0%} to {min(gains):+.0%} over {DEFAULT}" if gains else ""


def draw(artifact: Artifact, record: "Record") -> "Figure":
    """Above the throughputs, below each over 1F1B's at the same batch size; what was emulated is a line plot.

    A difference of the schedules is surer than a throughput: in the grey band around 1 a ratio might be 1.
    """
    if record.fidelity != "simulated":
        return line_plot(artifact, record)
    data = chart_data(artifact, {"": record})
    flush: dict[Any, Any] = {mark.x: mark.value for mark in of_series(data, DEFAULT)}
    styles, keys = series_styles(artifact, data), legend_keys(data, "", alone=True)
    known = margins.read(record.provenance.cluster.name) if record.provenance.cluster else None
    columns = theme.legend_columns(list(styles), theme.figure_width(), keys)
    figure = theme.new_figure(height=3.5)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 0.8))
    handles: dict[str, Any] = draw_others(above, data, styles, keys)
    ratios = [
        replace(mark, value=mark.value / flush[mark.x], low=None) for mark in data if mark.value and mark.x in flush
    ]
    for axes, rows in ((above, data), (below, ratios)):
        for name, line in series_lines(axes, rows, styles).items():
            line.set(**breadth(rows, name))
            handles.setdefault(name, line)
    if known:
        below.axhspan(1 / known.ratio.factor, known.ratio.factor, color=UNSURE, zorder=0, linewidth=0)
    above.margins(x=0.07)
    label_axes(above, artifact, data)
    above.set_xlabel("")
    below.set(xlabel=artifact.x_axis.label if artifact.x_axis else "", ylabel=f"Over {DEFAULT}'s")
    interval = interval_label(artifact, [record])
    theme.name_panel(above, "a", f"throughput; bars: {interval}" if interval else "throughput")
    grey = f"; grey: {known.ratio.coverage:.0%} interval" if known else ""
    theme.name_panel(below, "b", f"ratio at the same batch size{grey}")
    finish(figure, handles, columns, artifact, record)
    return figure


def executed(point: Point, emulation: "EmulatedIteration") -> tuple[RecordedTimeline, ...]:
    """The timelines of the emulated points that have the sizes of the derived ones; for `Artifact.timelines`."""
    parallel = emulation.config.parallel
    shown = (parallel.p, parallel.m) == (SHOWN_P, SHOWN_M)
    return executed_timelines.executed_and_predicted(emulation) if shown else ()


def files(artifact: Artifact, record: "Record") -> Mapping[str, Callable[[], bytes]]:
    """The four schedules as timelines above each other, and as one trace: if emulated as executed, else as derived."""
    executed = record.fidelity == "emulated"
    if executed and not any(point.timelines for point in record.points):
        return {}

    @cache
    def drawn() -> Mapping[str, bytes]:
        with theme.style():
            figure = executed_timelines.draw(record) if executed else timeline_figure.draw(_derived())
            return theme.figure_files(figure, artifact.title, "timelines")

    traces = executed_timelines.files(record) if executed else {"trace.json": lambda: trace(_derived())}
    return {
        "timelines.pdf": lambda: drawn()["timelines.pdf"],
        "timelines.png": lambda: drawn()["timelines.png"],
        **traces,
    }


def _derived() -> list[Timeline]:
    """The timelines of the four schedules, with passes of equal length."""
    sizes = [(str(level.parameters["schedule"]), level.parameters["v"]) for level in _schedules(SHOWN_V)]
    return [from_schedule(build(name, SHOWN_P, SHOWN_M, v)) for name, v in sizes]


ARTIFACT = told(
    __name__,
    sweeps={
        "paper": Sweep(
            series=_schedules(v=4),
            x=levels("B", 12, 24, 36, 48, 60, LARGE_BATCH),
            **published.configuration("fig_interleaved"),
        ),
        "laptop": Sweep(series=_schedules(v=2), x=levels("B", 4, 8, 16), **FIGURE_12_ON_A_LAPTOP),
    },
    timelines=executed,
    draw=draw,
    notes=notes,
    merit=merit,
    files=files,
)
