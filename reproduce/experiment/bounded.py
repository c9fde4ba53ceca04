"""The judge of a claim that is data: a metric of some points, within bounds.

Compared are the values themselves, or each one over that of other points, or less it, or over what the paper prints.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any

from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import MissingResultError, Results
from results.records import PointResult

PUBLISHED = "published"  # stands for the paper's own value of the same point
MOST = "most"
REDUCED: dict[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "every": lambda values: values,
    "largest": lambda values: [max(values)],
    "smallest": lambda values: [min(values)],
    "mean": lambda values: [fsum(values) / len(values)],
    "mean distance from 1 of": lambda values: [fsum(abs(value - 1) for value in values) / len(values)],
    MOST: lambda values: values,
}
# How a bound compares, and with which sign half a unit of the last digit widens it.
BOUNDS: dict[str, tuple[Callable[[float, float], bool], int]] = {
    "at_least": (operator.ge, -1),
    "above": (operator.gt, -1),
    "at_most": (operator.le, 1),
    "below": (operator.lt, 1),
}
ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class Bounded:
    """Judges whether a metric, or what it is over or less that of other points, lies within bounds.

    - `metrics`: their sum is the value of a point
    - `of`: parameters that the points have, or 'series', 'label' or 'key'; all points without it; a list is any of it
    - `over`: likewise of the points that each is divided by, which have the same label (`match`), with a list by each
      of several; `PUBLISHED`: by the paper's own
    - `less`: likewise of the points whose value is subtracted
    - `which`: of `REDUCED`: which of the values, or their mean, has to lie within the bounds; `MOST`: more than half
    - `bounds`: of `BOUNDS`, and the `rule` that they come from
    - `of_paper`: judge the paper's own values, or, over these, what follows from its other columns
    """

    metrics: tuple[str, ...]
    bounds: Mapping[str, float]
    of: Mapping[str, Any] = field(default_factory=dict)
    over: Mapping[str, Any] | str | None = None
    less: Mapping[str, Any] | None = None
    match: str = "label"
    which: str = "every"
    rule: str = ""
    of_paper: bool = False

    def __call__(self, results: Results) -> Judgement:
        """The verdict on these results. Raises `MissingResultError` for a point without a value.

        A prediction that misses the paper's value on a cluster whose predictions were not scored is inconclusive.
        """
        values = self.values(results.papers() if self.of_paper and self.over != PUBLISHED else results)
        slack = self._rounding(results) if self.to_the_digits else {}
        judged = REDUCED[self.which](list(values.values()))
        if self.which == MOST:
            inside = [value for value in judged if self.allows(value)]
            holds, text = 2 * len(inside) > len(judged), f"{len(inside)} of {len(judged)} are; "
        else:
            slacks = [slack.get(name, 0.0) for name in values] if slack else [0.0] * len(judged)
            holds = all(map(self.allows, judged, slacks))
            text = f"{self.words}: {judged[0]:.4g}; " if len(judged) == 1 and len(values) > 1 else ""
        extreme = [name for name, value in values.items() if value in (min(values.values()), max(values.values()))]
        what = ", ".join(f"{name}: {values[name]:.4g}" for name in (extreme[0], extreme[-1])[: len(values)])
        judge = consistent_if if self.of_paper else holds_if
        text = f"{text}{what}" + (f" ({len(values)} in all)" if len(values) > 2 else "")
        numbers = results.numbers(least=min(values.values()), most=max(values.values()))
        if not holds and self.predicts(results.fidelity) and not results.alternatives:
            text = f"missed, where the simulator's errors are not known: {text}"
            return Judgement("inconclusive", text, numbers)
        return judge(holds, text, numbers)

    def predicts(self, fidelity: str) -> bool:
        """Whether results of a fidelity predict what the paper printed: to miss it contradicts nobody but them."""
        return fidelity == "simulated" and self.over == PUBLISHED and not self.of_paper

    def allows(self, value: float, slack: float = 0.0) -> bool:
        """Whether a value lies within the bounds, each wider by `slack`."""
        return all(BOUNDS[name][0](value, limit + BOUNDS[name][1] * slack) for name, limit in self.bounds.items())

    @property
    def to_the_digits(self) -> bool:
        """Whether every value is held against the digits that the paper prints of it."""
        return self.rule == "rounding" and self.over == PUBLISHED

    @property
    def words(self) -> str:
        """Which number it is about."""
        over = " over the paper's" if self.over == PUBLISHED else ""
        for asked, word in ((self.over, "over"), (self.less, "less")):
            if isinstance(asked, Mapping):
                over += f" {word} that of {_said(asked)}"
        return f"{self.which} {' + '.join(self.metrics)}{f' of {_said(self.of)}' if self.of else ''}{over}"

    @property
    def tolerance(self) -> str:
        """What it allows, in words."""
        if self.to_the_digits:
            return f"{self.words}: equal to the digits printed"
        return f"{self.words}: " + ", ".join(
            f"{name.replace('_', ' ')} {limit:g}" for name, limit in self.bounds.items()
        )

    def values(self, results: Results) -> dict[str, float]:
        """What is judged, by point. Raises `MissingResultError`."""
        values: dict[str, float] = {}
        for point in self._chosen(results):
            name = f"{point.series} {point.label}".strip()
            value = self._value(results, point)
            if self.over == PUBLISHED:
                values[name] = value / self._printed(point)
                continue
            if self.less is not None:
                (other,) = self._others(results, point, self.less).values()
                value -= other
            if isinstance(self.over, Mapping):
                others = self._others(results, point, self.over)
                several = len(others) > 1
                values |= {f"{name} over {which}" if several else name: value / each for which, each in others.items()}
            else:
                values[name] = value
        if not values:
            raise MissingResultError(f"no point is {_said(self.of)}")
        return values

    def _chosen(self, results: Results) -> list[PointResult]:
        """The points that are judged."""
        chosen = [point for point in results.points if is_one(point, self.of)]
        if self.over == PUBLISHED:
            chosen = [point for point in chosen if all(metric in point.paper for metric in self.metrics)]
        return chosen

    def _value(self, results: Results, point: PointResult) -> float:
        return fsum(results.value(point.key, metric) for metric in self.metrics)

    def _printed(self, point: PointResult) -> float:
        return fsum(float(point.paper[metric].value) for metric in self.metrics)

    def _rounding(self, results: Results) -> dict[str, float]:
        """Half a unit of the last digit printed, over what is printed, by point."""
        return {
            f"{point.series} {point.label}".strip(): ROUNDING
            * fsum(point.paper[metric].quantum or 0.0 for metric in self.metrics)
            / 2
            / abs(self._printed(point))
            for point in self._chosen(results)
        }

    def _others(self, results: Results, point: PointResult, asked: Mapping[str, Any]) -> dict[str, float]:
        """What a point is held against, by series: one value, or as many as a list asks for."""
        same = getattr(point, self.match)
        others = [other for other in results.points if getattr(other, self.match) == same and is_one(other, asked)]
        one = not any(isinstance(value, list) for value in asked.values())
        if not others or (one and len(others) != 1):
            raise MissingResultError(f"{len(others)} points are {_said(asked)} at {same}")
        return {other.series: self._value(results, other) for other in others}


def is_one(point: PointResult, asked: Mapping[str, Any]) -> bool:
    """Whether a point has these parameters, or is of that series, label or key; of a list, one of them."""
    known = {**point.parameters, "series": point.series, "label": point.label, "key": point.key}
    return all(
        known.get(name) in value if isinstance(value, list) else known.get(name) == value
        for name, value in asked.items()
    )


def _said(asked: Mapping[str, Any]) -> str:
    values = {name: " or ".join(map(str, value)) if isinstance(value, list) else value for name, value in asked.items()}
    return ", ".join(value if isinstance(value, str) else f"{name}={value}" for name, value in values.items())
