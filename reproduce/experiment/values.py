"""Named values of the points of a run, for claims that are data: lines along a parameter, and what is read off them.

The table `values` of a TOML file beside an artifact's module tells them: `reproduce/papers/sc21/fig_interleaved.toml`
is an example.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from reproduce.experiment.bounded import PUBLISHED, is_one
from reproduce.experiment.results import MissingResultError, Results, argmax, listed, value_of
from results.records import PointResult

OWN: dict[str, Callable[[Mapping[Any, float]], float]] = {
    "first": lambda line: next(iter(line.values())),
    "last": lambda line: list(line.values())[-1],
    "largest": lambda line: max(line.values()),
}
LOWEST = "lowest"  # the line of the smallest key


class Shown(float):
    """A value that explanations show in units of `unit`."""

    unit: float

    def __new__(cls, value: float, unit: float) -> "Shown":
        """The value, which keeps its own unit."""
        made = super().__new__(cls, value)
        made.unit = unit
        return made

    def __format__(self, spec: str) -> str:
        return format(float(self) / self.unit, spec)


class Values(dict[Any, Any]):
    """Values by x, or lines of values by batch size. A text lists them: '{gains:+.1%}', or '{ratios:.2f|x}' with an x.

    `letter` is what names a key: 'B=32'; `of_lines` says whether these are lines.
    """

    def __init__(self, values: Mapping[Any, Any], unit: float = 1.0, letter: str = "") -> None:
        super().__init__(values)
        self.unit, self.letter = unit, letter
        self.of_lines = isinstance(next(iter(self.values()), None), Values)

    def __format__(self, spec: str) -> str:
        if self.of_lines:
            return "; ".join(f"{name}: {line:{spec}}" for name, line in self.named.items())
        how, _, after = spec.partition("|")
        return listed(self.named, f"{{:{how}}}{after}", self.unit)

    @property
    def named(self) -> dict[str, Any]:
        """The same by the names of their keys."""
        return {f"{self.letter}={key}" if self.letter else str(key): value for key, value in self.items()}

    @property
    def lines(self) -> "list[Values]":
        """Its lines, or itself as the only one."""
        return list(self.values()) if self.of_lines else [self]

    @property
    def flat(self) -> "Values":
        """All values by the names of their keys: 'B=32, p=4'."""
        if not self.of_lines:
            return self
        both = {f"{line}, {x}": value for line, values in self.named.items() for x, value in values.named.items()}
        return Values(both, next(iter(self.values())).unit)

    def __getattr__(self, name: str) -> Any:
        """What is read off each of its lines, or off all values: see `OF_A_LINE` and `OF_ALL`."""
        if name in OF_ALL:
            return OF_ALL[name](self)
        if name not in OF_A_LINE:
            raise AttributeError(name)
        in_unit, read = name in IN_UNIT, OF_A_LINE[name]
        if self.of_lines:
            of_lines = {key: read(line) for key, line in self.items()}
            return Values(of_lines, self.lines[0].unit if in_unit else 1.0)
        return self.in_unit(read(self)) if in_unit else read(self)

    def in_unit(self, value: float) -> Shown:
        """A value as these are shown."""
        return Shown(value, self.lines[0].unit)

    def at(self, keys: Iterable[Any]) -> "Values":
        """The values, or lines, at these keys."""
        return Values({key: self[key] for key in keys}, self.unit, self.letter)


# What is read off a line: the first and the last value and their difference, the key of the largest, quotients.
OF_A_LINE: dict[str, Callable[[Values], Any]] = {
    "first": OWN["first"],
    "last": OWN["last"],
    "fall": lambda line: OWN["first"](line) - OWN["last"](line),
    "best": argmax,
    "kept": lambda line: OWN["last"](line) / OWN["first"](line),
    "range": lambda line: max(line.values()) / min(line.values()),
}
IN_UNIT = ("first", "last", "fall")
# What is read off all values: the extremes and where the largest is, how far from zero they are, how far a line's vary
# (the largest over the smallest, less 1); their keys, listed, and the ends of these; the values at some of them.
OF_ALL: dict[str, Callable[[Values], Any]] = {
    "most": lambda values: values.in_unit(max(values.flat.values())),
    "least": lambda values: values.in_unit(min(values.flat.values())),
    "where_most": lambda values: argmax(values.flat),
    "distance": lambda values: max(map(abs, values.flat.values())),
    "spread": lambda values: max(OF_A_LINE["range"](line) - 1 for line in values.lines),
    "xs": lambda values: ", ".join(values.named),
    "low": min,
    "high": max,
    "smallest_x": lambda values: min(x for line in values.lines for x in line),
    "key_over_best": lambda values: Values({key: key / argmax(line) for key, line in values.items()}),
    "lowest": lambda values: values.at([min(values)]),
    "beyond_lowest": lambda values: values.at(key for key in values if key != min(values)),
    "lower_half": lambda values: values.at(sorted(values)[: len(values) // 2]),
}
READINGS = (*OF_A_LINE, *OF_ALL)


@dataclass(frozen=True)
class Value:
    """How values are made of points.

    - `metric`: of a point, the sum of several if it is a list; over `per`, metrics or a parameter of the same point
    - `along`: the parameter that is x, or a text with the point's parameters, 'label' or 'series' in braces
    - `where`: the points that have these parameters, series, label or key; all without it
    - `of`: the series of one line; without it there is a line for each value of `by`, or, along a text, one line
    - `fits`: points that are out of memory are left out
    - `over`: what each is divided by: a number; the paper's own value of the same point, 'published'; at the same x
      the value of another series, or of points with these parameters; of lines 'lowest' makes one of the last, over
      the first
    - `own`: likewise the line's own value at an x, or one of `OWN`; `inverse`: that over each
    - `less`: a number that is taken off; `taken_from`: a number from which the value is taken off
    - `at`: the x that are kept; `ordered`: in their order
    - `unit`: that of texts; `plain`: keys of lines are not named there by their parameters
    - `paper`: the paper's values in place of ours
    """

    metric: str | list[str]
    along: str = "{label}"
    per: str | list[str] = ""
    of: str | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    by: str = "B"
    fits: bool = False
    over: Any = None
    own: Any = None
    inverse: bool = False
    less: float = 0.0
    taken_from: float | None = None
    at: Sequence[Any] = ()
    ordered: bool = False
    unit: float = 1.0
    plain: bool = False
    paper: bool = False

    def __call__(self, results: Results) -> Values:
        """The values. Raises `MissingResultError`."""
        if self.of is not None or not self.by or "{" in self.along:
            points = results.points if self.of is None else results.of(self.of)
            return self._made(self._over(results, self._line(results, self._chosen(points))))
        groups = {key: self._chosen(points) for key, points in results.grouped(self.by).items()}
        lines = {key: self._line(results, points) for key, points in groups.items() if points}
        if not lines:
            raise MissingResultError("no point was evaluated")
        if self.over == LOWEST:
            few, many = lines[min(lines)], lines[max(lines)]
            return self._made({x: many[x] / value for x, value in few.items()}, self.along)
        letters = ("", "") if self.plain else (self.by if self.by != "series" else "", self.along)
        made = {key: self._made(self._over(results, line), letters[1]) for key, line in lines.items()}
        return Values(made, self.unit, letters[0])

    def _chosen(self, points: Sequence[PointResult]) -> Sequence[PointResult]:
        return [point for point in points if is_one(point, self.where)] if self.where else points

    def _line(self, results: Results, points: Sequence[PointResult]) -> dict[Any, float]:
        """The values of points by x, before they are divided by others. Raises `MissingResultError` for none."""
        line = {}
        text = "{" in self.along
        for point in points:
            names = point.parameters
            x = (
                self.along.format(**{**names, "label": point.label, "series": point.series})
                if text
                else names[self.along]
            )
            if not (self.fits and point.status == "oom") and (not self.at or x in self.at or self.own is not None):
                line[x] = self._at(point)
        if not line:
            series = points[0].series if points else self.of
            raise MissingResultError(f"no point of {series!r} fits in memory" if points else "no point was evaluated")
        return line

    def _at(self, point: PointResult) -> float:
        if self.paper:
            return float(point.paper[str(self.metric)].value)
        value = _sum(point, self.metric)
        if self.over == PUBLISHED:
            value /= float(point.paper[str(self.metric)].value)
        return value / _sum(point, self.per) if self.per else value

    def _over(self, results: Results, line: Mapping[Any, float]) -> Mapping[Any, float]:
        """The line over what its values are divided by, where both have an x. Raises `MissingResultError`."""
        if self.own is not None:
            one = OWN[self.own](line) if isinstance(self.own, str) else line[self.own]
            return {x: one / value if self.inverse else value / one for x, value in line.items()}
        if self.over is None or self.over == PUBLISHED:
            return line
        if isinstance(self.over, int | float):
            return {x: value / self.over for x, value in line.items()}
        if isinstance(self.over, str):
            base = self._line(results, results.of(self.over))
        else:
            base = self._line(results, [point for point in results.points if is_one(point, self.over)])
        shared = {x: value / base[x] for x, value in line.items() if x in base}
        if not shared:
            raise MissingResultError(f"{self.of!r} and {self.over!r} have no {self.along} in common")
        return shared

    def _made(self, line: Mapping[Any, float], letter: str = "") -> Values:
        kept = {x: value for x, value in line.items() if not self.at or x in self.at}
        if self.taken_from is not None:
            kept = {x: self.taken_from - value for x, value in kept.items()}
        elif self.less:
            kept = {x: value - self.less for x, value in kept.items()}
        return Values(dict(sorted(kept.items())) if self.ordered else kept, self.unit, letter)


def _sum(point: PointResult, names: str | list[str]) -> float:
    """A metric of a point, or a parameter; of several names the sum. Raises `MissingResultError`."""
    if not isinstance(names, str):
        return fsum(_sum(point, name) for name in names)
    return float(point.parameters[names]) if names in point.parameters else value_of(point, names)
