"""Lines through timings, t = fixed*x + amount/rate, with the least mean |log(line / timing)|.

The best line by such a mean, which outliers hardly move, goes through two of the timings: up to a number all those are
tried.
"""

from collections.abc import Sequence
from itertools import combinations
from math import log
from typing import NamedTuple

LEAST = 1e-9  # seconds: what a file needs positive is at least this
MOST = 128  # rows through which lines are tried
AT_ONCE = 1 << 20  # errors


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

    Neither is below a nanosecond's worth. Raises ValueError for rows that no line goes through.
    """
    import numpy as np  # which `--help` need not load

    tried = _tried(rows)
    if len(rows) < 2 or not tried:
        raise ValueError(f"rows={list(rows)[:3]} make no line; needs at least two timings; try more sizes")
    x, amounts, seconds = (np.array(column)[None] for column in zip(*rows, strict=True))
    fits = [(np.inf, 0)] * (len(rows) + 1)  # the least sum of errors and its line: of all rows, then without each
    step = max(1, AT_ONCE // len(rows))
    for first in range(0, len(tried), step):
        some = tried[first : first + step]
        fixed, rates = (np.array([number[i] for number in some])[:, None] for i in (0, 1))
        errors = np.abs(np.log((fixed * x + amounts / rates) / seconds))
        total = errors.sum(1, keepdims=True)
        sums = np.concatenate((total, total - errors), 1)
        for number, (_, _, through) in enumerate(some):
            sums[number, [row + 1 for row in through]] = np.inf  # a line through a row is none without it
        for i, number in enumerate(sums.argmin(0)):
            fits[i] = min(fits[i], (float(sums[number, i]), first + int(number)))
    best = fits[: None if len(rows) > 2 else 1]
    fixed_times, all_rates = zip(*(tried[number][:2] for error, number in best if error < np.inf), strict=True)
    return (
        Fitted(fixed_times[0], min(fixed_times), max(fixed_times)),
        Fitted(all_rates[0], min(all_rates), max(all_rates)),
    )


def _tried(rows: Sequence[FitPoint]) -> list[tuple[float, float, tuple[int, ...]]]:
    """Fixed times and rates of the lines through two rows, or one and the least fixed time, and these rows' numbers.

    Of more than `MOST` rows, those that are as many and evenly spread over the amounts.
    """
    order = sorted(range(len(rows)), key=lambda i: (rows[i].amount, rows[i].x))
    chosen = sorted({order[i * (len(rows) - 1) // (MOST - 1)] for i in range(MOST)} if len(rows) > MOST else order)
    lines: list[tuple[float, float, tuple[int, ...]]] = []
    for i in chosen:
        x, amount, seconds = rows[i]
        if seconds > LEAST * x:
            lines.append((LEAST, amount / (seconds - LEAST * x), (i,)))
    for i, j in combinations(chosen, 2):
        first, second = rows[i], rows[j]
        determinant = first.x * second.amount - second.x * first.amount
        if not determinant:
            continue
        fixed = (first.seconds * second.amount - second.seconds * first.amount) / determinant
        inverse = (first.x * second.seconds - second.x * first.seconds) / determinant
        if fixed >= LEAST and inverse > 0:
            lines.append((fixed, 1 / inverse, (i, j)))
    return lines


def line_error(rows: Sequence[FitPoint], fixed: float, rate: float) -> float:
    """Mean |log(line / timing)|."""
    return sum(abs(log((fixed * row.x + row.amount / rate) / row.seconds)) for row in rows) / len(rows)
