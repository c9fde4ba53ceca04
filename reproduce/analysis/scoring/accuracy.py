"""How good the simulator is: every published value beside its prediction, by artifact and over all.

`assess` evaluates, `Assessment` holds what it found; printing and writing are in `accuracy_command.py`. Nothing is
fitted here but the baselines, which are fitted to the published values themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.records import ClusterRef, PointResult, fingerprint
from ptdp_core.simulator import ClusterParameter, read_parameters
from reproduce.analysis.scoring import refit
from reproduce.analysis.scoring.published_points import Published, disagreements, published_points, unique
from reproduce.analysis.scoring.scores import Score, ScoredPair, baselines, score
from reproduce.analysis.scoring.sensitivity import Move, count, moves
from reproduce.experiment.artifact import Artifact
from reproduce.running import runner, simulated
from reproduce.running.simulated import Simulated

OnDone = Callable[[str], None]


@dataclass(frozen=True)
class Predicted:
    """A published value with our result for it; `counted` is False where an earlier artifact has the same one."""

    published: Published
    result: PointResult
    counted: bool

    @property
    def pair(self) -> ScoredPair | None:
        """Both numbers; None where we have no result, or where both are 1 because the series is normalised there."""
        return self.published.pair(self.result)

    @property
    def missing(self) -> bool:
        """Whether there should be a result and is none."""
        return self.pair is None and not self.published.is_reference(self.result)


@dataclass(frozen=True)
class Scored:
    """A set of published values: the score and, if all are throughputs, the baselines fitted to the same ones.

    `left_out` is the mean error with the artifact left out of the fit, None where that is not known.
    """

    score: Score | None
    baselines: Mapping[str, float] | None
    missing: int
    left_out: float | None = None


@dataclass(frozen=True)
class ScoredGroup:
    """An artifact with published values; `results` are all its points, also those without one."""

    artifact: Artifact
    predicted: tuple[Predicted, ...]
    scored: Scored
    results: tuple[PointResult, ...]


@dataclass(frozen=True)
class Unpublished:
    """An artifact that is predicted and not compared, because the paper publishes no value of what is simulated."""

    artifact: Artifact
    points: int
    predictions: int


@dataclass(frozen=True)
class Assessment:
    """All of it. `overall` and `parts` count every configuration once; `duplicates` says how many were left out."""

    cluster: ClusterRef
    groups: tuple[ScoredGroup, ...]
    overall: Scored
    parts: Mapping[str, Scored]
    duplicates: int
    unpublished: tuple[Unpublished, ...]
    parameters: Mapping[str, ClusterParameter]
    moves: tuple[Move, ...]
    notes: tuple[str, ...]
    code_digest: str

    @property
    def predicted(self) -> tuple[Predicted, ...]:
        """Every published value, in the paper's order."""
        return tuple(p for group in self.groups for p in group.predicted)


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
    if not evaluators:
        raise ValueError("artifacts=[] has none that can be simulated; needs at least one")
    some = next(iter(evaluators.values()))
    assert some.cluster is not None
    assert some.cluster_ref is not None
    parameters = read_parameters(cluster)
    total = sum(len(artifact.points(artifact.scales[0])) for artifact in chosen)
    on_done = start(total + count(some.cluster, parameters))

    groups, unpublished = predict(chosen, evaluators, on_done)
    points = [p for group in groups for p in group.predicted]
    left_out, note = _left_out(refitted, parameters, points)
    groups = [replace(group, scored=_scored(group.predicted, left_out)) for group in groups]
    counted = [p for p in points if p.counted and not p.published.is_reference(p.result)]
    known = [(p.published, pair) for p in counted if (pair := p.pair) is not None]
    return Assessment(
        cluster=some.cluster_ref,
        groups=tuple(groups),
        overall=_scored(counted, left_out),
        parts=_parts(groups, left_out),
        duplicates=sum(not p.counted for p in points),
        unpublished=tuple(unpublished),
        parameters=parameters,
        moves=tuple(moves(known, evaluators, some.cluster, parameters, on_done)),
        notes=(*disagreements([p.published for p in points]), *_references(points), *note),
        code_digest=fingerprint({id: evaluator.code_digest for id, evaluator in evaluators.items()}),
    )


