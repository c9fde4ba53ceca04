"""Where the verdict of a claim flips: for each clause of its tolerance, results just inside and just outside of it.

For every artifact with claims there is a module beside this one, of the same name, whose `EDGES` maps the id of each
claim to its edges: one, or a nest of them. The values there are those of the claim's words; nothing is taken from the
artifact's constants. Nothing is simulated: an edge lays out the metrics of the artifact's points so that the quantity
which its clause is about has a given value x.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

from reproduce.experiment.artifact import IN_THE_PAPER
from reproduce.experiment.claims import Claim
from reproduce.experiment.judging import judge
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Point
from results.records import ClaimResult, Metric, PaperValue, PointResult

CONTRADICTED, INCONSISTENT, NOT_TESTABLE = "contradicted", "paper inconsistent", "not testable here"
ROUNDING = 1e-9  # relative: how far from its value an edge is looked at, unless it says otherwise


@dataclass(frozen=True)
class Blank:
    """A point without results: as functions of edges see it, and as a result to fill in."""

    seen: SimpleNamespace
    result: PointResult


def altered(result: PointResult, **fields: Any) -> PointResult:
    """A copy with other fields, unchecked: the checks would take most of the time of these tests."""
    changed = copy(result)
    for name, value in fields.items():
        object.__setattr__(changed, name, value)
    return changed


def blanks(points: Sequence[Point]) -> list[Blank]:
    """Points without results. Seen are their parameters, `key`, `series`, `label`, `index` and the paper's values."""
    points_without_results = []
    for index, point in enumerate(points):
        papers = {name: value.value for name, value in point.paper.items()}
        named = {"key": point.key, "series": point.series, "label": point.label, "index": index, "paper": papers}
        result = PointResult(
            *(point.key, point.series, point.label, point.parameters, "ok", None, "0" * 64), paper=point.paper
        )
        points_without_results.append(Blank(SimpleNamespace(**{**point.parameters, **named}), result))
    return points_without_results


Lay = Callable[[Sequence[Blank], float, bool], tuple[PointResult, ...]]


@dataclass(frozen=True)
class Edge:
    """One end of what a clause of a claim's tolerance allows.

    - `words`: the clause, as the claim's tolerance or sentence has it
    - `value`: the x at which the verdict flips
    - `holds`: 'above', 'below' or 'only at' that value, or 'nowhere'
    - `lay`: the results of points for an x; with True as the paper's values instead of ours
    - `tie`: whether the claim holds at the value itself; None where floating point or the order of points decides
    - `step`: how far from the value the verdict is looked at
    - `inside`, `outside`: the verdict there, if the claim holds and if it does not
    - `patch`: functions of x that give what stands in place of something, by its dotted name
    """

    words: str
    value: float
    holds: str
    lay: Lay
    tie: bool | None = None
    step: float = 0.0
    outside: str = CONTRADICTED
    patch: Mapping[str, Callable[[float], Any]] = field(default_factory=dict)
    inside: str = "holds"

    def probes(self) -> Iterator[tuple[float, bool]]:
        """Values of x, and whether the claim holds there."""
        step = self.step or ROUNDING * abs(self.value)
        yield self.value - step, self.holds == "below"
        yield self.value + step, self.holds == "above"
        if self.tie is not None:
            yield self.value, self.tie

    def judged(self, claim: Claim, points: Sequence[Blank], x: float) -> ClaimResult:
        """The claim, or the claim on the paper's own points, judged where the clause's quantity is x."""
        with ExitStack() as stack:
            for name, replacement in self.patch.items():
                stack.enter_context(mock.patch(name, replacement(x)))
            laid = self.lay(points, x, claim.id.endswith(IN_THE_PAPER))
            return judge(
                claim, Results(tuple(map(sampled, laid)) if claim.fidelity == "measured" else laid, claim.fidelity)
            )


