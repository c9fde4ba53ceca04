"""How sure the simulator is: the interval of every simulated throughput, iteration time and memory.

A margin is a factor f: the real value lies between value/f and value*f with the margin's nominal coverage. The margins
of a cluster are made from errors out of sample (`reproduce.annex.accuracy.intervals`), or where nothing is published
from the ranges of the cluster's own numbers (`annex.accuracy.ranges`), and read from a file here. What they mean for a
claim is `alternatives.py`'s. The model is explained in docs/margins.md.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from reproduce.experiment.metrics import METRICS
from reproduce.experiment.quantities import RANGED, made_of
from results import ROOT
from results.records import Interval, PointResult

if TYPE_CHECKING:
    from ptdp_core.simulator import Cluster, Estimate

FILE = ROOT / "results" / "reference" / "accuracy" / "margins.json"

CLUSTER = "cluster"  # the parameter of a point on another cluster than the rest


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

    def interval(self, value: float, plus: float = 0.0) -> Interval:
        """The interval of a simulated value, which with `plus` is what the margin is of."""
        return Interval((value + plus) / self.factor - plus, (value + plus) * self.factor - plus, self.coverage)

    def __str__(self) -> str:
        """'-6.7% to +7.2%'; for a wide one 'a factor of 2.6'."""
        if self.factor > 1.5:
            return f"a factor of {self.factor:.1f}"
        return f"{1 / self.factor - 1:+.1%} to {self.factor - 1:+.1%}"


@dataclass(frozen=True)
class Spread:
    """Where measured times lie over simulated ones, between `low` and `high` times them; else as a `Margin`."""

    low: float
    high: float
    coverage: float
    n: int
    tested: float | None
    source: str

    def interval(self, value: float, sign: int = -1) -> Interval:
        """The interval of a simulated time, or with sign 1 of a rate."""
        ends = (self.low, self.high) if sign < 0 else (1 / self.high, 1 / self.low)
        return Interval(value * ends[0], value * ends[1], self.coverage)


@dataclass(frozen=True)
class Margins:
    """The margins of one simulated cluster, by what they apply to.

    - `throughput`: a throughput, or the time of an iteration
    - `ratio`: the ratio of two throughputs in one figure, which are neighbours in a series or two series at one x
    - `zero3`: a throughput with ZeRO-3, or a ratio with one
    - `memory`: the peak memory of a GPU; None where too few values are known
    - `context`: a throughput or a ratio with context parallelism; None where no run with it tests it
    - `ranged`: for each number that nothing is published of the factor of a value and that of a ratio, from the ranges
      of the cluster's own numbers; these make no interval, and decide only whether a verdict is near
    - `programs`: whose runs were scored, with which switches, and how far off runs are whose program is not known
    """

    throughput: Margin
    ratio: Margin
    zero3: Margin
    memory: Margin | None
    context: Margin | None = None
    ranged: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    programs: Mapping[str, Any] = field(default_factory=dict)

    def of(self, metric: str, parameters: Mapping[str, Any]) -> Margin | None:
        """The margin of a metric of a point; None if it has none.

        A point on another cluster has that one's. With experts there is none.
        """
        if CLUSTER in parameters:
            others = read(str(parameters[CLUSTER]))
            rest = {name: value for name, value in parameters.items() if name != CLUSTER}
            return others.of(metric, rest) if others else None
        made = made_of(metric)
        kind = made.kind if made else None
        if kind not in ("throughput", "ratio", "memory") or parameters.get("experts"):
            return None
        if parameters.get("c", 1) > 1:
            return None if kind == "memory" else self.context
        margin: Margin | None = getattr(self, "zero3" if kind == "throughput" and _is_zero3(parameters) else kind)
        return margin

    def has_scored(self, cluster: "Cluster") -> bool:
        """Whether the program of a cluster is its file's, or has the switches of one whose runs were scored."""
        from ptdp_core.simulator import load_cluster

        on = sorted(name for name, value in vars(cluster.software).items() if value)
        return on in self.programs.get("switches", ()) or cluster.software == load_cluster(cluster.name).software

    def applied(self, point: PointResult) -> PointResult:
        """The point with intervals at its simulated metrics."""
        metrics = {}
        for name, metric in point.metrics.items():
            margin = self.of(name, point.parameters) if metric.origin == "simulated" else None
            if margin is not None and metric.value is not None:
                plus = made.plus if (made := made_of(name)) else 0.0
                metric = replace(metric, interval=margin.interval(metric.value, plus))
            metrics[name] = metric
        return replace(point, metrics=metrics)

    def factor(self, metric: str, of: str, parameters: Mapping[str, Any]) -> float:
        """The factor of a metric of a point where claims are judged: of a 'value', or of a 'ratio' of two."""
        kind = known.kind if (known := made_of(metric)) else None
        if _is_zero3(parameters) and kind in ("throughput", "ratio", "communication"):
            return self.zero3.factor
        if parameters.get("experts") and kind in ("throughput", "ratio"):
            return max(self.throughput.factor, _with_experts())
        if kind in RANGED:
            return self.ranged[metric][of] if metric in self.ranged else 1.0
        return self.ratio.factor if of == "ratio" else self.throughput.factor

    @property
    def memory_factor(self) -> float:
        """That of a memory."""
        return self.memory.factor if self.memory else 1.0


