"""The bar of a claim: what it needs, where its bound is, and what came out.

A claim has a bar if one number decides it: one bound in the words that were fixed beforehand, and one number in its
result. A bar that would say anything else than the verdict is not drawn.
"""

import re
from collections.abc import Mapping
from typing import Any

from reproduce.experiment.bounded import Bounded
from results.records import ClaimResult

_BOUND = re.compile(r"(at least|at most|above|below|more than|less than|within) (\d+(?:\.\d+)?)( ?%)?")
_LEAST = ("at least", "above", "more than")


def bar(claim: ClaimResult, judge: object) -> dict[str, Any] | None:
    """Bound and value of a claim that one number decides, with the side that it needs, and both in words."""
    found = _of_bounds(claim, judge) if isinstance(judge, Bounded) else _of_words(claim)
    if found is None:
        return None
    value, bound, least = found["value"], found["bound"], found["least"]
    inside = value >= bound if least else value <= bound
    return found if inside == (claim.verdict == "holds") or claim.verdict == "inconclusive" else None


def _of_bounds(claim: ClaimResult, judge: Bounded) -> dict[str, Any] | None:
    """Of a claim that is data: the value nearest to its only bound."""
    numbers = _values(claim.numbers)
    if len(judge.bounds) != 1 or judge.which == "most" or judge.to_the_digits:
        return None
    ((name, bound),) = judge.bounds.items()
    least = name in ("at_least", "above")
    value = numbers.get("least" if least else "most")
    if judge.which in ("largest", "smallest", "mean") and value is not None:
        value = numbers.get({"largest": "most", "smallest": "least"}.get(judge.which, ""))
    if value is None:
        return None
    return _shown(value, bound, least, judge.said(name), lambda number: f"{number:.3g}")


def _of_words(claim: ClaimResult) -> dict[str, Any] | None:
    """Of a claim that is judged by a function: its only number, and the only bound in its tolerance."""
    bounds, numbers = _BOUND.findall(claim.tolerance or ""), _values(claim.numbers)
    if len(bounds) != 1 or len(numbers) != 1 or next(iter(claim.numbers.values())).unit != "1":
        return None
    words, number, percent = bounds[0]
    (value,) = numbers.values()
    scale = 100.0 if percent else 1.0
    return _shown(
        abs(value) if words == "within" else value,
        float(number) / scale,
        words in _LEAST,
        f"{words} {number}{percent.strip()}",
        lambda shown: f"{scale * shown:.3g}{percent.strip()}",
    )


def _values(numbers: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(number.value) for name, number in numbers.items() if number.value is not None}


def _shown(value: float, bound: float, least: bool, needs: str, show: Any) -> dict[str, Any]:
    said = show(value).replace("-", "\N{MINUS SIGN}")
    return {"value": value, "bound": bound, "least": least, "needs": needs, "said": said}
