"""How good the simulator is: every published value beside its prediction, by artifact and over all.

Nothing is fitted here but the baselines, which are fitted to the published values themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series

from ptdp_core.simulator import ClusterParameter, read_parameters
from reproduce.annex.accuracy import refit
from reproduce.annex.accuracy.published_points import beside, disagreements, published_points
from reproduce.annex.accuracy.scores import Score, baselines, mean_error, score
from reproduce.annex.accuracy.sensitivity import moves, variants
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.papers import FIRST
from reproduce.running import runner, simulated
from reproduce.running.simulated import Simulated
from results.records import ClusterRef, PointResult, fingerprint

THROUGHPUTS, ALL = "throughput per GPU only", "all"  # the throughputs have baselines
OnDone = Callable[[str], None]


@dataclass(frozen=True)
class Scored:
    """A set of published values: the score and, if all are throughputs, the baselines fitted to the same ones.

    `missing` counts values that should have a result and have none. `left_out` is the mean error with each artifact
    left out of the fit, None where that is not known.
    """

    score: Score | None
    baselines: Mapping[str, float] | None
    missing: int
    left_out: float | None


@dataclass(frozen=True)
class Assessment:
    """All of it.

    `values` are the rows of `published_points` with what we have for them. `scores` are by artifact, and by THROUGHPUTS
    and ALL, which count every configuration once. `unpublished` are the artifacts that are predicted and not compared,
    as plain data, because the paper publishes no value of what is simulated. `moves` has a row for each number or
    mechanism that was changed.
    """

    cluster: ClusterRef
    values: DataFrame
    scores: Mapping[str, Scored]
    unpublished: Sequence[Mapping[str, Any]]
    parameters: Mapping[str, ClusterParameter]
    moves: DataFrame
    notes: tuple[str, ...]
    code_digest: str

    @property
    def places(self) -> dict[str, str]:
        """The artifacts with published values, and what they are in the paper: 'Figure 12'."""
        return dict(zip(self.values.artifact, self.values.place, strict=True))

    @property
    def duplicates(self) -> int:
        """How many values repeat the configuration of an earlier one."""
        return int((~self.values.counted).sum())


def assess(
    artifacts: Sequence[Artifact],
    cluster: str,
    start: Callable[[int], OnDone] = lambda total: lambda label: None,
    debug: bool = False,
    refitted: Mapping[str, Any] | None = None,
) -> Assessment:
    """Predict, score, and move every parameter. `start(total)` gives what is called with each step done.

    `refitted` is the outcome of a refit without each artifact; a stale one is not used.

    Raises `ReproduceError` for a cluster that is none.
    """
    chosen = [artifact for artifact in artifacts if "simulated" in artifact.fidelities]
    evaluators = evaluators_of(chosen, cluster, debug)
    model, reference = simulated.open_cluster(cluster)
    parameters = read_parameters(cluster)
    total = sum(len(artifact.points(artifact.scales[0])) for artifact in chosen)
    on_done = start(total + len(list(variants(model, parameters))))

    values, results = predict(chosen, evaluators, on_done)
    left_out, note = _left_out(refitted, parameters, values)
    values = values.assign(left_out=left_out)
    counted = values[values.counted & ~values.reference]
    groups = [*values.groupby("artifact", sort=False), (THROUGHPUTS, counted[counted.throughput]), (ALL, counted)]
    references = int(values.reference.sum())
    normalised = f"{references} points are 1 on both sides, because their series are normalised there: not scored"
    return Assessment(
        cluster=reference,
        values=values,
        scores={name: _scored(rows) for name, rows in groups if not rows.empty},
        unpublished=[
            {
                "id": artifact.id,
                "paper": artifact.label,
                "points": len(results[artifact.id]),
                "predictions": sum(result.status == "ok" for result in results[artifact.id].values()),
            }
            for artifact in chosen
            if artifact.id not in set(values.artifact)
        ],
        parameters=parameters,
        moves=moves(counted[counted.ours.notna()], evaluators, model, parameters, on_done),
        notes=(*disagreements(values), *([normalised] if references else []), *note),
        code_digest=fingerprint({id: evaluator.code_digest for id, evaluator in evaluators.items()}),
    )


def evaluators_of(artifacts: Sequence[Artifact], cluster: str, debug: bool = False) -> dict[str, Simulated]:
    """What simulates each artifact's points, by id. Raises `ReproduceError` for a cluster that is none."""
    plans = [runner.plan(artifact, Path(), "simulated", cluster=cluster) for artifact in artifacts]
    return {plan.artifact.id: simulated.make(plan, debug) for plan in plans}


Results = Mapping[str, Mapping[str, PointResult]]  # by artifact and key of the point


def predict(
    artifacts: Sequence[Artifact], evaluators: Mapping[str, Simulated], on_done: OnDone = lambda label: None
) -> tuple[DataFrame, Results]:
    """The published values of artifacts beside what is simulated, and all that is simulated of them."""
    results: dict[str, dict[str, PointResult]] = {}
    for artifact in artifacts:
        results[artifact.id] = {}
        for point in artifact.points(artifact.scales[0]):
            results[artifact.id][point.key] = evaluators[artifact.id].evaluate(point)
            on_done(f"{artifact.id}: {point.label}")
    values = published_points(artifacts)
    return beside(values, [results[row.artifact][row.key] for row in values.itertuples()]), results


def predict_paper(cluster: str) -> tuple[DataFrame, Results]:
    """`predict` of the first paper's artifacts with published values."""
    published = published_points(map(catalog.load, catalog.ids(FIRST)))
    artifacts = [catalog.load(id) for id in published.artifact.unique()]
    return predict(artifacts, evaluators_of(artifacts, cluster))


def _left_out(
    refitted: Mapping[str, Any] | None, parameters: Mapping[str, ClusterParameter], values: DataFrame
) -> tuple[Series, list[str]]:
    """The errors of a refit that belongs to these predictions; if there is none, a line that says why."""
    unknown = Series(index=values.index, dtype=float)
    if refitted is None:
        return unknown, ["no refit without each artifact is known: reproduce accuracy --refit"]
    if refitted["digest"] != refit.digest(parameters, values):
        why = "the refit without each artifact is stale (of other parameters, published values or predictions)"
        return unknown, [f"{why}: reproduce accuracy --refit"]
    return refit.left_out(refitted, values), []


def _scored(values: DataFrame) -> Scored:
    pairs = values[values.ours.notna()]
    missing = int((values.ours.isna() & ~values.reference).sum())
    if pairs.empty:
        return Scored(None, None, missing, None)
    known = pairs.left_out.notna().all()
    return Scored(
        score(pairs),
        baselines(pairs) if values.throughput.all() else None,
        missing,
        mean_error(pairs.left_out) if known else None,
    )
