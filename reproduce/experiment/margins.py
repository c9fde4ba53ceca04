"""How sure the simulator is: the interval of every simulated throughput, iteration time and memory.

A margin is a factor f: the real value lies between value/f and value*f with the margin's nominal coverage. The margins
of a cluster are made from errors out of sample (`reproduce.annex.accuracy.intervals`) and read from a file here.
A claim is judged on the simulated values and on `Results.alternatives`, these moved to the ends of their margins:
`reproduce.experiment.judging.judge`. The model is explained in docs/margins.md.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from math import exp, log
from typing import TYPE_CHECKING, Any

from reproduce.experiment.metrics import METRICS, answers
from reproduce.experiment.predictions import where
from reproduce.experiment.results import Alternative, Results
from results import ROOT
from results.records import Interval, PointResult

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster, Estimate

FILE = ROOT / "results" / "reference" / "accuracy" / "margins.json"

CLUSTER = "cluster"  # the parameter of a point on another cluster than the rest
# In a figure of up to this many series, every set of at most half of them is moved against the rest; with more series,
# whose sets would be too many, only one at a time.
MOST_SERIES = 5


@dataclass(frozen=True)
class Margin:
    """A factor f: a real value lies between value/f and value*f with probability `coverage`, nominally.

    It is made from `n` errors. `tested` is the share of values inside when each artifact's margin is made without its
    own errors; None where one artifact or study gave them all. `source` says which values these are.
    """

    factor: float
    coverage: float
    n: int
    tested: float | None
    source: str

    def interval(self, value: float) -> Interval:
        """The interval of a simulated value."""
        return Interval(value / self.factor, value * self.factor, self.coverage)

    def __str__(self) -> str:
        """'-6.7% to +7.2%'; for a wide one 'a factor of 2.6'."""
        if self.factor > 1.5:
            return f"a factor of {self.factor:.1f}"
        return f"{1 / self.factor - 1:+.1%} to {self.factor - 1:+.1%}"


@dataclass(frozen=True)
class Margins:
    """The margins of one simulated cluster, by what they apply to.

    - `throughput`: a throughput, or the time of an iteration
    - `ratio`: the ratio of two throughputs in one figure, which are neighbours in a series or two series at one x
    - `zero3`: a throughput with ZeRO-3, or a ratio with one
    - `memory`: the peak memory of a GPU; None where too few values are known
    - `context`: a throughput or a ratio with context parallelism; None where no run with it tests it
    """

    throughput: Margin
    ratio: Margin
    zero3: Margin
    memory: Margin | None
    context: Margin | None = None

    def of(self, metric: str, parameters: Mapping[str, Any]) -> Margin | None:
        """The margin of a metric of a point; None if it has none.

        A point on another cluster has that one's. With experts there is none.
        """
        if CLUSTER in parameters:
            others = read(str(parameters[CLUSTER]))
            rest = {name: value for name, value in parameters.items() if name != CLUSTER}
            return others.of(metric, rest) if others else None
        kind = METRICS[metric].margin if metric in METRICS else None
        if kind is None or parameters.get("experts"):
            return None
        if parameters.get("c", 1) > 1:
            return None if kind == "memory" else self.context
        margin: Margin | None = getattr(self, "zero3" if kind == "throughput" and _is_zero3(parameters) else kind)
        return margin

    def applied(self, point: PointResult) -> PointResult:
        """The point with intervals at its simulated metrics."""
        metrics = {}
        for name, metric in point.metrics.items():
            margin = self.of(name, point.parameters) if metric.origin == "simulated" else None
            if margin is not None and metric.value is not None:
                metric = replace(metric, interval=margin.interval(metric.value))
            metrics[name] = metric
        return replace(point, metrics=metrics)


@cache
def read(cluster: str) -> Margins | None:
    """The margins of a simulated cluster; None for one whose predictions were not scored."""
    if not FILE.is_file():
        return None
    document = json.loads(FILE.read_text(encoding="utf-8"))
    known = document["margins"] if document["cluster"] == cluster else document["others"].get(cluster)
    return known and Margins(**{name: margin and Margin(**margin) for name, margin in known.items()})


def scored() -> tuple[str, ...]:
    """The clusters that have margins."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    return (document["cluster"], *document["others"])


def signs(*kinds: str) -> dict[str, int]:
    """The metrics whose margins are of these kinds, and the signs with which they follow what a margin is of."""
    return {name: metric.sign for name, metric in METRICS.items() if metric.margin in kinds}


def of_estimate(estimate: "Estimate", cluster: "Cluster") -> dict[str, dict[str, Any]]:
    """The intervals of a simulated iteration as plain data, by metric; none on a cluster without margins."""
    known, parameters = read(estimate.cluster), estimate.config.to_plain()
    if known is None:
        return {}
    intervals = {}
    for metric in answers():
        margin, value = known.of(metric.name, parameters), metric.simulated(estimate, cluster)
        if margin is not None and value is not None:
            intervals[metric.name] = margin.interval(value).to_json()
    return intervals


