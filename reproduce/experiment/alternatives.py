"""What else results may be: simulated ones inside their margins, measured ones in their spread, the paper's as read.

Each alternative moves one thing at a time to an end of what is known of it, all of a kind or a part against the rest.
`reproduce.experiment.judging` looks whether a verdict changes on the way there.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import exp, log
from typing import TYPE_CHECKING

from reproduce.experiment.margins import CLUSTER, Margins, for_judging
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.quantities import COUNTED, RANGED, SPEED, UNKNOWN, made_of, names_of
from reproduce.experiment.results import Alternative, Read, Results, where, with_fields
from results.records import Metric, PaperValue, PointResult

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster

# In a figure of up to this many series, every set of at most half of them is moved against the rest; with more series,
# whose sets would be too many, only one at a time.
MOST_SERIES = 5
AGAINST = " against the rest"
PLOT = "plot"  # how a value was read that is not printed
SPREAD = 0.8  # of the samples of a measured value lie between its ends
Shifts = Mapping[str, Mapping[str, float]]  # by point and metric: how far it is moved, as a logarithm


def with_margins(
    results: Results, margins: Margins, cluster_of: Callable[[PointResult], "Cluster"], set_with: Sequence[str] = ()
) -> Results:
    """Simulated results with what else they may be; `cluster_of` is what a point is simulated on.

    `set_with` are the numbers of the cluster that were set with what the paper publishes of these points.
    """
    kinds = {name: made.kind if (made := made_of(name)) else UNKNOWN for name in _simulated_names(results)}
    unknown = frozenset(n for n, k in kinds.items() if k == UNKNOWN or (k in RANGED and n not in margins.ranged))
    return replace(results, moved=partial(_simulated, margins, cluster_of), unknown=unknown, set_with=tuple(set_with))


def without_margins(results: Results) -> Results:
    """Simulated results of which nobody knows how far off they may be: all but what is counted."""
    return replace(results, unknown=frozenset(_simulated_names(results) - names_of(COUNTED)))


def _simulated_names(results: Results) -> set[str]:
    return {name for point in results.points for name, metric in point.metrics.items() if metric.origin == "simulated"}


def _simulated(
    margins: Margins, cluster_of: Callable[[PointResult], "Cluster"], results: Results, read: Read
) -> Iterator[Alternative]:
    """What may be in place of simulated results, as far as it moves what was read.

    Of each kind of numbers all by the margin of a value, and some of the series, or a point, by that of a ratio; then
    memory. A point on another cluster is moved by that one's margins.
    """

    def sizes(points: Sequence[PointResult], names: AbstractSet[str], of: str) -> Shifts:
        """How far each number of these points may be moved, whichever way."""
        found: dict[str, dict[str, float]] = {}
        for point in points:
            its = for_judging(str(point.parameters[CLUSTER])) if CLUSTER in point.parameters else margins
            found[point.key] = {
                name: (made.sign if made.kind in SPEED else 1) * log(its.factor(name, of, point.parameters))
                for name in names & point.metrics.keys()
                if (made := made_of(name))
            }
        return found

    none: frozenset[str] = frozenset()
    ways = [("throughput", names_of("throughput"), names_of("ratio")), ("ratio", names_of("ratio"), none)]
    # What is no throughput of the point itself may be off from the one that is.
    others = [*sorted(names_of(*SPEED) - METRICS.keys()), *sorted(names_of(*RANGED) & margins.ranged.keys())]
    ways += [(name.replace("_", " "), frozenset({name}), none) for name in others]
    for words, names, along in ways:
        alone = words == "ratio" or not names & (METRICS.keys() | names_of(*RANGED))
        moves = [(f"every {words}", _with_any(results, names), names, "ratio" if alone else "value", "")]
        if not alone and (names | along) & read.metrics:
            moves += [
                (f"the {words} of {name}", group, names | along, "ratio", AGAINST)
                for name, group in groups_of(_with_any(results, names | along), read)
            ]
        for what, group, moved_names, of, suffix in moves:
            if not moved_names & read.metrics or not any_read(group, read):
                continue
            shifts = sizes(group, moved_names, of)
            widest = max((abs(size) for by_name in shifts.values() for size in by_name.values()), default=0.0)
            for sign in (1, -1):
                move = partial(_moved, results, shifts, sign)
                yield Alternative(what, exp(sign * widest), move, suffix, frozenset(shifts))
    for what, group, moved_names, suffix in _memories(results, read):
        keys = frozenset(point.key for point in group)
        for sign in (1, -1):
            moved = dict.fromkeys(moved_names, sign * log(margins.memory_factor))
            move = partial(_moved_memory, results, moved, cluster_of, keys)
            yield Alternative(what, margins.memory_factor**sign, move, suffix, keys)


def _memories(results: Results, read: Read) -> Iterator[tuple[str, list[PointResult], frozenset[str], str]]:
    """Which memories may be larger or smaller: all, since it decides what fits and what is recomputed, and some.

    Nothing is known of a ratio of two memories by itself, of two points or of two numbers of one: it is as sure as one.
    """
    names = names_of("memory")
    points = _with_any(results, names)
    if points:
        yield "memory", points, names, ""
    numbers = sorted(names & read.metrics)
    may_differ = points if numbers else [point for point in points if point.parameters.get("recompute") == "auto"]
    yield from ((f"the memory of {name}", group, names, AGAINST) for name, group in groups_of(may_differ, read))
    for name in numbers if len(numbers) > 1 else ():
        yield f"the {name.replace('_', ' ')}", _with_any(results, {name}), frozenset({name}), AGAINST


def _with_any(results: Results, names: AbstractSet[str]) -> list[PointResult]:
    """The points that have one of these metrics."""
    return [point for point in results.points if names & point.metrics.keys()]


def groups_of(points: Sequence[PointResult], read: Read) -> Iterator[tuple[str, list[PointResult]]]:
    """What can be larger or smaller than the rest, with its name: up to half of the series, or a single point.

    Where no point of it was read it is left out.
    """
    series = [name for name in dict.fromkeys(point.series for point in points) if name]
    most = len(series) // 2 if len(series) <= MOST_SERIES else 1
    for size in range(1, most + 1):
        for names in combinations(series, size):
            if any_read(group := [point for point in points if point.series in names], read):
                yield " and ".join(names), group
    for point in points if len(points) > 1 else ():
        if any_read([point], read):
            yield where(point), [point]


def any_read(points: Sequence[PointResult], read: Read) -> bool:
    """Whether any of the points was read."""
    return not read.points.isdisjoint(point.key for point in points)


def _moved(results: Results, shifts: Shifts, sign: int, share: float) -> Results:
    """The results with the numbers of some points moved. What is moved has no margins any more."""
    moves = sign * share
    return results.with_points(
        with_fields(point, metrics=_Moved(point.metrics, shifts[point.key], moves)) if point.key in shifts else point
        for point in results.points
    )


class _Moved(Mapping[str, Metric]):
    """Metrics of a point, of which each is moved when it is read: most never are.

    What a number is made of is moved by a factor, whose logarithm is `share` of its shift.
    """

    __slots__ = ("metrics", "share", "shifts")

    def __init__(self, metrics: Mapping[str, Metric], shifts: Mapping[str, float], share: float) -> None:
        self.metrics, self.shifts, self.share = metrics, shifts, share

    def __getitem__(self, name: str) -> Metric:
        metric, shift, made = self.metrics[name], self.shifts.get(name), made_of(name)
        if shift is None or made is None or metric.value is None:
            return metric
        return with_fields(
            metric, value=(metric.value + made.plus) * exp(self.share * shift) - made.plus, interval=None
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


def _moved_memory(
    results: Results,
    shifts: Mapping[str, float],
    cluster_of: Callable[[PointResult], "Cluster"],
    keys: Collection[str],
    share: float,
) -> Results:
    """The results with memories of some points moved by shifts, logarithms: some do not fit any more, others do.

    What fits now is simulated, and at the end of the margin what is recomputed only as far as it must be. What the
    paper has a value for was run, so it fits.
    """
    points = []
    for point in results.points:
        if point.key not in keys:
            points.append(point)
            continue
        cluster = cluster_of(point)
        if share == 1.0 and point.parameters.get("recompute") == "auto":
            usable = cluster.usable_memory / exp(shifts.get("peak_memory", 0.0))
            point = with_fields(point, metrics={**point.metrics, **_simulated_again(point, cluster, usable)})
        point = with_fields(point, metrics=_Moved(point.metrics, shifts, share))
        peak = point.metrics.get("peak_memory")
        if peak is not None and peak.value is not None:
            fits = peak.value <= cluster.usable_memory
            if point.status == "oom" and fits:
                others = _simulated_again(point, cluster, cluster.usable_memory)
                point = with_fields(point, status="ok", reason=None, metrics={**others, **point.metrics})
            elif point.status == "ok" and not fits and not point.paper:
                point = with_fields(point, status="oom", reason="does not fit", metrics={"peak_memory": peak})
        points.append(point)
    return results.with_points(points)


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


def readings(results: Results, read: Read, printed: bool) -> Iterator[Alternative]:
    """The paper's values in place of which others may have been plotted: each was read to half a step either way.

    With `printed` those of its tables, too, which were rounded so.
    """

    def uncertain(value: PaperValue) -> bool:
        return bool(value.quantum) and (printed or value.how == PLOT)

    points = [point for point in results.points if any(map(uncertain, point.paper.values()))]
    groups = [("every value", points), *((f"the value of {name}", group) for name, group in groups_of(points, read))]
    for what, group in groups if any_read(points, read) else ():
        keys = frozenset(point.key for point in group)
        for sign in (1, -1):
            yield Replotted(what, 2.0**sign, partial(_read_otherwise, results, keys, sign, uncertain), keys=keys)


class Replotted(Alternative):
    """Values of the paper moved by half a unit of what they are read or rounded to, the rest the other way."""

    def described(self, share: float = 1.0) -> str:
        """'the value of B=2 is 0.31 of a step lower, and the rest higher'."""
        way, other = ("higher", "lower") if self.factor > 1 else ("lower", "higher")
        rest = "" if self.what.startswith("every") else f", and the rest {other}"
        return f"{self.what} is {share / 2:.2g} of a step {way}{rest}"

    @property
    def sure_to(self) -> str:
        """To what the values are known."""
        return "half a step"


def _read_otherwise(
    results: Results, chosen: Collection[str], sign: int, uncertain: Callable[[PaperValue], bool], share: float
) -> Results:
    """The results with the paper's values of the points chosen moved one way, the others' the other way."""

    def moved(value: PaperValue, up: int) -> PaperValue:
        half = (value.quantum or 0.0) / 2 if uncertain(value) else 0.0
        return with_fields(value, value=value.value + up * share * half)

    points = (
        with_fields(point, paper={n: moved(v, sign if point.key in chosen else -sign) for n, v in point.paper.items()})
        for point in results.points
    )
    return results.with_points(points)


def spread(results: Results, read: Read) -> Iterator[Alternative]:
    """Measured results at the ends of what their samples span, as far as they were read: the middle 80% of them."""

    def measured(point: PointResult) -> dict[str, Metric]:
        return {name: metric for name, metric in point.metrics.items() if metric.samples and name in read.metrics}

    points = [point for point in results.points if measured(point)]
    groups = [
        ("every measurement", points),
        *((f"the measurement of {name}", g) for name, g in groups_of(points, read)),
    ]
    for what, group in groups if any_read(points, read) else ():
        for sign in (1, -1):
            shifts = {point.key: {n: _span(m, sign) for n, m in measured(point).items()} for point in group}
            widest = max(abs(size) for by_name in shifts.values() for size in by_name.values())
            move = partial(_measured_otherwise, results, shifts)
            yield Alternative(what, exp(sign * widest), move, "", frozenset(shifts))


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
        return with_fields(
            point, metrics={**point.metrics, **{n: with_fields(point.metrics[n], value=v) for n, v in values.items()}}
        )

    points = (moved(point) if point.key in shifts else point for point in results.points)
    return results.with_points(points)
