"""What else the paper's values may be as they were read from a plot, and measured ones within their spread."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from math import exp, log

from reproduce.experiment.alternatives import Shifts, any_read, groups_of
from reproduce.experiment.results import Alternative, Read, Results, with_fields
from results.records import Metric, PaperValue, PointResult

PLOT = "plot"  # how a value was read that is not printed
SPREAD = 0.8  # of the samples of a measured value lie between its ends


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