@cache
def read(cluster: str) -> Margins | None:
    """The margins of a simulated cluster; None for one whose predictions were not scored."""
    if not FILE.is_file():
        return None
    document = json.loads(FILE.read_text(encoding="utf-8"))
    own = document["cluster"] == cluster
    known = document["margins"] if own else document["others"].get(cluster)
    if known is None:
        return None
    ranged = document["ranged"]["factors"] if own else {}
    margins = {name: margin and Margin(**margin) for name, margin in known.items()}
    return Margins(**margins, ranged=ranged, programs=document["programs"][cluster])


@cache
def _classes() -> dict[str, Any]:
    """What the open rows say, by class; nothing where they were never scored."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")).get("classes", {}) if FILE.is_file() else {}
    return found


def _with_experts() -> float:
    """How far off times of runs with experts are, simulated as their cluster's program; 1 where no run was scored."""
    known = _classes().get("with experts", {}).get("unnamed")
    return max(known["high"], 1 / known["low"]) if known else 1.0


def of_class(cluster: str, parameters: Mapping[str, Any], program: str | None) -> Spread | None:
    """Where times of runs like a point's lie: of its program, or of any if it is not named.

    A program whose runs were not scored has the widest of those that were, '' stands for switches of one's own. None on
    a cluster without open rows.
    """
    classes = _classes()
    if cluster not in classes.get("clusters", ()):
        return None
    known = classes["with experts" if parameters.get("experts") else "dense"]
    if program is None:
        return Spread(**known["unnamed"])
    return Spread(**known["programs"].get(program.partition("@")[0], known["other"]))


def memory_is_close(estimate: "Estimate", cluster: "Cluster") -> bool:
    """Whether the interval of an estimate's memory has room for both: fitting, and not."""
    factor = for_judging(estimate.cluster).memory_factor
    return cluster.usable_memory / factor < estimate.peak_memory < cluster.usable_memory * factor


def doubt_of_memory(estimate: "Estimate", cluster: "Cluster") -> str:
    """That it is too close to say whether an estimate's memory suffices; '' if it is not."""
    if not memory_is_close(estimate, cluster):
        return ""
    factor, other = for_judging(estimate.cluster).memory_factor, "more" if estimate.fits else "less"
    return f"too close to say: memory may be {factor:.2f} times {other}"


@cache
def for_judging(cluster: str) -> Margins:
    """The margins that claims are judged by on a cluster, whether or not its own predictions were scored.

    They are its own, else those of the nearest cluster in its file's line of bases that has any, else the widest of
    all. What these lack is the first paper's cluster's.
    """
    from ptdp_core.simulator.cluster import cluster_files

    try:
        line = [path.stem for path in cluster_files(cluster)]
    except (ValueError, OSError):
        line = [cluster]
    first, *others = (known for name in scored() if (known := read(name)))
    nearest = next((known for name in line if (known := read(name))), None)
    known = nearest or max((first, *others), key=lambda margins: margins.throughput.factor)
    return replace(known, memory=known.memory or first.memory, ranged=known.ranged or first.ranged)


