"""What else results may be: simulated ones inside their margins, the paper's as they were read, measured ones' spread.

Each alternative moves one thing at a time to an end of what is known of it, all of a kind or a part against the rest.
`reproduce.experiment.judging` looks whether a verdict changes on the way there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from math import exp, log
from typing import TYPE_CHECKING, Any, TypeVar

from reproduce.experiment.made_of import COUNTED, RANGED, SPEED, made_of, names_of
from reproduce.experiment.margins import CLUSTER, Margins, for_judging
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.predictions import where
from reproduce.experiment.results import Alternative, Results
from results.records import Metric, PaperValue, PointResult

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster

# In a figure of up to this many series, every set of at most half of them is moved against the rest; with more series,
# whose sets would be too many, only one at a time.
MOST_SERIES = 5
PLOT = "plot"  # how a value was read that is not printed
SPREAD = 0.8  # of the samples of a measured value lie between its ends
R = TypeVar("R", PointResult, Metric)
Shifts = Mapping[str, Mapping[str, float]]  # by point and metric: how far it is moved, as a logarithm


def with_margins(
    results: Results, margins: Margins, cluster_of: Callable[[PointResult], "Cluster"], set_with: Sequence[str] = ()
) -> Results:
    """Simulated results with what else they may be; `cluster_of` is what a point is simulated on.

    `set_with` are the numbers of the cluster that were set with what the paper publishes of these points.
    """
    names = {name for point in results.points for name, metric in point.metrics.items() if metric.origin == "simulated"}
    unknown = frozenset(name for name in names if not _has_margin(name, margins))
    return replace(results, moved=partial(_simulated, margins, cluster_of), unknown=unknown, set_with=tuple(set_with))


def _has_margin(name: str, margins: Margins) -> bool:
    made = made_of(name)
    return made is not None and (made.kind == COUNTED or made.kind not in RANGED or name in margins.ranged)


def _simulated(
    margins: Margins, cluster_of: Callable[[PointResult], "Cluster"], results: Results
) -> Iterator[Alternative]:
    """What may be in place of simulated results.

    Of each kind of numbers all by the margin of a value, and some of the series, or a point, by that of a ratio; then
    all memory. A point on another cluster is moved by that one's margins.
    """

    @cache
    def known(cluster: str | None) -> Margins:
        return margins if cluster is None else for_judging(cluster)

    def sizes(points: Sequence[PointResult], names: set[str], of: str) -> Shifts:
        """How far each number of these points may be moved, whichever way."""
        found: dict[str, dict[str, float]] = {}
        for point in points:
            its = known(str(point.parameters[CLUSTER]) if CLUSTER in point.parameters else None)
            found[point.key] = {
                name: (made.sign if made.kind in SPEED else 1) * log(its.factor(name, of, point.parameters))
                for name in names & point.metrics.keys()
                if (made := made_of(name))
            }
        return found

    ways = [("throughput", names_of("throughput"), names_of("ratio")), ("ratio", names_of("ratio"), set())]
    # What is no throughput of the point itself may be off from the one that is.
    ways += [(name.replace("_", " "), {name}, set()) for name in sorted(names_of(*SPEED) - METRICS.keys())]
    ways += [(name.replace("_", " "), {name}, set()) for name in sorted(names_of(*RANGED) & margins.ranged.keys())]
    for words, names, along in ways:
        points = _with_any(results, names)
        alone = words == "ratio" or not names & (METRICS.keys() | names_of(*RANGED))
        moves = [(f"every {words}", points, names, "ratio" if alone else "value", "")] if points else []
        if not alone:
            moves += [
                (f"the {words} of {name}", group, names | along, "ratio", " against the rest")
                for name, group in _groups(_with_any(results, names | along))
            ]
        for what, group, moved_names, of, suffix in moves:
            shifts = sizes(group, moved_names, of)
            widest = max((abs(size) for by_name in shifts.values() for size in by_name.values()), default=0.0)
            for sign in (1, -1):
                move = cache(partial(_moved, results, shifts, sign))  # every claim looks at the same steps
                yield Alternative(what, exp(sign * widest), move, suffix, frozenset(moved_names), frozenset(shifts))
    if _with_any(results, names_of("memory")):
        for sign in (1, -1):
            move = cache(partial(_moved_memory, results, sign * log(margins.memory_factor), cluster_of))
            yield Alternative("memory", margins.memory_factor**sign, move)


def _with_any(results: Results, names: set[str]) -> list[PointResult]:
    """The points that have one of these metrics."""
    return [point for point in results.points if names & point.metrics.keys()]


def _groups(points: Sequence[PointResult]) -> Iterator[tuple[str, list[PointResult]]]:
    """What can be larger or smaller than the rest, with its name: up to half of the series, or a single point."""
    series = [name for name in dict.fromkeys(point.series for point in points) if name]
    most = len(series) // 2 if len(series) <= MOST_SERIES else 1
    for size in range(1, most + 1):
        for names in combinations(series, size):
            yield " and ".join(names), [point for point in points if point.series in names]
    for point in points if len(points) > 1 else ():
        yield where(point), [point]


def _moved(results: Results, shifts: Shifts, sign: int, share: float) -> Results:
    """The results with the numbers of some points moved. What is moved has no margins any more."""
    points = (
        _shifted(point, {name: sign * share * size for name, size in shifts[point.key].items()})
        if point.key in shifts
        else point
        for point in results.points
    )
    return Results(tuple(points), results.fidelity, results.scale)


def _shifted(point: PointResult, shifts: Mapping[str, float]) -> PointResult:
    """The point with numbers moved: what each is made of by a factor, whose logarithm is given."""
    shifted = {
        name: _with(metric, value=(metric.value + made.plus) * exp(shift) - made.plus, interval=None)
        for name, shift in shifts.items()
        if (metric := point.metrics[name]).value is not None and (made := made_of(name))
    }
    return _with(point, metrics={**point.metrics, **shifted})


def _with(record: R, **fields: Any) -> R:
    """A copy with other fields, unchecked: the checks would take most of the time of judging."""
    changed: R = object.__new__(type(record))
    changed.__dict__.update(record.__dict__, **fields)
    return changed


def _moved_memory(
    results: Results, shift: float, cluster_of: Callable[[PointResult], "Cluster"], share: float
) -> Results:
    """The results with all memory moved by a shift, a logarithm: some points do not fit any more, others do.

    What fits now is simulated, and at the end of the margin what is recomputed only as far as it must be. What the
    paper has a value for was run, so it fits.
    """
    points, of_memory = [], names_of("memory")
    for point in results.points:
        cluster = cluster_of(point)
        if share == 1.0 and point.parameters.get("recompute") == "auto":
            usable = cluster.usable_memory / exp(shift)
            point = _with(point, metrics={**point.metrics, **_simulated_again(point, cluster, usable)})
        point = _shifted(point, dict.fromkeys(of_memory & point.metrics.keys(), share * shift))
        peak = point.metrics.get("peak_memory")
        if peak is not None and peak.value is not None:
            fits = peak.value <= cluster.usable_memory
            if point.status == "oom" and fits:
                others = _simulated_again(point, cluster, cluster.usable_memory)
                point = _with(point, status="ok", reason=None, metrics={**others, **point.metrics})
            elif point.status == "ok" and not fits and not point.paper:
                point = _with(point, status="oom", reason="does not fit", metrics={"peak_memory": peak})
        points.append(point)
    return Results(tuple(points), results.fidelity, results.scale)


_SIMULATED: dict[tuple[str, int, float], dict[str, Metric]] = {}  # by point, cluster and memory: simulated once


def _simulated_again(point: PointResult, cluster: "Cluster", usable: float) -> dict[str, Metric]:
    """The metrics of a point whose GPUs have so many usable bytes, whether or not it fits."""
    from ptdp_core.config import TrainingConfig
    from ptdp_core.simulator import simulate

    place = (point.key + point.fingerprint, id(cluster), usable)
    if place not in _SIMULATED:
        if usable != cluster.usable_memory:
            cluster = replace(cluster, memory_bytes=usable + cluster.memory_reserved)
        estimate = simulate(TrainingConfig.from_plain(point.parameters), cluster)
        values = {metric: metric.simulated(estimate, cluster) for metric in METRICS.values()}
        _SIMULATED[place] = {m.name: Metric(v, m.unit, "simulated") for m, v in values.items() if v is not None}
    return _SIMULATED[place]


def readings(results: Results) -> tuple[Alternative, ...]:
    """The paper's values in place of which others may have been plotted: each was read to half a step either way."""

    def ends(point: PointResult) -> dict[str, float]:
        return {name: value.quantum / 2 for name, value in point.paper.items() if value.quantum and value.how == PLOT}

    points = [point for point in results.points if ends(point)]
    if not points:
        return ()
    groups = [("every value", points), *((f"the value of {name}", group) for name, group in _groups(points))]
    return tuple(
        Replotted(
            *(what, 2.0**sign, partial(_read_otherwise, results, {p.key for p in group}, sign)),
            keys=frozenset(p.key for p in group),
        )
        for what, group in groups
        for sign in (1, -1)
    )


