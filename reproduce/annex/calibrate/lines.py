"""Lines through timings, t = fixed*x + amount/rate, with the least mean |log(line / timing)|.

The best line by such a mean, which outliers hardly move, goes through two of the timings: all of those are tried.
"""

from collections.abc import Sequence
from itertools import combinations
from math import log
from typing import NamedTuple

LEAST = 1e-9  # seconds: what a file needs positive is at least this


class FitPoint(NamedTuple):
    """A timing: how often the fixed time is in it, what moves at the rate, and its seconds."""

    x: float
    amount: float
    seconds: float


class Fitted(NamedTuple):
    """A number and a range that it may be in."""

    value: float
    low: float
    high: float


def line(rows: Sequence[FitPoint]) -> tuple[Fitted, Fitted]:
    """The fixed time and the rate; their ranges are what leaving out any one of the rows makes of them.

    Neither is below a nanosecond's worth. Raises ValueError for fewer than two rows.
    """
    if len(rows) < 2:
        raise ValueError(f"rows={list(rows)} make no line; needs at least two timings; try more sizes")
    fits = [_solve(rows)]
    if len(rows) > 2:
        fits += [_solve([*rows[:i], *rows[i + 1 :]]) for i in range(len(rows))]
    fixed, rates = zip(*fits, strict=True)
    return Fitted(fixed[0], min(fixed), max(fixed)), Fitted(rates[0], min(rates), max(rates))


def _solve(rows: Sequence[FitPoint]) -> tuple[float, float]:
    through = [(LEAST, row.amount / (row.seconds - LEAST * row.x)) for row in rows]
    for first, second in combinations(rows, 2):
        determinant = first.x * second.amount - second.x * first.amount
        if not determinant:
            continue
        fixed = (first.seconds * second.amount - second.seconds * first.amount) / determinant
        inverse = (first.x * second.seconds - second.x * first.seconds) / determinant
        if fixed >= LEAST and inverse > 0:
            through.append((fixed, 1 / inverse))
    return min(through, key=lambda candidate: line_error(rows, *candidate))


def line_error(rows: Sequence[FitPoint], fixed: float, rate: float) -> float:
    """Mean |log(line / timing)|."""
    return sum(abs(log((fixed * row.x + row.amount / rate) / row.seconds)) for row in rows) / len(rows)
