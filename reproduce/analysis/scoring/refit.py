"""Leave one artifact out: what the simulator's error on it is when none of its values set a parameter.

The cluster file says of every parameter which artifacts it was set with (`set_with`). For each artifact, the parameters
set with it, or with an artifact that has a configuration in common, are fitted anew to all other published throughputs,
and the artifact is predicted with them. The outcome is a JSON document, which holds until the cluster file, the
published values or the simulator's predictions change (`digest`).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.records import fingerprint
from benchmarks.records.storage import PROJECT
from ptdp_core.simulator import Cluster, ClusterParameter
from reproduce.analysis.scoring.published_points import Published, unique
from reproduce.analysis.scoring.sensitivity import evaluation
from reproduce.running.simulated import Simulated

FILE = "refit.json"
REFERENCE = PROJECT / "results" / "reference" / "accuracy" / FILE
EVALUATIONS = 15  # of the objective, for each parameter that is fitted
STEP = 0.2  # of the first simplex, as a part of the parameter's range
TOLERANCES = {"xatol": 0.02, "fatol": 1e-4}  # of the range, and of the mean error


@dataclass(frozen=True)
class Fit:
    """Published values and the simulators that predict them, on a cluster whose parameters can be fitted."""

    published: Mapping[str, Sequence[Published]]
    evaluators: Mapping[str, Simulated]
    cluster: Cluster
    parameters: Mapping[str, ClusterParameter]

    @cached_property
    def throughputs(self) -> tuple[Published, ...]:
        """Every published throughput, each configuration once."""
        return unique(point for points in self.published.values() for point in points if point.is_throughput)

    def linked(self, id: str) -> frozenset[str]:
        """The artifact, and those that publish a value of a configuration it has too."""
        identities = {point.identity for point in self.published[id]}
        others = (
            other for other, points in self.published.items() if any(point.identity in identities for point in points)
        )
        return frozenset({id, *others})

    def errors(self, points: Sequence[Published], values: Mapping[str, float]) -> list[float | None]:
        """Relative errors with these parameters changed; None where there is no result to compare."""
        evaluate = evaluation(self.evaluators, replace(self.cluster, **values))  # type: ignore[arg-type]
        pairs = [point.pair(evaluate(point)) for point in points]
        return [None if pair is None else pair.error for pair in pairs]

    def without(self, id: str) -> dict[str, Any]:
        """The parameters fitted without an artifact, and its errors, as plain data."""
        linked = self.linked(id)
        excluded = {point.identity for other in linked for point in self.published[other]}
        rest = [point for point in self.throughputs if point.identity not in excluded]
        names = [name for name, parameter in self.parameters.items() if set_with(parameter) & linked]
        fitted = fit({name: self.parameters[name] for name in names}, lambda values: self._loss(rest, values))
        points = self.published[id]
        errors = zip(points, self.errors(points, {}), self.errors(points, fitted), strict=True)
        return {
            "fitted_to": len(rest),
            "parameters": {name: {"shipped": self.parameters[name].value, "refitted": fitted[name]} for name in names},
            "errors": {point.point.key: {"shipped": before, "left_out": after} for point, before, after in errors},
        }

    def _loss(self, points: Sequence[Published], values: Mapping[str, float]) -> float:
        """Mean absolute error; a point that has no result any more counts as 100% off."""
        return sum(1.0 if error is None else abs(error) for error in self.errors(points, values)) / len(points)


def set_with(parameter: ClusterParameter) -> set[str]:
    """The artifacts whose published values set a parameter. One marked '(text only ...)' gave words, not values."""
    if parameter.low == parameter.high:
        return set()
    return set(re.findall(r"\b(?:fig|table)_\w+", re.sub(r"\w+ \(text only[^)]*\)", "", parameter.set_with)))


def fit(parameters: Mapping[str, ClusterParameter], loss: Callable[[Mapping[str, float]], float]) -> dict[str, float]:
    """The parameters, in their ranges, that make `loss` smallest: Nelder-Mead from the shipped values, deterministic.

    A parameter that `loss` does not depend on takes the middle of its range: its shipped value would be what the data
    left out had set.
    """
    import numpy
    from scipy.optimize import minimize

    shipped = {name: parameter.value for name, parameter in parameters.items()}
    start = loss(shipped)
    free, fitted = [], {}
    for name, parameter in parameters.items():
        if any(loss({**shipped, name: end}) != start for end in (parameter.low, parameter.high)):
            free.append(parameter)
        else:
            fitted[name] = (parameter.low + parameter.high) / 2
    if not free:
        return fitted

    def values(x: Sequence[float]) -> dict[str, float]:
        ends = zip(free, x, strict=True)
        return {**fitted, **{p.name: float(p.low + part * (p.high - p.low)) for p, part in ends}}

    x = numpy.array([(p.value - p.low) / (p.high - p.low) for p in free])
    steps = numpy.diag(numpy.where(x > 0.5, -STEP, STEP))
    options = {"maxfev": EVALUATIONS * len(free), "initial_simplex": numpy.vstack([x, x + steps]), **TOLERANCES}
    best = minimize(lambda x: loss(values(x)), x, method="Nelder-Mead", bounds=[(0, 1)] * len(free), options=options)
    return values(best.x)


def digest(parameters: Mapping[str, ClusterParameter], predicted: Sequence[tuple[Published, float | None]]) -> str:
    """What an outcome belongs to: the parameters, the published values, the errors of the predictions as shipped."""
    numbers = {name: [p.value, p.low, p.high, p.set_with] for name, p in parameters.items()}
    points = [
        [point.artifact, point.point.key, point.value.value, None if error is None else round(error, 9)]
        for point, error in predicted
    ]
    return fingerprint({"parameters": numbers, "points": points})


def read(folder: Path) -> dict[str, Any] | None:
    """The outcome in a folder, else the project's own; None if there is none."""
    path = next((path for path in (folder / FILE, REFERENCE) if path.is_file()), None)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def left_out(document: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """By artifact and key of a point: its error with the artifact left out, where there is one."""
    return {
        (id, key): errors["left_out"]
        for id, artifact in document["artifacts"].items()
        for key, errors in artifact["errors"].items()
        if errors["left_out"] is not None
    }


def refit(task: Fit, on_done: Callable[[str], None] = lambda label: None) -> dict[str, Any]:
    """Leave out each artifact in turn. A few minutes: hundreds of predictions of every published throughput."""
    artifacts = {}
    for id, points in task.published.items():
        if points:
            artifacts[id] = task.without(id)
            on_done(id)
    predicted = [
        (point, artifacts[id]["errors"][point.point.key]["shipped"])
        for id, points in task.published.items()
        for point in points
    ]
    return {
        "about": "Relative errors as shipped, and with the artifact left out of the fit: reproduce accuracy --refit",
        "cluster": task.cluster.name,
        "digest": digest(task.parameters, predicted),
        "artifacts": artifacts,
    }