def sampled(point: PointResult) -> PointResult:
    """The point as if every sample of each of its metrics had been its value."""
    return replace(point, metrics={n: replace(m, samples=(m.value,) * 3) for n, m in point.metrics.items()})


def edge(
    words: str,
    value: float,
    holds: str,
    *,
    tie: bool | None = None,
    step: float = 0.0,
    outside: str = CONTRADICTED,
    patch: Mapping[str, Callable[[float], Any]] | None = None,
    out: Callable[[Any, float], bool] | None = None,
    change: Callable[[Any, float], Mapping[str, Any]] | None = None,
    label: Callable[[Any, float], str] | None = None,
    paper: Mapping[str, Any] | None = None,
    **metrics: Any,
) -> Edge:
    """An edge whose points have these metrics: constants, or functions of a point and x (None: the point lacks it).

    Such functions see a point as `blanks` gives it. `out` says which points are out of memory; `change` gives
    parameters, `label` labels, and `paper` the paper's values by metric, that replace the artifact's.
    """

    def values_of(given: Mapping[str, Any], seen: Any, x: float) -> dict[str, float]:
        values = {name: value(seen, x) if callable(value) else value for name, value in given.items()}
        return {name: value for name, value in values.items() if value is not None}

    def lay(points: Sequence[Blank], x: float, as_papers: bool) -> tuple[PointResult, ...]:
        if not (metrics or out or change or label or paper):
            return tuple(blank.result for blank in points)
        results = []
        for blank in points:
            seen, published = blank.seen, blank.result.paper
            values = values_of(metrics, seen, x)
            if as_papers:
                ours, papers = {}, {name: PaperValue(v, "1", "text") for name, v in values.items()} if published else {}
            else:
                ours = {name: Metric(v, "1", "derived") for name, v in values.items()}
                theirs = values_of(paper or {}, seen, x).items()
                papers = {**published, **{name: replace(published[name], value=v) for name, v in theirs}}
            full = out is not None and out(seen, x)
            results.append(
                altered(
                    blank.result,
                    label=label(seen, x) if label else seen.label,
                    parameters={**blank.result.parameters, **change(seen, x)} if change else blank.result.parameters,
                    status="oom" if full else "ok",
                    reason="does not fit" if full else None,
                    metrics=ours,
                    paper=papers,
                )
            )
        return tuple(results)

    return Edge(words, value, holds, lay, tie, step, outside, patch or {})


# The claim holds above a value, or below it; `over` and `under` not at it; `at_least` and `at_most` at it as well.
above, below = (partial(edge, holds=side) for side in ("above", "below"))
over, under = (partial(side, tie=False) for side in (above, below))
at_least, at_most = (partial(side, tie=True) for side in (above, below))


def between(words: str, low: float, high: float, **how: Any) -> list[Edge]:
    """The claim holds between two values."""
    return [above(words, low, **how), below(words, high, **how)]


def within(words: str, value: float, slack: float, **how: Any) -> list[Edge]:
    """The claim holds for what is off a value by at most `slack`."""
    return between(words, value - slack, value + slack, **{"step": ROUNDING * slack, **how})


def only(words: str, value: float, **how: Any) -> Edge:
    """The claim holds at a value and at no other."""
    return edge(words, value, "only at", tie=True, **how)


def switch(words: str, **how: Any) -> Edge:
    """The claim holds where x is 1, and not where it is 0."""
    return edge(words, 0.5, "above", step=0.5, **how)


def not_testable(**how: Any) -> list[Edge]:
    """No results can test the claim."""
    return [edge("", 1.0, "nowhere", outside=NOT_TESTABLE, **how)]


def edges_in(id: str) -> dict[str, list[Edge]]:
    """The edges of each claim in an artifact's module, there one edge or a nest of them."""

    def flat(nested: Any) -> Iterator[Edge]:
        if isinstance(nested, Edge):
            yield nested
        else:
            for each in nested:
                yield from flat(each)

    module = import_module(f"tests.reproduce.tolerances.{id}")
    return {claim: list(flat(nested)) for claim, nested in module.EDGES.items()}


