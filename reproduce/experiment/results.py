"""The results of a run as claims read them: values by x, what else they may be, and how an explanation lists them."""

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import floor, log10
from typing import Any, TypeVar

from reproduce.experiment import published
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import PAPER
from results.records import Metric, Number, PaperValue, PointResult, Record

X = TypeVar("X")
M = TypeVar("M", bound=Mapping[Any, Any])
R = TypeVar("R", PointResult, Metric, PaperValue)
_PAPERS = Metric(None, "1", "paper")
OF_MEMORY = {metric.name for metric in METRICS.values() if metric.margin == "memory"}  # known of what does not fit, too


class MissingResultError(LookupError):
    """A claim needs a point that has no value; its verdict is then 'inconclusive'."""


@dataclass(frozen=True)
class Results:
    """The evaluated points of one run, as claims read them. Metrics are named by name or by quantity, in base units.

    `moved` gives the alternatives of such results: what else may be in place of what was read of them, inside the
    simulator's margins. Where the numbers are exact there is none. `unknown` are the metrics whose errors nobody knows;
    `set_with` the numbers of the cluster that were set with what the paper publishes of these points. What is `partial`
    lacks points, as a run was interrupted: it is shown, but judges nothing.
    """

    points: tuple[PointResult, ...]
    fidelity: str
    scale: str = PAPER
    moved: "Callable[[Results, Read], Iterable[Alternative]]" = field(default=lambda results, read: (), compare=False)
    unknown: frozenset[str] = frozenset()
    set_with: tuple[str, ...] = ()
    partial: bool = False

    @classmethod
    def of_record(cls, record: Record) -> "Results":
        """The points of a record, without margins. One that an interrupted run left has no claims yet."""
        interrupted = record.state == "partial" and not record.claims
        return cls(record.points, record.fidelity, record.scale, partial=interrupted)

    def point(self, key: str) -> PointResult:
        """The point of that key. Raises `MissingResultError`."""
        place = self.places["key"].get(key)
        if place is None:
            raise MissingResultError(f"point {key!r} was not evaluated")
        return self.points[place]

    def of(self, name: str, kind: str = "series") -> list[PointResult]:
        """The points of a series, or of a label. Raises `MissingResultError` for none."""
        places = self.places[kind].get(name)
        if places is None:
            raise MissingResultError(f"no point of {kind} {name!r} was evaluated")
        return [self.points[place] for place in places]

    @cached_property
    def places(self) -> dict[str, dict[str, Any]]:
        """Where the point of a key is, and where those of a series and of a label are."""
        key: dict[str, int] = {}
        series: dict[str, list[int]] = {}
        label: dict[str, list[int]] = {}
        for place, point in enumerate(self.points):
            key.setdefault(point.key, place)
            series.setdefault(point.series, []).append(place)
            label.setdefault(point.label, []).append(place)
        return {"key": key, "series": series, "label": label}

    def grouped(self, by: str) -> dict[Any, list[PointResult]]:
        """The points by their value of a parameter, or by 'series' or 'label'."""
        if by not in self.places:
            self.places[by] = {}
            for place, point in enumerate(self.points):
                self.places[by].setdefault(point.parameters[by], []).append(place)
        return {value: [self.points[place] for place in places] for value, places in self.places[by].items()}

    def with_points(self, points: Iterable[PointResult]) -> "Results":
        """The same points in their order with other numbers, which have no margins."""
        other = Results(tuple(points), self.fidelity, self.scale)
        other.__dict__["places"] = self.places
        return other

    @property
    def series_names(self) -> list[str]:
        """The names of the series, in the order of the points."""
        return list(dict.fromkeys(point.series for point in self.points))

    def value(self, key: str, metric: str | Quantity) -> float:
        """A metric of a point. Raises `MissingResultError` if the point has none."""
        return value_of(self.point(key), metric)

    def by_label(self, metric: str | Quantity) -> dict[str, float]:
        """A metric of every point, by the point's label. Raises `MissingResultError` if one lacks it."""
        return _some({point.label: value_of(point, metric) for point in self.points}, "no point was evaluated")

    def series(self, series: str, metric: str | Quantity, by: str) -> dict[Any, float]:
        """A metric along a series, by parameter `by`. Raises `MissingResultError` if a point lacks it."""
        return {point.parameters[by]: value_of(point, metric) for point in self.of(series)}

    def paper_series(self, series: str, metric: str | Quantity, by: str) -> dict[Any, float]:
        """The paper's values along a series, by parameter `by`. Raises `MissingResultError` for none."""
        name = _name(metric)
        values = {p.parameters[by]: float(p.paper[name].value) for p in self.of(series) if name in p.paper}
        return _some(values, f"the paper gives no {name} for series {series!r}")

    def by_batch(self, metric: str | Quantity, by: str) -> dict[int, dict[Any, float]]:
        """A metric by batch size (the series) and by parameter `by`. Raises `MissingResultError`."""
        series = {point.parameters["B"]: point.series for point in self.points}
        return _some({B: self.series(name, metric, by) for B, name in series.items()}, "no point was evaluated")

    def gains(self, of: str, over: str, metric: str | Quantity, by: str) -> dict[Any, float]:
        """The relative gain in a metric of series `of` over series `over`, by parameter `by` where both have one."""
        ours, base = self.series(of, metric, by), self.series(over, metric, by)
        gains = {x: value / base[x] - 1 for x, value in ours.items() if x in base}
        return _some(gains, f"{of!r} and {over!r} have no {by} in common")

    def papers(self) -> "Results":
        """The paper's values in place of ours, at the points where it has any. Raises `MissingResultError` for none."""
        points = tuple(
            with_fields(
                point,
                status="ok",
                reason=None,
                metrics={n: with_fields(_PAPERS, value=v.value, unit=v.unit) for n, v in point.paper.items()},
            )
            for point in self.points
            if point.paper
        )
        if not points:
            raise MissingResultError("the paper gives no values here")
        return Results(points, "paper", self.scale)

    def watched(self) -> "tuple[Results, Read]":
        """The same, and what comes to be read from it."""
        read = Read()
        points = []
        for point in self.points:
            seen = copy(point)
            object.__setattr__(seen, "metrics", _Watched(point.metrics, point.key, read.metrics, read.points))
            object.__setattr__(seen, "paper", _Watched(point.paper, point.key, read.paper, read.points))
            points.append(seen)
        return replace(self, points=tuple(points)), read

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node: what the points say, the paper's if they do not."""
        sizes = {point.parameters["gpus_per_node"] for point in self.points if "gpus_per_node" in point.parameters}
        return sizes.pop() if sizes else published.gpus_per_node()

    def numbers(self, unit: str = "1", /, **values: float | Mapping[Any, float]) -> dict[str, Number]:
        """Numbers that a judgement keeps, whose origin is that of these results."""
        return numbers_of(self.fidelity, unit, **values)