class Replotted(Alternative):
    """Values of the paper moved by half a unit of what they are read to, the rest the other way."""

    def described(self, share: float = 1.0) -> str:
        """'the value of B=2 is 0.31 of a step of the plot lower, and the rest higher'."""
        way, other = ("higher", "lower") if self.factor > 1 else ("lower", "higher")
        rest = "" if self.what.startswith("every") else f", and the rest {other}"
        return f"{self.what} is {share / 2:.2g} of a step of the plot {way}{rest}"

    @property
    def sure_to(self) -> str:
        """To what the values are known."""
        return "half a step"


def _read_otherwise(results: Results, chosen: set[str], sign: int, share: float) -> Results:
    """The results with the paper's values of the points chosen moved one way, the others' the other way."""

    def moved(value: PaperValue, up: int) -> PaperValue:
        half = (value.quantum or 0.0) / 2 if value.how == PLOT else 0.0
        return replace(value, value=value.value + up * share * half)

    points = (
        _with(point, paper={n: moved(v, sign if point.key in chosen else -sign) for n, v in point.paper.items()})
        for point in results.points
    )
    return Results(tuple(points), results.fidelity, results.scale)


def spread(results: Results) -> Iterator[Alternative]:
    """Measured results at the ends of what their samples span: the middle 80% of them."""
    points = [point for point in results.points if any(metric.samples for metric in point.metrics.values())]
    groups = [("every measurement", points), *((f"the measurement of {name}", g) for name, g in _groups(points))]
    for what, group in groups if points else ():
        for sign in (1, -1):
            shifts = {point.key: {n: _span(m, sign) for n, m in point.metrics.items() if m.samples} for point in group}
            widest = max(abs(size) for by_name in shifts.values() for size in by_name.values())
            names = frozenset(name for by_name in shifts.values() for name in by_name)
            move = partial(_measured_otherwise, results, shifts)
            yield Alternative(what, exp(sign * widest), move, "", names, frozenset(shifts))


def _span(metric: Metric, sign: int) -> float:
    """How far the 90% or the 10% of the samples lie from the value, as a logarithm; 0 for what is not positive."""
    samples = sorted(metric.samples or ())
    cut = round((1 - SPREAD) / 2 * (len(samples) - 1))
    end = samples[-1 - cut] if sign > 0 else samples[cut]
    return log(end / metric.value) if metric.value and metric.value > 0 < end else 0.0


def _measured_otherwise(results: Results, shifts: Shifts, share: float) -> Results:
    def moved(point: PointResult) -> PointResult:
        factors = {name: exp(share * shift) for name, shift in shifts[point.key].items()}
        values = {name: (point.metrics[name].value or 0.0) * factor for name, factor in factors.items()}
        return _with(
            point, metrics={**point.metrics, **{n: replace(point.metrics[n], value=v) for n, v in values.items()}}
        )

    points = (moved(point) if point.key in shifts else point for point in results.points)
    return Results(tuple(points), results.fidelity, results.scale)