def lines(margins: Margins | None) -> list[str]:
    """What a reader has to know of the intervals of simulated numbers."""
    if margins is None:
        return ["no intervals: the simulator's errors on this cluster are not known"]
    throughput, memory = margins.throughput, margins.memory
    known = f"; memory to {memory} ({memory.n} values of other clusters)" if memory else ""
    without = "bubble, phases and traffic" if memory else "memory, bubble, phases and traffic"
    return [
        f"a simulated throughput or time is sure to {throughput}, a ratio of two to {margins.ratio} "
        f"({throughput.coverage:.0%} nominal; {throughput.tested:.0%} of {throughput.n} published values left out were "
        f"inside){known}; {without} have no interval: no data"
    ]


def with_margins(results: Results, margins: Margins, usable_memory: Callable[[PointResult], float]) -> Results:
    """Simulated results with intervals, and with what else they may be; `usable_memory` is that of a point's GPUs."""
    points = tuple(map(margins.applied, results.points))
    return replace(results, points=points, moved=partial(_alternatives, margins, usable_memory))


def _alternatives(
    margins: Margins, usable_memory: Callable[[PointResult], float], results: Results
) -> Iterator[Alternative]:
    """What may be in place of simulated results: one thing at a time moved to either end of its margin.

    All throughputs by the margin of a throughput; some of the series, or a point, by that of a ratio; all memory.
    A point on another cluster is moved by that one's margins, or by the widest of all if its predictions were not
    scored.
    """
    of_speed = signs("throughput", "ratio")
    points = [point for point in results.points if of_speed.keys() & point.metrics.keys()]
    moves = [("every throughput", points, "throughput", "")]
    moves += [(f"the throughput of {name}", group, "ratio", " against the rest") for name, group in _groups(points)]
    for name, group, kind, suffix in moves if points else ():
        sizes = {p.key: log(_margin_of(p.parameters, kind, margins).factor) for p in group}
        for sign in (1, -1):
            shifts = {key: sign * size for key, size in sizes.items()}
            yield Alternative(name, exp(sign * max(sizes.values())), partial(_moved, results, shifts), suffix)
    if margins.memory and any(signs("memory").keys() & point.metrics.keys() for point in results.points):
        for sign in (1, -1):
            move = partial(_moved_memory, results, sign * log(margins.memory.factor), usable_memory)
            yield Alternative("memory", margins.memory.factor**sign, move)


def _margin_of(parameters: Mapping[str, Any], kind: str, otherwise: Margins) -> Margin:
    """The margin of a throughput or a ratio on a point's cluster, `otherwise`'s where it names none."""
    kind = "zero3" if _is_zero3(parameters) else kind
    known = [read(str(parameters[CLUSTER]))] if CLUSTER in parameters else [otherwise]
    margins: list[Margin] = [getattr(each, kind) for each in known if each] or [
        getattr(each, kind) for each in map(read, scored()) if each
    ]
    return max(margins, key=lambda margin: margin.factor)


def _is_zero3(parameters: Mapping[str, Any]) -> bool:
    return parameters.get("data_parallel") == "zero3"


def _groups(points: Sequence[PointResult]) -> Iterator[tuple[str, list[PointResult]]]:
    """What can be faster or slower than the rest, with its name: up to half of the series, or a single point."""
    series = [name for name in dict.fromkeys(point.series for point in points) if name]
    most = len(series) // 2 if len(series) <= MOST_SERIES else 1
    for size in range(1, most + 1):
        for names in combinations(series, size):
            yield " and ".join(names), [point for point in points if point.series in names]
    for point in points if len(points) > 1 else ():
        yield where(point), [point]


def _moved(results: Results, shifts: Mapping[str, float], share: float) -> Results:
    """The results with the throughputs of some points moved by a shift, a logarithm, and their times the other way.

    What is moved has no margins any more.
    """
    of_speed = signs("throughput", "ratio")
    points = (
        _shifted(point, of_speed, share * shifts[point.key]) if point.key in shifts else point
        for point in results.points
    )
    return Results(tuple(points), results.fidelity, results.scale)


def _moved_memory(
    results: Results, shift: float, usable_memory: Callable[[PointResult], float], share: float
) -> Results:
    """The results with all memory moved by a shift, a logarithm: some points do not fit any more, others do.

    What the paper has a value for was run, so it fits.
    """
    points = []
    of_memory = signs("memory")
    for point in results.points:
        point = _shifted(point, of_memory, share * shift)
        peak = point.metrics.get("peak_memory")
        if peak is not None and peak.value is not None:
            fits = peak.value <= usable_memory(point)
            if point.status == "oom" and fits:
                point = replace(point, status="ok", reason=None)
            elif point.status == "ok" and not fits and not point.paper:
                point = replace(point, status="oom", reason="does not fit", metrics={"peak_memory": peak})
        points.append(point)
    return Results(tuple(points), results.fidelity, results.scale)


def _shifted(point: PointResult, signs: Mapping[str, int], shift: float) -> PointResult:
    """The point with the metrics of these names moved by a shift, a logarithm, in the direction of their signs."""
    shifted = {
        name: replace(metric, value=metric.value * exp(signs[name] * shift), interval=None)
        for name, metric in point.metrics.items()
        if name in signs and metric.value is not None
    }
    return replace(point, metrics={**point.metrics, **shifted})
