"""The judge of a claim that is data: a metric of some points, within bounds.

Compared are the values themselves, or each one over that of other points, or less it, or over what the paper prints.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any

from reproduce.experiment.claims import NARROW, Judgement, consistent_if, holds_if
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.results import MissingResultError, Results, counted
from results.records import PointResult
from results.records.units import with_unit

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
INPUTS = "the numbers that it follows from are rounded"


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
    - `digits`: every value is held against the digits that the paper prints of it, as by the rule 'rounding'
    - `inputs`: the paper's own numbers that a value follows from: their digits widen the bounds, too
    - `inexact`: how far rounding what a value follows from may move it: a miss by no more than this is inconclusive;
      with `over` the paper's own, of every value
    - `short`: by what share ours may fall short of theirs, for a known reason: a miss by no more is inconclusive
    - `miss`, `hit`: what a miss, or a hit, would say of us or of a transcription, not of the paper: it is inconclusive
    - `tested`, `untested`: in words which clause is tested of what and how ours arises, and what is not tested
    - `narrow`: the simulator's margin is wider than the bounds
    - `shown`: how metrics are shown, by name
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
    digits: bool = False
    inputs: tuple[str, ...] = ()
    inexact: float = 0.0
    short: float = 0.0
    miss: str = ""
    hit: str = ""
    tested: str = ""
    untested: str = ""
    narrow: bool = False
    shown: Mapping[str, Quantity] = field(default_factory=dict)

    def __call__(self, results: Results) -> Judgement:
        """The verdict on these results. Raises `MissingResultError` if no point has a value.

        Where some points lack one, a sentence about every point can still be wrong for the others.
        """
        seen = results.papers() if self.of_paper and self.over != PUBLISHED else results
        values, missing = self.values(seen)
        slack = self._rounding(results) if self.to_the_digits else {}
        judged = REDUCED[self.which](list(values.values()))
        if self.which == MOST:
            inside = [value for value in judged if self.allows(value)]
            holds, text = 2 * len(inside) > len(judged), f"{len(inside)} of {len(judged)} are; "
        else:
            slacks = [slack.get(name, 0.0) for name in values] if slack else [0.0] * len(judged)
            holds = all(map(self.allows, judged, slacks))
            text = (
                f"{self.which.removesuffix(' of')}: {judged[0]:.4g}; " if len(judged) == 1 and len(values) > 1 else ""
            )
        extreme = [name for name, value in values.items() if value in (min(values.values()), max(values.values()))]
        what = ", ".join(f"{name}: {values[name]:.4g}" for name in (extreme[0], extreme[-1])[: len(values)])
        judge = consistent_if if self.of_paper else holds_if
        text = f"{text}{what}" + (f" ({len(values)} in all)" if len(values) > 2 else "")
        numbers = seen.numbers(least=min(values.values()), most=max(values.values()))
        if missing:
            rest = f"of the other {len(values)} values {'this holds' if holds else 'this does not hold'}"
            text = f"{counted(len(missing))} without a value ({missing[0]}); {rest}: {text}"
            if holds or not self._beyond(judged[0]):
                return Judgement("inconclusive", text, numbers, missing=True)
        for word, asked, why in (("holds", holds, self.hit), ("missed", not holds, self.miss)):
            if asked and why:
                return Judgement("inconclusive", f"{word}, but {why}: {text}", numbers)
        if not holds and self.short and all(any(map(self.allows, self._as_far(value))) for value in judged):
            return Judgement("inconclusive", f"missed, but by no more than ours falls short: {text}", numbers)
        if not holds and self._holds_but_for(results, values, slack):
            return Judgement("inconclusive", f"missed, but by less than the rounding of its inputs: {text}", numbers)
        if not holds and self.of_paper and self._holds_to_the_digits(seen, values):
            return Judgement("inconclusive", f"missed, but not beyond the digits printed: {text}", numbers)
        return replace(judge(holds, text, numbers), missing=bool(missing))

    def allows(self, value: float, slack: float = 0.0) -> bool:
        """Whether a value lies within the bounds, each wider by `slack`."""
        return all(BOUNDS[name][0](value, limit + BOUNDS[name][1] * slack) for name, limit in self.bounds.items())

    def _beyond(self, value: float) -> bool:
        """Whether a sentence that fails stays wrong whatever else had a value: a largest one is too large already."""
        further = {"largest": ("at_most", "below"), "smallest": ("at_least", "above")}.get(self.which, ())
        return self.which == "every" or not all(
            BOUNDS[name][0](value, self.bounds[name]) for name in further if name in self.bounds
        )

    @property
    def to_the_digits(self) -> bool:
        """Whether every value is held against the digits that the paper prints of it."""
        return self.over == PUBLISHED and (self.digits or self.rule == "rounding")

    @property
    def words(self) -> str:
        """Which number it is about: as its author says it, or made from what is compared."""
        if self.tested:
            return self.tested
        named = " plus ".join(map(_spelled, self.metrics))
        if self.of_paper:
            named += ", from the other columns," if self.over == PUBLISHED else " as printed"
        compared = ""
        if self.over == PUBLISHED:
            compared = f" {'against' if self.to_the_digits else 'divided by'} the paper's"
        where = "setting" if self.match == "label" else self.match
        for asked, word in ((self.over, "divided by"), (self.less, "minus")):
            if isinstance(asked, Mapping):
                compared += f" {word} that of {_said(asked, 'and of')} in the same {where}"
        which = {"every": "each", MOST: "more than half of all values of"}.get(self.which, self.which)
        return f"{which} {named}{f' of {_said(self.of)}' if self.of else ''}{compared}"

    @property
    def tolerance(self) -> str:
        """What it allows, in words."""
        allowed = f"{', '.join(dict.fromkeys(map(self.said, self.bounds)))}: {self.words}"
        also = (
            (self.narrow, NARROW),
            (self.inexact, f"a miss by at most {self.inexact:f}".rstrip("0") + f" more is inconclusive: {INPUTS}"),
            (self.short, f"a miss by at most {self.short:.1%} below is inconclusive: by so much ours may fall short"),
            (self.miss, f"a miss is inconclusive: {self.miss}"),
            (self.hit, f"a hit is inconclusive: {self.hit}"),
            (self.untested, f"not tested: {self.untested}"),
        )
        return "; ".join([allowed, *(text for asked, text in also if asked)])

    def said(self, name: str) -> str:
        """One of its bounds in words, in the unit in which the metric is shown."""
        words, bound = name.replace("_", " "), self.bounds[name]
        if self.to_the_digits:
            of_both = " of it and of what it follows from" if self.inputs else ""
            return f"{'equal' if len(self.bounds) == 2 else f'{words} as much'}, to the digits printed{of_both}"
        if self.rule == "exact":
            return "exactly 1"
        quantity = self.shown.get(self.metrics[0]) if self.over is None else None
        if quantity is None:
            return f"{words} {bound:g}"
        if quantity.shown == "%":
            unit = "%" if self.less is None else " point" if bound == 0.01 else " points"
            return f"{words} {100 * bound:g}{unit}"
        return f"{words} {with_unit(bound, quantity.unit)}"

    def values(self, results: Results) -> tuple[dict[str, float], list[str]]:
        """What is judged, by point, and why others have no value. Raises `MissingResultError` if none has one."""
        values: dict[str, float] = {}
        missing = []
        for point in self._chosen(results):
            try:
                values |= self._of_point(results, point)
            except MissingResultError as error:
                missing.append(str(error.args[0]))
        if not values:
            raise MissingResultError(missing[0] if missing else f"no point is {_said(self.of)}")
        return values, missing

    def _of_point(self, results: Results, point: PointResult) -> dict[str, float]:
        """What is judged of one point: one value, or one for each that it is held against."""
        name = _name(point)
        value = self._value(results, point)
        if self.over == PUBLISHED:
            return {name: value / self._printed(point)}
        if self.less is not None:
            (other,) = self._others(results, point, self.less).values()
            value -= other
        if not isinstance(self.over, Mapping):
            return {name: value}
        others = self._others(results, point, self.over)
        several = len(others) > 1
        return {f"{name} over {which}" if several else name: value / each for which, each in others.items()}

    def _holds_to_the_digits(self, results: Results, values: Mapping[str, float]) -> bool:
        """Whether what the paper prints of these values may be rounded from numbers that agree with the sentence."""
        if not isinstance(self.over, Mapping) or self.which == MOST:
            return False
        slacks: dict[str, float] = {}
        for point in self._chosen(results):
            name = _name(point)
            others = self._partners(results, point, self.over)
            for other in others:
                key = f"{name} over {other.series}" if len(others) > 1 else name
                slacks[key] = values.get(key, 0.0) * (self._half_a_digit(point) + self._half_a_digit(other))
        judged = REDUCED[self.which](list(values.values()))
        wider = [slacks[name] for name in values] if self.which == "every" else [max(slacks.values())]
        return all(map(self.allows, judged, wider))

    def _as_far(self, value: float) -> tuple[float, ...]:
        """A value, what it would be if ours did not fall short, and the bounds that lie between the two."""
        most = value * (1 + self.short)
        return (value, most, *(bound for bound in self.bounds.values() if value < bound < most))

    def _holds_but_for(self, results: Results, values: Mapping[str, float], slack: Mapping[str, float]) -> bool:
        """Whether every value holds once the rounding of its inputs is allowed for."""
        if not self.inexact:
            return False
        printed = {_name(point): self._printed(point) for point in self._chosen(results)}
        return all(
            self.allows(value, slack.get(name, 0.0) + ROUNDING * self.inexact / abs(printed[name]))
            for name, value in values.items()
        )

    def alone(self, results: Results) -> list[Results]:
        """Of a sentence about every point: each point that misses, with what it is held against, as results."""
        if self.which != "every" or self.of_paper:
            return []
        parts = []
        for point in self._chosen(results):
            keys = {point.key}
            for asked in (self.over, self.less):
                if isinstance(asked, Mapping):
                    keys |= {other.key for other in self._partners(results, point, asked)}
            part = replace(results, points=tuple(each for each in results.points if each.key in keys))
            try:
                if not all(map(self.allows, self._of_point(part, point).values())):
                    parts.append(part)
            except MissingResultError:
                continue
        return parts

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
        return {_name(point): self._half_a_digit(point) for point in self._chosen(results)}

    def _half_a_digit(self, point: PointResult) -> float:
        """Half a unit of the last digit that the paper prints of a point, and of its inputs, over what is printed."""
        units = fsum(point.paper[metric].quantum or 0.0 for metric in self.metrics)
        inputs = [point.paper[metric] for metric in self.inputs]
        share = fsum((value.quantum or 0.0) / 2 / abs(float(value.value)) for value in inputs)
        return ROUNDING * (units / 2 / abs(self._printed(point)) + share)

    def _partners(self, results: Results, point: PointResult, asked: Mapping[str, Any]) -> list[PointResult]:
        """The points that a point is held against: one, or as many as a list asks for. Raises `MissingResultError`."""
        alike = results.of(getattr(point, self.match), self.match)
        others = [other for other in alike if is_one(other, asked)]
        one = not any(isinstance(value, list) for value in asked.values())
        if not others or (one and len(others) != 1):
            same = getattr(point, self.match)
            raise MissingResultError(f"{len(others)} points are {_said(asked)} at {same}")
        return others

    def _others(self, results: Results, point: PointResult, asked: Mapping[str, Any]) -> dict[str, float]:
        """What a point is held against, by series."""
        return {other.series: self._value(results, other) for other in self._partners(results, point, asked)}


def _name(point: PointResult) -> str:
    return f"{point.series} {point.label}".strip()


def is_one(point: PointResult, asked: Mapping[str, Any]) -> bool:
    """Whether a point has these parameters, or is of that series, label or key; of a list, one of them."""
    for name, value in asked.items():
        own = getattr(point, name) if name in ("series", "label", "key") else point.parameters.get(name)
        if own not in value if isinstance(value, list) else own != value:
            return False
    return True


def _spelled(metric: str) -> str:
    """A metric's name as words."""
    return " ".join({"gpu": "GPU", "flops": "FLOPs", "s": "second"}.get(word, word) for word in metric.split("_"))


def _said(asked: Mapping[str, Any], joined: str = "and") -> str:
    """Which points are asked for: '1F1B, p=8', '530B and 1T'."""
    parts = []
    for name, value in asked.items():
        text = f" {joined} ".join(map(str, value)) if isinstance(value, list) else str(value)
        parts.append(text if name in ("series", "label", "key") else f"{name}={text}")
    return ", ".join(parts)
