"""The accuracy assessment as JSON, as a record of kind 'comparison', and as files."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.records import Metric, PointResult, Record, fingerprint, write_files, write_record
from benchmarks.records.provenance import collect
from reproduce.analysis.scoring.accuracy import Assessment, Predicted, Scored
from reproduce.analysis.scoring.sensitivity import Move
from reproduce.experiment import margins
from reproduce.running.runner import RECORD

FOLDER = "accuracy"


def as_json(assessment: Assessment) -> dict[str, Any]:
    """The assessment as `reproduce accuracy --json` prints it."""
    return {
        "cluster": assessment.cluster.name,
        "origin": "simulated",
        "groups": [
            {
                "id": group.artifact.id,
                "paper": group.artifact.label,
                **_scored(group.scored),
                "points": [_point(prediction) for prediction in group.predicted],
            }
            for group in assessment.groups
        ],
        "overall": _scored(assessment.overall),
        "parts": {name: _scored(scored) for name, scored in assessment.parts.items()},
        "duplicates": assessment.duplicates,
        "unpublished": [
            {
                "id": group.artifact.id,
                "paper": group.artifact.label,
                "points": group.points,
                "predictions": group.predictions,
            }
            for group in assessment.unpublished
        ],
        "parameters": [asdict(parameter) for parameter in assessment.parameters.values()],
        "moves": [asdict(move) for move in assessment.moves],
        "notes": list(notes(assessment)),
    }


def _scored(scored: Scored) -> dict[str, Any]:
    score = scored.score
    body = score and {**score.to_plain(), "missing": scored.missing}
    return {"score": body, "left_out": scored.left_out, "baselines": scored.baselines and dict(scored.baselines)}


def _point(predicted: Predicted) -> dict[str, Any]:
    published, pair = predicted.published, predicted.pair
    return {
        "key": published.point.key,
        "label": published.label,
        "metric": published.quantity.name,
        "ours": pair and pair.ours,
        "published": published.value.value,
        "unit": published.value.unit,
        "error": pair and pair.error,
        "counted": predicted.counted,
    }


def notes(assessment: Assessment) -> tuple[str, ...]:
    """What the scores say, and what they leave out, as lines for people."""
    lines = [
        f"all: each configuration once ({assessment.duplicates} repeat an earlier artifact's). Errors are relative to "
        "the published value; the baselines (a constant, a line in h, a constant over 1 + (p-1)/(vm)) are fitted to "
        "the very values they are scored on. Rank correlation: Spearman's.",
        "left out: the mean error on an artifact when the parameters set with it, or with one that has a "
        "configuration in common, are fitted anew without its values; a baseline wins if its error is smaller.",
        *margins.lines(margins.read(assessment.cluster.name)),
        *assessment.notes,
    ]
    if assessment.unpublished:
        listed = ", ".join(
            f"{group.artifact.label} ({group.predictions} of {group.points} points)" for group in assessment.unpublished
        )
        lines.append(f"simulated, with no published value of what is simulated: {listed}.")
    return tuple(lines)


def record(assessment: Assessment, command: Sequence[str], started: datetime) -> Record:
    """The assessment as a record: its points are the predictions, then scores, moves and parameters, by series."""
    return Record(
        kind="comparison",
        id="accuracy",
        title="Accuracy of the simulator against every published value",
        paper=None,
        fidelity="simulated",
        scale="paper",
        state="complete",
        provenance=collect(command, started, cluster=assessment.cluster, code_digest=assessment.code_digest),
        points=(
            *(_prediction(prediction) for prediction in assessment.predicted),
            *_scores(assessment),
            *(_move(move) for move in assessment.moves),
            *_parameters(assessment),
        ),
        notes=notes(assessment),
    )


def _prediction(predicted: Predicted) -> PointResult:
    published, pair, result = predicted.published, predicted.pair, predicted.result
    name = published.quantity.name
    metrics = {name: result.metrics[name]} if name in result.metrics else {}
    if pair is not None:
        metrics["relative_error"] = Metric(pair.error, "1", "simulated")
    return replace(
        result,
        key=f"{published.artifact}:{published.point.key}",
        series=published.paper,
        label=published.label,
        parameters={**result.parameters, "counted": predicted.counted},
        metrics=metrics,
        paper={name: published.value},
    )


def _made(key: str, series: str, label: str, parameters: dict[str, Any], metrics: dict[str, Metric]) -> PointResult:
    digest = fingerprint({"key": key, "parameters": parameters})
    return PointResult(key, series, label, parameters, "ok", None, digest, metrics)


def _scores(assessment: Assessment) -> list[PointResult]:
    rows = [(group.artifact.id, group.artifact.label, group.scored) for group in assessment.groups]
    rows += [(name.replace(" ", "_"), name, scored) for name, scored in assessment.parts.items()]
    rows.append(("all", "all", assessment.overall))
    points = []
    for key, label, scored in rows:
        if scored.score is None:
            continue
        score = scored.score
        values = score.shares(scored.baselines or {})
        metrics = {name: Metric(value, "1", "derived") for name, value in values.items() if value is not None}
        metrics["points"] = Metric(score.n, "count", "derived")
        points.append(_made(f"score:{key}", "score", label, {"worst_point": score.worst_label}, metrics))
    return points


def _move(move: Move) -> PointResult:
    parameters = {"name": move.name, "way": move.way, "value": move.value, "meaning": move.meaning or None}
    metrics = {"lost": Metric(move.lost, "count", "simulated"), "change": Metric(move.change, "1", "simulated")}
    if move.mean is not None:
        metrics["mean_error"] = Metric(move.mean, "1", "simulated")
    return _made(f"sensitivity:{move.name}:{move.way}", "sensitivity", f"{move.name} {move.way}", parameters, metrics)


def _parameters(assessment: Assessment) -> list[PointResult]:
    return [
        _made(f"parameter:{parameter.name}", "parameter", parameter.name, asdict(parameter), {})
        for parameter in assessment.parameters.values()
    ]


def write(assessment: Assessment, folder: Path, command: Sequence[str], started: datetime) -> tuple[Path, ...]:
    """Write record and figures into `folder`, the record last. Raises `StorageError`."""
    from reproduce.analysis.scoring.accuracy_figures import render

    accuracy = record(assessment, command, started)
    figures = write_files(folder, render(assessment, accuracy))
    write_record(accuracy, folder / RECORD)
    return (folder / RECORD, *figures)
