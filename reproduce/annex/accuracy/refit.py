"""Leave one artifact out: what the simulator's error on it is when none of its values set a parameter.

The cluster file says of every parameter which artifacts it was set with (`set_with`). For each artifact, the parameters
set with it, or with an artifact that has a configuration in common, are fitted anew to all other published throughputs,
and the artifact is predicted with them. The outcome is a JSON document, which holds until the cluster file, the
published values or the simulator's predictions change (`digest`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pandas import DataFrame, Series, concat

from ptdp_core.simulator import Cluster, ClusterParameter
from reproduce.annex.accuracy.published_points import plain
from reproduce.annex.accuracy.scores import mean_error
from reproduce.annex.accuracy.sensitivity import errors, evaluation
from reproduce.experiment.published import artifacts_in
from reproduce.running.simulated import Simulated
from results import ROOT
from results.records import fingerprint

FILE = "refit.json"
REFERENCE = ROOT / "results" / "reference" / "accuracy" / FILE
EVALUATIONS = 15  # of the objective, for each parameter that is fitted
STEP = 0.2  # of the first simplex, as a part of the parameter's range
TOLERANCES = {"xatol": 0.02, "fatol": 1e-4}  # of the range, and of the mean error


@dataclass(frozen=True)
class Fit:
    """Published values and the simulators that predict them, on a cluster whose parameters can be fitted."""

    published: DataFrame
    evaluators: Mapping[str, Simulated]
    cluster: Cluster
    parameters: Mapping[str, ClusterParameter]

    def linked(self, id: str) -> set[str]:
        """The artifact, and those that publish a value of a configuration it has too."""
        published = self.published
        return set(published.artifact[published.identity.isin(published.identity[published.artifact == id])])

    def errors(self, points: DataFrame, values: Mapping[str, float]) -> Series:
        """Relative errors with these parameters changed; missing where there is no result to compare."""
        return errors(points, evaluation(self.evaluators, replace(self.cluster, **values)))  # type: ignore[arg-type]

    def without(self, id: str) -> tuple[dict[str, Any], DataFrame]:
        """The parameters fitted without an artifact, as plain data, and its errors: `shipped` and `left_out`."""
        published, linked = self.published, self.linked(id)
        excluded = published.identity.isin(published.identity[published.artifact.isin(linked)])
        rest = published[published.counted & published.throughput & ~excluded]
        chosen = {name: parameter for name, parameter in self.parameters.items() if set_with(parameter) & linked}
        # A point that has no result any more counts as 100% off.
        fitted = fit(chosen, lambda values: mean_error(self.errors(rest, values).fillna(1.0)))
        points = published[published.artifact == id]
        about = {
            "fitted_to": len(rest),
            "parameters": {name: {"shipped": p.value, "refitted": fitted[name]} for name, p in chosen.items()},
        }
        return about, points.assign(error=self.errors(points, {}), left_out=self.errors(points, fitted))


def set_with(parameter: ClusterParameter) -> set[str]:
    """The artifacts whose published values set a parameter. One marked '(text only ...)' gave words, not values."""
    if parameter.low == parameter.high:
        return set()
    return artifacts_in(parameter.set_with)


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


def digest(parameters: Mapping[str, ClusterParameter], values: DataFrame) -> str:
    """What an outcome belongs to: the parameters, the published values, the errors of the predictions as shipped."""
    numbers = {name: [p.value, p.low, p.high, p.set_with] for name, p in parameters.items()}
    shipped = zip(values.artifact, values.key, values.published, plain(values.error), strict=True)
    points = [
        [artifact, key, published.value, None if error is None else round(error, 9)]
        for artifact, key, published, error in shipped
    ]
    return fingerprint({"parameters": numbers, "points": points})


def read(folder: Path) -> dict[str, Any] | None:
    """The outcome in a folder, else the project's own; None if there is none."""
    path = next((path for path in (folder / FILE, REFERENCE) if path.is_file()), None)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def left_out(document: Mapping[str, Any], values: DataFrame) -> Series:
    """The errors of published values with the artifact left out; missing where there is none."""
    known = document["artifacts"]
    errors = [
        known.get(artifact, {}).get("errors", {}).get(key, {}).get("left_out")
        for artifact, key in zip(values.artifact, values.key, strict=True)
    ]
    return Series(errors, index=values.index, dtype=float)


def refit(task: Fit, on_done: Callable[[str], None] = lambda label: None) -> dict[str, Any]:
    """Leave out each artifact in turn. A few minutes: hundreds of predictions of every published throughput."""
    artifacts, outcomes = {}, []
    for id in task.published.artifact.unique():
        artifacts[id], outcome = task.without(id)
        errors = plain(outcome.set_index("key")[["error", "left_out"]]).rename(columns={"error": "shipped"})
        artifacts[id]["errors"] = errors.to_dict("index")
        outcomes.append(outcome)
        on_done(id)
    return {
        "about": "Relative errors as shipped, and with the artifact left out of the fit: reproduce accuracy --refit",
        "cluster": task.cluster.name,
        "digest": digest(task.parameters, concat(outcomes)),
        "artifacts": artifacts,
    }
