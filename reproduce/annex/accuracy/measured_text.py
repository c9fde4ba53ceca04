"""An assessment against measured runs: as tables, as JSON, and as a record with a figure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from reproduce.annex.accuracy.error_figures import errors
from reproduce.annex.accuracy.measured import BASELINES, FOLDER, TIME, MeasuredAssessment
from reproduce.annex.accuracy.scores import COLUMNS, Score, signed_percent, write_comparison
from reproduce.output.columns import Column, Table, key, keyed
from reproduce.output.terminal import percent
from reproduce.output.theme import figure_files, style
from results.records import Metric, PointResult, fingerprint
from results.records.provenance import collect

AXES = ("p", "t", "d", "v", "b")
BAND = 0.1


def parts(assessment: MeasuredAssessment) -> Iterator[tuple[str, Table, Iterable[str]]]:
    """Headings, tables, and lines below them: every measured step, then the scores, and what to know about them."""
    title = f"Training steps in milliseconds: measured, and predicted with the cluster {assessment.cluster.name}"
    yield title, step_table(assessment), ()
    heading = "Errors by number of ranks: of the prediction, and mean ones of two baselines"
    yield heading, score_table(assessment), notes(assessment)


def step_table(assessment: MeasuredAssessment) -> Table:
    """One row per step: its layout, times in milliseconds, errors of the prediction and of a baseline, what it is."""
    columns = [
        *(Column(axis, attrgetter(f"config.parallel.{axis}")) for axis in (*AXES, "m")),
        Column("h", lambda step: step.config.model.hidden),
        Column("measured", lambda step: step.paper, form=".1f", factor=1e-3),
        Column("predicted", lambda step: step.ours, form=".1f", factor=1e-3),
        Column("error", lambda step: step.error, form=signed_percent),
        Column("+bubble", lambda step: step.flops_over_peak_with_bubble / step.paper - 1, form=signed_percent),
        Column("step", lambda step: f"{step.record}: {step.point.label}" + (" *" if step.shared else "")),
    ]
    return Table(columns, list(assessment.steps.itertuples()))


def score_table(assessment: MeasuredAssessment) -> Table:
    """One row per number of ranks, then all."""
    rows = [{"": name, **vars(score), **errors} for name, (score, errors) in assessment.scores().items()]
    columns = [
        *keyed(""),
        *(COLUMNS[name] for name in ("n", "mean", "bias", "rank")),
        *(Column(what, key(name), form=percent) for what, name in zip(("FLOPs", "+bubble"), BASELINES, strict=True)),
        *(COLUMNS[name] for name in ("worst", "at")),
    ]
    return Table(columns, rows)


def notes(assessment: MeasuredAssessment) -> Iterator[str]:
    """What the numbers mean, and what is not among them."""
    yield (
        "Errors are relative to the measured time. Baselines without a simulator: FLOPs, those of a step over the "
        "fastest GEMM rate in the file; +bubble, the same with (p-1)/(vm) more."
    )
    if assessment.steps.shared.any():
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
                "record": step.record,
                "key": step.key,
                "label": step.point.label,
                "config": step.config.to_plain(),
                "measured": step.paper,
                "predicted": step.ours,
                "error": step.error,
                **{name: getattr(step, name) for name in BASELINES},
                "shared_cores": step.shared,
            }
            for step in assessment.steps.itertuples()
        ],
        "scores": {name: {**vars(score), "baselines": errors} for name, (score, errors) in assessment.scores().items()},
        "left_out": assessment.left_out,
        "notes": list(notes(assessment)),
    }


def write(assessment: MeasuredAssessment, folder: Path, command: Sequence[str], started: datetime) -> tuple[Path, ...]:
    """Write record and figure into `folder`. Raises `StorageError`."""
    return write_comparison(
        folder,
        _render(assessment),
        id=FOLDER,
        title="Predictions of a cluster file against measured training steps",
        fidelity="measured",
        scale="measured",
        provenance=collect(command, started, cluster=assessment.cluster),
        points=(
            *map(_point, assessment.steps.itertuples()),
            *(_score_point(name, *scores) for name, scores in assessment.scores().items()),
        ),
        notes=tuple(notes(assessment)),
    )


def _point(step: Any) -> PointResult:
    metrics = {
        TIME: step.point.metrics[TIME],
        f"predicted_{TIME}": Metric(step.ours, "s", "simulated"),
        "relative_error": Metric(step.error, "1", "derived"),
        **{name: Metric(getattr(step, name), "s", "derived") for name in BASELINES},
    }
    key = f"{step.record}:{step.key}"
    parameters = {**step.point.parameters, "shared_cores": step.shared}
    digest = fingerprint({"key": key, "parameters": parameters, "predicted": step.ours})
    return PointResult(key, step.record, step.point.label, parameters, "ok", None, digest, metrics)


def _score_point(name: str, score: Score, errors: Mapping[str, float]) -> PointResult:
    """A score depends on steps that may be other ones next time: with other values it is another point."""
    digest = fingerprint({"name": name, **score.shares(errors)})
    return replace(score.record_point(name, name, errors), fingerprint=digest)


def _render(assessment: MeasuredAssessment) -> dict[str, bytes]:
    """The errors of predicted step times, by number of ranks; byte-stable."""
    lines = [
        f"measured: ptdp's engine on {assessment.host or assessment.cluster.name}",
        f"predicted: simulated with {assessment.cluster.name}.toml",
    ]
    with style():
        return figure_files(errors(assessment.steps, "predicted step times", lines, BAND), "accuracy, measured")
