"""The accuracy assessment as JSON, as a record of kind 'comparison', and as files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pandas import DataFrame

from reproduce.annex.accuracy.accuracy import ALL, THROUGHPUTS, Assessment, Scored
from reproduce.annex.accuracy.error_figures import render
from reproduce.annex.accuracy.published_points import plain
from reproduce.annex.accuracy.scores import derived_point, write_comparison
from reproduce.experiment import margins
from results.records import Metric, PointResult
from results.records.provenance import collect


def as_json(assessment: Assessment) -> dict[str, Any]:
    """The assessment as `reproduce accuracy --json` prints it."""
    values = assessment.values
    scores = {name: _scored(scored) for name, scored in assessment.scores.items()}
    return {
        "cluster": assessment.cluster.name,
        "origin": "simulated",
        "groups": [
            {"id": id, "paper": place, **scores[id], "points": _points(values[values.artifact == id])}
            for id, place in assessment.places.items()
        ],
        "overall": scores[ALL],
        "parts": {name: scores[name] for name in scores if name == THROUGHPUTS},
        "duplicates": assessment.duplicates,
        "unpublished": assessment.unpublished,
        "parameters": [asdict(parameter) for parameter in assessment.parameters.values()],
        "moves": plain(assessment.moves).to_dict("records"),
        "notes": notes(assessment),
    }


def _scored(scored: Scored) -> dict[str, Any]:
    score = scored.score and {**vars(scored.score), "missing": scored.missing}
    return {"score": score, "left_out": scored.left_out, "baselines": scored.baselines}


def _points(values: DataFrame) -> list[dict[str, Any]]:
    shown = values[["key", "name", "metric", "ours", "paper"]].rename(columns={"name": "label", "paper": "published"})
    shown["unit"] = [published.unit for published in values.published]
    return plain(shown.join(values[["error", "counted"]])).to_dict("records")


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
            f"{group['paper']} ({group['predictions']} of {group['points']} points)" for group in assessment.unpublished
        )
        lines.append(f"simulated, with no published value of what is simulated: {listed}.")
    return tuple(lines)


def write(assessment: Assessment, folder: Path, command: Sequence[str], started: datetime) -> tuple[Path, ...]:
    """Write record and figures into `folder`. Raises `StorageError`.

    The points of the record are the predictions, then scores, moves and parameters, by series.
    """
    return write_comparison(
        folder,
        render(assessment),
        id="accuracy",
        title="Accuracy of the simulator against every published value",
        fidelity="simulated",
        scale="paper",
        provenance=collect(command, started, cluster=assessment.cluster, code_digest=assessment.code_digest),
        points=(
            *map(_prediction, assessment.values.itertuples()),
            *_scores(assessment),
            *map(_move, plain(assessment.moves).to_dict("records")),
            *(
                derived_point(f"parameter:{name}", "parameter", name, asdict(parameter), {})
                for name, parameter in assessment.parameters.items()
            ),
        ),
        notes=notes(assessment),
    )


def _prediction(row: Any) -> PointResult:
    result: PointResult = row.result
    metrics = {row.metric: result.metrics[row.metric]} if row.metric in result.metrics else {}
    if row.ours == row.ours:  # not missing
        metrics["relative_error"] = Metric(row.error, "1", "simulated")
    return replace(
        result,
        key=f"{row.artifact}:{row.key}",
        series=row.place,
        label=row.name,
        parameters={**result.parameters, "counted": row.counted},
        metrics=metrics,
        paper={row.metric: row.published},
    )


def _scores(assessment: Assessment) -> Iterator[PointResult]:
    for name, scored in assessment.scores.items():
        if scored.score is not None:
            label = assessment.places.get(name, name)
            yield scored.score.record_point(name.replace(" ", "_"), label, scored.baselines or {})


def _move(move: Mapping[str, Any]) -> PointResult:
    name, way = move["name"], move["way"]
    parameters = {"name": name, "way": way, "value": move["value"], "meaning": move["meaning"] or None}
    metrics = {"lost": Metric(move["lost"], "count", "simulated"), "change": Metric(move["change"], "1", "simulated")}
    if move["mean"] is not None:
        metrics["mean_error"] = Metric(move["mean"], "1", "simulated")
    return derived_point(f"sensitivity:{name}:{way}", "sensitivity", f"{name} {way}", parameters, metrics)