@dataclass(frozen=True)
class Read:
    """What a judge has read: the names of metrics and of the paper's values, and the keys of their points."""

    metrics: set[str] = field(default_factory=set)
    paper: set[str] = field(default_factory=set)
    points: set[str] = field(default_factory=set)


class _Watched(dict[str, Any]):
    """Values of a point by name, which notes what is asked for."""

    def __init__(self, values: Mapping[str, Any], key: str, names: set[str], keys: set[str]) -> None:
        super().__init__(values)
        self.point, self.read_names, self.read_points = key, names, keys

    def _asked(self, name: str) -> None:
        self.read_names.add(name)
        self.read_points.add(self.point)

    def __getitem__(self, name: str) -> Any:
        self._asked(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of that name."""
        self._asked(name)
        return super().get(name, default)

    def items(self) -> Any:
        """All values; all are asked for."""
        for name in self:
            self._asked(name)
        return super().items()


@dataclass(frozen=True)
class Alternative:
    """Results moved to an end of what is known of them; `what` is moved there by the factor `factor`, `suffix` how.

    `moved_by(share)` are the results moved by that share of the way, in logarithms; `keys` are the points moved.
    """

    what: str
    factor: float
    moved_by: Callable[[float], Results]
    suffix: str = ""
    keys: frozenset[str] = frozenset()

    def described(self, share: float = 1.0) -> str:
        """'the throughput of Interleaved is 2.1% lower against the rest'."""
        change = self.factor**share - 1
        digits = max(1, -1 - floor(log10(abs(change)))) if change else 1  # two figures of a change below 1%
        return f"{self.what} is {abs(change):.{digits}%} {'higher' if change > 0 else 'lower'}{self.suffix}"

    @property
    def sure_to(self) -> str:
        """To what it is known: '7.1%'."""
        return f"{abs(self.factor - 1):.1%}"


def with_fields(record: R, **fields: Any) -> R:
    """A copy with other fields, unchecked: the checks would take most of the time of judging."""
    changed: R = object.__new__(type(record))
    changed.__dict__.update(record.__dict__, **fields)
    return changed


def _name(metric: str | Quantity) -> str:
    return metric.name if isinstance(metric, Quantity) else metric


def _some(values: M, why: str) -> M:
    """The values, of which there is one at least. Raises `MissingResultError` with the reason for none."""
    if not values:
        raise MissingResultError(why)
    return values


def value_of(point: PointResult, metric: str | Quantity) -> float:
    """A metric of a point. Raises `MissingResultError` if the point has none."""
    name = _name(metric)
    measured = point.metrics.get(name)
    known = point.status == "ok" or (point.status == "oom" and name in OF_MEMORY)
    if not known or measured is None or measured.value is None:
        why = f"{point.status}: {point.reason}" if point.status != "ok" else f"it has no {name}"
        raise MissingResultError(f"point {point.key!r} has no result ({why})")
    return float(measured.value)


def numbers_of(origin: str, unit: str = "1", /, **values: float | Mapping[Any, float]) -> dict[str, Number]:
    """Numbers that a judgement keeps, of one origin and unit.

    Values by x are a number each: `gain_b={12: 0.4, 24: 0.2}` is 'gain_b12' and 'gain_b24', `time_={0: 34.0}` 'time_0',
    `gain={"175B": 0.1}` 'gain_175b'.
    """
    named: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            named |= {f"{name}_{word(x)}" if isinstance(x, str) else f"{name}{x}": each for x, each in value.items()}
        else:
            named[name] = value
    return {name: Number(value, unit, origin) for name, value in named.items()}


def where(point: PointResult) -> str:
    """A point as people call it: 'Interleaved, B=8'."""
    return f"{point.series}, {point.label}".strip(", ")


def counted(number: int) -> str:
    """'1 point', '8 points'."""
    return "1 point" if number == 1 else f"{number} points"


def falls(*lines: Mapping[Any, float]) -> bool:
    """Whether in each line, values by x, every value is smaller than the one before it."""
    return all(b < a for line in lines for a, b in pairwise(line.values()))


def rises(*lines: Mapping[Any, float]) -> bool:
    """Whether in each line, values by x, every value is larger than the one before it."""
    return all(b > a for line in lines for a, b in pairwise(line.values()))


def argmax(values: Mapping[X, float], size: Callable[[float], float] = float) -> X:
    """The x whose value is the largest; with `size=abs` the one furthest from zero. `MissingResultError` for none."""
    return max(_some(values, "no value was read"), key=lambda x: size(values[x]))


def word(text: str) -> str:
    """`text` as the name of a number in a record: 'PTD-P, 175B' is 'ptd_p_175b'."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def listed(values: Mapping[Any, float], show: str = "{:+.0%}", factor: float = 1.0) -> str:
    """'12: +45%, 24: +23%': values by x, in units of `factor`, as explanations list them."""
    return ", ".join(f"{x}: {show.format(value / factor)}" for x, value in values.items())
