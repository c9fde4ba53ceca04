"""How the score moves when a number of the cluster is moved through its range, or a mechanism is dropped.

One at a time, all else as in the cluster file. A mechanism is dropped by the values that take it out of the model: no
time, no penalty, the full peak.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

from pandas import DataFrame

from ptdp_core.config import TrainingConfig, padded_vocab
from ptdp_core.simulator import Cluster, ClusterParameter
from reproduce.annex.accuracy.published_points import FLOPS, beside
from reproduce.annex.accuracy.scores import mean_error
from reproduce.running.simulated import Simulated
from results.records import PointResult

LOW, HIGH, DROPPED = WAYS = ("low", "high", "dropped")
NOTHING = inf  # an efficiency at which the work takes no time

# What the simulator models, by the name of its one parameter or by a name of its own.
MECHANISMS: Mapping[str, Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
LOGITS = "embedding_and_logits"

Evaluation = Callable[[Any], PointResult]  # of a row of published points


def moves(
    points: DataFrame,
    evaluators: Mapping[str, Simulated],
    cluster: Cluster,
    parameters: Mapping[str, ClusterParameter],
    on_move: Callable[[str], None] = lambda label: None,
) -> DataFrame:
    """Every parameter at both ends of its range and every mechanism dropped, scored on published points with `ours`.

    name, way    of the parameter or mechanism; low, high or dropped
    value        the parameter's; missing for a mechanism of several, or where it has no finite one
    mean         the mean absolute error over all points that have a result; missing if none has
    change       what the mean has grown by over the same points
    groups       the mean before and after, by artifact
    lost         how many points no longer have a result
    meaning      what dropping a mechanism means
    """
    rows = []
    for name, way, value, meaning, changed in variants(cluster, parameters):
        evaluate = _without_logits(evaluators) if changed is None else evaluation(evaluators, changed)
        of_move = {"name": name, "way": way, "value": None if value == NOTHING else value}
        rows.append(of_move | _rescored(points, evaluate) | {"meaning": meaning})
        on_move(f"{name} {way}")
    return DataFrame(rows)


def variants(
    cluster: Cluster, parameters: Mapping[str, ClusterParameter]
) -> Iterator[tuple[str, str, float | None, str, Cluster | None]]:
    """Each move's name, way, value and meaning, and the changed cluster; None where the logits are dropped."""
    for name, parameter in parameters.items():
        for way, value in ((LOW, parameter.low), (HIGH, parameter.high)):
            if value != parameter.value:
                yield name, way, value, "", replace(cluster, **{name: value})  # type: ignore[arg-type]
    for name, dropped in MECHANISMS.items():
        values = dropped["values"]
        yield name, DROPPED, values.get(name), dropped["meaning"], replace(cluster, **values)
    yield LOGITS, DROPPED, None, "almost no vocabulary in time and memory, the FLOP count as before", None


def means(moves: DataFrame) -> DataFrame:
    """The mean error at low, at high and dropped, missing where there is no such move.

    By name of the parameter or mechanism, those first whose moves change the mean most.
    """
    largest = moves.change.abs().groupby(moves["name"], sort=False).max().sort_values(ascending=False, kind="stable")
    return moves.pivot(index="name", columns="way", values="mean").reindex(index=largest.index, columns=list(WAYS))


def evaluation(evaluators: Mapping[str, Simulated], cluster: Cluster) -> Evaluation:
    """Evaluates published points on a changed cluster."""
    changed = {id: replace(evaluator, cluster=cluster) for id, evaluator in evaluators.items()}
    return lambda row: changed[row.artifact].evaluate(row.point)


def _without_logits(evaluators: Mapping[str, Simulated]) -> Evaluation:
    """Evaluates with the smallest vocabulary there is, and counts the FLOPs of the real one."""

    def evaluate(row: Any) -> PointResult:
        parallel = row.config.parallel
        parameters = {**row.point.parameters, "vocab": padded_vocab(1, parallel.t)}
        result = evaluators[row.artifact].evaluate(replace(row.point, parameters=parameters))
        metric = result.metrics.get(row.metric)
        if not row.throughput or metric is None or metric.value is None:
            return result
        models = row.config.model, TrainingConfig.from_plain(parameters).model
        full, reduced = (FLOPS[row.metric](model, parallel.B) for model in models)
        scaled = replace(metric, value=metric.value * full / reduced)
        return replace(result, metrics={**result.metrics, row.metric: scaled})

    return evaluate


def errors(points: DataFrame, evaluate: Evaluation) -> Any:
    """The errors of these points' results, a column; missing where there is nothing to compare."""
    return beside(points, [evaluate(row) for row in points.itertuples()]).error


def _rescored(points: DataFrame, evaluate: Evaluation) -> dict[str, Any]:
    both = DataFrame({"artifact": points.artifact, "before": points.error, "after": errors(points, evaluate)}).dropna()
    groups = {
        id: (mean_error(rows.before), mean_error(rows.after)) for id, rows in both.groupby("artifact", sort=False)
    }
    mean = None if both.empty else mean_error(both.after)
    change = 0.0 if mean is None else mean - mean_error(both.before)
    return {"mean": mean, "change": change, "groups": groups, "lost": len(points) - len(both)}