def at(otherwise: Any = 1.0, /, **fields: Any) -> Callable[[Any, float], Any]:
    """x at the points that have these fields; elsewhere a value, or what a function says of the point."""

    def value(point: Any, x: float) -> Any:
        if all(getattr(point, name) == wanted for name, wanted in fields.items()):
            return x
        return otherwise(point) if callable(otherwise) else otherwise

    return value


def falls(words: str, metric: str, by: str, levels: Sequence[Any], **how: Any) -> list[Edge]:
    """A metric falls from each level of a parameter to the next; equal to the level before, it does not.

    x is the metric at one level, of the points that are `among`; other points fall as they should, or have `rest`.
    With `batches` the points of each of these batch sizes are judged by themselves.
    """
    return _ordered(words, metric, by, {level: 2.0 * (len(levels) - i) for i, level in enumerate(levels)}, below, **how)


def rises(words: str, metric: str, by: str, levels: Sequence[Any], **how: Any) -> list[Edge]:
    """A metric rises from each level of a parameter to the next: see `falls`."""
    return _ordered(words, metric, by, {level: 2.0 * (i + 1) for i, level in enumerate(levels)}, above, **how)


def _ordered(
    words: str,
    metric: str,
    by: str,
    line: Mapping[Any, float],
    side: Callable[..., Edge],
    *,
    among: Callable[[Any], bool] = lambda point: True,
    rest: float | None = None,
    batches: Sequence[int] = (),
    **how: Any,
) -> list[Edge]:
    if batches:
        each = (_ordered(words, metric, by, line, side, among=lambda point, B=B: point.B == B, **how) for B in batches)
        return [edge for edges in each for edge in edges]

    def at_level(level: Any) -> Callable[[Any, float], float]:
        def value(point: Any, x: float) -> float:
            if not among(point) and rest is not None:
                return rest
            place = getattr(point, by)
            return x if place == level and among(point) else line[place]

        return value

    return [
        side(words, line[before], tie=False, **{metric: at_level(level)}, **how) for before, level in pairwise(line)
    ]


def larger_across_nodes(words: str, batches: Sequence[int], **how: Any) -> list[Edge]:
    """For t = 16 and 32, tensor parallelism takes a larger share of each iteration than for t = 2 and 8.

    x is the share at one t; it is 0.25 at the others in a node, and 0.5 across nodes.
    """
    ends = ((below, 8, 0.5), (below, 2, 0.5), (above, 16, 0.25), (above, 32, 0.25))
    return [
        side(
            words,
            others,
            tie=False,
            iteration_time=1,
            tensor_communication_time=at(lambda point: 0.25 if point.t <= 8 else 0.5, B=B, t=t),
            **how,
        )
        for B in batches
        for side, t, others in ends
    ]


PARAMETERS = "reproduce.experiment.sized.parameters"  # eq. (2), as claims on models' sizes call it


def printed_sizes(**layers: str) -> list[Edge]:
    """Sizes in billions that the paper prints for models of so many layers: `layers_32="5.9"`.

    The count by eq. (2) is what is printed, rounded: 5.85 to 5.95 billion for '5.9'.
    """
    printed = {int(name.removeprefix("layers_")): text for name, text in layers.items()}
    edges = []
    for judged, text in printed.items():
        digit = 10.0 ** -len(text.partition(".")[2])

        def counts(x: float, judged: int = judged) -> Callable[[Any], float]:
            return lambda model: x if model.layers == judged else float(printed[model.layers]) * 1e9

        low, high = (float(text) - digit / 2) * 1e9, (float(text) + digit / 2) * 1e9
        words = "rounded to the digits printed"
        edges += between(words, low, high, outside=INCONSISTENT, patch={PARAMETERS: counts})
    return edges
