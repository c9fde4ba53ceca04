"""An assessment against measured runs: as tables, as JSON, and as a record with a figure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from benchmarks.records import Metric, PointResult, Record, fingerprint, write_files, write_record
from benchmarks.records.provenance import collect
from reproduce.analysis.scoring.measured import TIME, MeasuredAssessment, MeasuredComparison, Scores
from reproduce.output.tables import NONE, text_table
from reproduce.output.terminal import percent
from reproduce.output.theme import MARKERS, PALETTE, add_origin, figure_files, new_figure, style
from reproduce.running.runner import RECORD

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER = "accuracy_measured"
PLACES = "ID/measured*/record.json"
FOOT_WIDTH = 60  # characters of a line under the figure
TICKS = (1, 1.5, 2, 3, 4, 6, 8)
AXES = ("p", "t", "d", "v", "b")


def step_table(assessment: MeasuredAssessment) -> "DataFrame":
    """One row per step: its layout, times in milliseconds, errors of the prediction and of a baseline, what it is."""
    rows = []
    for comparison in assessment.comparisons:
        parallel = comparison.config.parallel
        error, naive = (comparison.pair(value).error for value in (comparison.predicted, comparison.with_bubble))
        rows.append(
            (
                *(str(getattr(parallel, axis)) for axis in AXES),
                str(parallel.m),
                str(comparison.config.model.hidden),
                f"{1e3 * comparison.measured:.1f}",
                f"{1e3 * comparison.predicted:.1f}",
                percent(error, signed=True),
                percent(naive, signed=True),
                f"{comparison.source}: {comparison.point.label}" + (" *" if comparison.shared else ""),
            )
        )
    headings = (*AXES, "m", "h", "measured", "predicted", "error", "+bubble", "step")
    return text_table(headings, rows)


def score_table(assessment: MeasuredAssessment) -> "DataFrame":
    """One row per number of ranks, then all."""
    rows = [_row(name, scores) for name, scores in assessment.scores().items()]
    headings = ("", "n", "mean", "bias", "rank", "FLOPs", "+bubble", "worst", "at")
    return text_table(headings, rows)


def _row(name: str, scores: Scores) -> tuple[str, ...]:
    score = scores.simulated
    return (
        name,
        str(score.n),
        percent(score.mean),
        percent(score.bias, signed=True),
        NONE if score.rank is None else f"{score.rank:.3f}",
        *(percent(error) for error in scores.baselines.values()),
        percent(score.worst, signed=True),
        score.worst_label,
    )


def notes(assessment: MeasuredAssessment) -> Iterator[str]:
    """What the numbers mean, and what is not among them."""
    yield (
        "Errors are relative to the measured time. Baselines without a simulator: FLOPs, those of a step over the "
        "fastest GEMM rate in the file; +bubble, the same with (p-1)/(vm) more."
    )
    if any(comparison.shared for comparison in assessment.comparisons):
        yield (
            "* more ranks than cores: simulated as if each had a core, but no faster than the cores there are can do "
            "the work of all."
        )
    for reason, number in assessment.left_out.items():
        yield f"left out: {number} point{'s' if number > 1 else ''} {reason}."


def document(assessment: MeasuredAssessment) -> dict[str, Any]:
    """The comparison as `--json` prints it: seconds, and errors as fractions."""
    return {
        "cluster": assessment.cluster.name,
        "host": assessment.host,
        "steps": [
            {
                "record": comparison.source,
                "key": comparison.point.key,
                "label": comparison.point.label,
                "config": comparison.config.to_plain(),
                "measured": comparison.measured,
                "predicted": comparison.predicted,
                "error": comparison.pair(comparison.predicted).error,
                "flops_over_peak": comparison.flops_over_peak,
                "flops_over_peak_with_bubble": comparison.with_bubble,
                "shared_cores": comparison.shared,
            }
            for comparison in assessment.comparisons
        ],
        "scores": {name: _score(scores) for name, scores in assessment.scores().items()},
        "left_out": dict(assessment.left_out),
        "notes": list(notes(assessment)),
    }


def _score(scores: Scores) -> dict[str, Any]:
    return {**scores.simulated.to_plain(), "baselines": dict(scores.baselines)}


def write(assessment: MeasuredAssessment, folder: Path, command: Sequence[str], started: datetime) -> tuple[Path, ...]:
    """figure.pdf, figure.png, then the record. Raises `StorageError`."""
    record = Record(
        kind="comparison",
        id=FOLDER,
        title="Predictions of a cluster file against measured training steps",
        paper=None,
        fidelity="measured",
        scale="measured",
        state="complete",
        provenance=collect(command, started, cluster=assessment.cluster),
        points=(*map(_point, assessment.comparisons), *_score_points(assessment)),
        notes=tuple(notes(assessment)),
    )
    figures = write_files(folder, _render(assessment))
    write_record(record, folder / RECORD)
    return (folder / RECORD, *figures)


def _point(comparison: MeasuredComparison) -> PointResult:
    metrics = {
        TIME: comparison.point.metrics[TIME],
        f"predicted_{TIME}": Metric(comparison.predicted, "s", "simulated"),
        "relative_error": Metric(comparison.pair(comparison.predicted).error, "1", "derived"),
        "flops_over_peak": Metric(comparison.flops_over_peak, "s", "derived"),
        "flops_over_peak_with_bubble": Metric(comparison.with_bubble, "s", "derived"),
    }
    key = f"{comparison.source}:{comparison.point.key}"
    parameters = {**comparison.point.parameters, "shared_cores": comparison.shared}
    digest = fingerprint({"key": key, "parameters": parameters, "predicted": comparison.predicted})
    return PointResult(key, comparison.source, comparison.point.label, parameters, "ok", None, digest, metrics)


def _score_points(assessment: MeasuredAssessment) -> Iterator[PointResult]:
    for name, scores in assessment.scores().items():
        score = scores.simulated
        values = score.shares(scores.baselines)
        metrics = {key: Metric(value, "1", "derived") for key, value in values.items() if value is not None}
        metrics["points"] = Metric(score.n, "count", "derived")
        parameters = {"worst_point": score.worst_label}
        digest = fingerprint({"name": name, **values})
        yield PointResult(f"score:{name}", "score", name, parameters, "ok", None, digest, metrics)


def _render(assessment: MeasuredAssessment) -> dict[str, bytes]:
    """Predicted against measured step times, a colour and marker for each number of ranks; byte-stable."""
    from matplotlib.ticker import LogLocator, NullLocator

    groups = list(dict.fromkeys(c.group for c in assessment.comparisons))
    with style():
        figure = new_figure(height=3.4)
        axes = figure.subplots()
        for group, color, marker in zip(groups, PALETTE, MARKERS, strict=False):
            ours = [c for c in assessment.comparisons if c.group == group]
            xs, ys = [1e3 * c.measured for c in ours], [1e3 * c.predicted for c in ours]
            axes.plot(xs, ys, linestyle="", marker=marker, color=color, markersize=4, markeredgewidth=0, label=group)
        times = [1e3 * t for c in assessment.comparisons for t in (c.measured, c.predicted)]
        ends = [min(times) / 1.3, max(times) * 1.3]
        axes.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color="#dddddd", linewidth=0)
        axes.plot(ends, ends, color="#777777", linewidth=0.7)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=TICKS))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("Measured step (ms)")
        axes.set_ylabel("Predicted step (ms)")
        figure.legend(loc="outside upper center", ncols=2, handletextpad=0.3)
        score = assessment.scores()["all"].simulated
        on = assessment.host or assessment.cluster.name
        add_origin(
            figure,
            [
                *wrap(f"measured: ptdp's engine on {on};", FOOT_WIDTH),
                *wrap(f"predicted: simulated with {assessment.cluster.name}.toml;", FOOT_WIDTH),
                f"grey: ±10%; {score.n} steps: mean error {score.mean:.1%}, worst {score.worst:+.1%}",
            ],
        )
        return figure_files(figure, "accuracy, measured")