def scored() -> tuple[str, ...]:
    """The clusters that have margins."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    return (document["cluster"], *document["others"])


def signs(*kinds: str) -> dict[str, int]:
    """The metrics whose margins are of these kinds, and the signs with which they follow what a margin is of."""
    return {name: metric.sign for name, metric in METRICS.items() if metric.margin in kinds}


def of_values(
    values: Mapping[str, float | None], estimate: "Estimate", cluster: "Cluster"
) -> dict[str, dict[str, Any]]:
    """The intervals of the metrics of a simulated iteration as plain data, by metric.

    There are none on a cluster without runs that were scored, nor on the paper's for a program that is not its own.
    """
    known = intervals_of(estimate, cluster)
    found = {name: known(name, value) for name, value in values.items() if value is not None}
    return {name: interval.to_json() for name, interval in found.items() if interval}


def intervals_of(estimate: "Estimate", cluster: "Cluster") -> Callable[[str, float], Interval | None]:
    """What gives the interval of a metric's value of this estimate, None where it has none (`of_values`)."""
    known, parameters = read(estimate.cluster), {**vars(estimate.config.model), **vars(estimate.config.parallel)}
    spread = of_class(estimate.cluster, parameters, program_named(cluster))
    scored = known is not None and known.has_scored(cluster)

    def interval(metric: str, value: float) -> Interval | None:
        made = made_of(metric)
        if spread is not None:
            return spread.interval(value, METRICS[metric].sign) if made and made.kind == "throughput" else None
        margin = known.of(metric, parameters) if known and scored else None
        return margin.interval(value) if margin else None

    return interval


def program_named(cluster: "Cluster") -> str | None:
    """The program that was asked for, '' for switches of one's own; None where it is the cluster file's."""
    return cluster.program if cluster.named or not cluster.program else None


def program_line(cluster: str, program: str | None, kinds: Iterable[bool]) -> str | None:
    """Which program a cluster's points are simulated as, and where times of its runs lie; None without open rows.

    `kinds` says of the models that are asked about whether they have experts: False, True or both.
    """
    from ptdp_core.simulator import load_cluster
    from ptdp_core.simulator.programs import load_program

    said = []
    for experts in sorted(set(kinds)):
        if spread := of_class(cluster, {"experts": experts}, program):
            runs = f"{spread.n} open {'runs with experts' if experts else 'dense runs'}"
            others = f" (with each {'model' if experts else 'program'} left out {spread.tested:.0%})"
            times = f"{_times(spread.low)} to {_times(spread.high)} time than simulated so"
            said.append(f"{spread.coverage:.0%} of {runs} took {times}{'' if program else others}")
    if not said:
        return None
    name = program or load_cluster(cluster).program
    advice = "" if program else f", the program of {cluster}: name your own, --program NAME, for a narrower interval"
    return f"simulated as {load_program(name).title} ({name}){advice}; {', '.join(said)}"


def brief(margins: Margins | None) -> str:
    """What a terminal says of the intervals of simulated numbers; `lines` has all of it."""
    if margins is None:
        return lines(margins)[0]
    throughput, memory = margins.throughput, f", memory within {margins.memory}" if margins.memory else ""
    return (
        f"{throughput.coverage:.0%} of throughputs and times of {margins.programs['scored']} are within {throughput} "
        f"of the simulated ones{memory}; another program's may be further off (docs/margins.md)"
    )


def lines(margins: Margins | None) -> list[str]:
    """What a reader has to know of the intervals of simulated numbers."""
    if margins is None:
        return ["no intervals: the simulator's errors on this cluster are not known"]
    throughput, memory, programs = margins.throughput, margins.memory, margins.programs
    known = f", memory within {memory} ({memory.n} values of other clusters)" if memory else ""
    without = "" if memory else "memory, "
    low, high = programs["low"], programs["high"]
    return [
        f"intervals hold for runs of {programs['scored']}: {throughput.coverage:.0%} of their throughputs and times "
        f"are within {throughput} of the simulated ones, ratios of two within {margins.ratio} "
        f"({throughput.tested:.0%} of {throughput.n} published ones were, each predicted without its own source)"
        f"{known}; {without}idle time, phases and traffic have no interval. A run of another program has none either: "
        f"{programs['runs']} took {_times(low)} to {_times(high)} time than simulated where this cluster's program was "
        "taken for theirs"
    ]


def _times(ratio: float) -> str:
    """0.91 is '9% less', 1.22 '22% more'."""
    return f"{abs(ratio - 1):.0%} {'less' if ratio < 1 else 'more'}"


def _is_zero3(parameters: Mapping[str, Any]) -> bool:
    return parameters.get("data_parallel") == "zero3"