def evaluators_of(artifacts: Sequence[Artifact], cluster: str, debug: bool = False) -> dict[str, Simulated]:
    """What simulates each artifact's points, by id. Raises `ReproduceError` for a cluster that is none."""
    plans = [runner.plan(artifact, Path(), "simulated", cluster=cluster) for artifact in artifacts]
    return {plan.artifact.id: simulated.make(plan, debug) for plan in plans}


def predict(
    artifacts: Sequence[Artifact], evaluators: Mapping[str, Simulated], on_done: OnDone = lambda label: None
) -> tuple[list[ScoredGroup], list[Unpublished]]:
    """Every artifact's points simulated: those with published values scored, the others counted."""
    published = {artifact.id: published_points(artifact) for artifact in artifacts}
    first = {id(p) for p in unique(p for points in published.values() for p in points)}
    groups, unpublished = [], []
    for artifact in artifacts:
        results = {}
        for point in artifact.points(artifact.scales[0]):
            results[point.key] = evaluators[artifact.id].evaluate(point)
            on_done(f"{artifact.id}: {point.label}")
        if ours := published[artifact.id]:
            predicted = tuple(Predicted(p, results[p.point.key], id(p) in first) for p in ours)
            groups.append(ScoredGroup(artifact, predicted, _scored(predicted), tuple(results.values())))
        else:
            ok = sum(result.status == "ok" for result in results.values())
            unpublished.append(Unpublished(artifact, len(results), ok))
    return groups, unpublished


def _references(points: Sequence[Predicted]) -> list[str]:
    number = sum(p.published.is_reference(p.result) for p in points)
    return (
        [f"{number} points are 1 on both sides, because their series are normalised there: not scored"]
        if number
        else []
    )


LeftOut = Mapping[tuple[str, str], float]  # errors by artifact and key of the point


def _left_out(
    refitted: Mapping[str, Any] | None, parameters: Mapping[str, ClusterParameter], points: Sequence[Predicted]
) -> tuple[LeftOut, tuple[str, ...]]:
    """The errors of a refit that belongs to these predictions, else none and a line that says why."""
    if refitted is None:
        return {}, ("no refit without each artifact is known: reproduce accuracy --refit",)
    predicted = [(p.published, pair.error if (pair := p.pair) else None) for p in points]
    if refitted["digest"] != refit.digest(parameters, predicted):
        why = "the refit without each artifact is stale (of other parameters, published values or predictions)"
        return {}, (f"{why}: reproduce accuracy --refit",)
    return refit.left_out(refitted), ()


def _parts(groups: Sequence[ScoredGroup], left_out: LeftOut) -> dict[str, Scored]:
    """Parts of the whole that are worth a line: the throughputs, which have baselines."""
    counted = [p for group in groups for p in group.predicted if p.counted]
    parts = {"throughput per GPU only": [p for p in counted if p.published.is_throughput]}
    return {name: _scored(points, left_out) for name, points in parts.items() if points}


def _scored(points: Sequence[Predicted], left_out: LeftOut | None = None) -> Scored:
    pairs = [pair for p in points if (pair := p.pair) is not None]
    keys = [(p.published.artifact, p.published.point.key) for p in points if p.pair is not None]
    missing = sum(p.missing for p in points)
    if not pairs:
        return Scored(None, None, missing)
    throughputs = all(p.published.is_throughput for p in points)
    errors = [abs(left_out[key]) for key in keys if left_out and key in left_out]
    mean = sum(errors) / len(errors) if len(errors) == len(pairs) else None
    return Scored(score(pairs), baselines(pairs) if throughputs else None, missing, mean)
