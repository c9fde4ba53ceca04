"""How good predictions are: relative errors of pairs (ours, the paper's), rank correlation, and naive baselines.

Pure arithmetic on numbers. Errors are relative to the paper's value, ours/paper - 1; mean, worst and bias are of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import correlation
from typing import Any


@dataclass(frozen=True)
class ScoredPair:
    """One prediction and the published value, in the same unit, the published not zero.

    `label` names the point for people; `hidden` (h) and `bubble` ((p-1)/(vm)) are what the baselines know of it.
    """

    label: str
    ours: float
    paper: float
    hidden: int = 1
    bubble: float = 0.0

    @property
    def error(self) -> float:
        """Ours relative to the paper's: +0.1 is 10% too high."""
        return self.ours / self.paper - 1


@dataclass(frozen=True)
class Score:
    """Of n pairs: mean absolute error, bias (mean error), the worst error and its point, Spearman's rank correlation.

    `rank` is None where there is none: fewer than three pairs, or all values of a side equal.
    """

    n: int
    mean: float
    bias: float
    worst: float
    worst_label: str
    rank: float | None

    def to_plain(self) -> dict[str, Any]:
        """The score as `--json` prints it."""
        plain = dict(vars(self))
        return {"worst_point": plain.pop("worst_label"), **plain}

    def shares(self, baselines: Mapping[str, float]) -> dict[str, float | None]:
        """The score and the mean errors of baselines, by the names that records have for them."""
        return {
            "mean_error": self.mean,
            "bias": self.bias,
            "worst_error": self.worst,
            "rank_correlation": self.rank,
            **{f"baseline_{name}": error for name, error in baselines.items()},
        }


def score(pairs: Sequence[ScoredPair]) -> Score:
    """The score of at least one pair. Raises ValueError for none."""
    if not pairs:
        raise ValueError("pairs=[] has nothing to score; needs at least one prediction with a published value")
    worst = max(pairs, key=lambda pair: abs(pair.error))
    return Score(
        n=len(pairs),
        mean=mean_error(pairs),
        bias=sum(pair.error for pair in pairs) / len(pairs),
        worst=worst.error,
        worst_label=worst.label,
        rank=spearman([pair.ours for pair in pairs], [pair.paper for pair in pairs]),
    )


def mean_error(pairs: Sequence[ScoredPair]) -> float:
    """Mean absolute relative error."""
    return sum(abs(pair.error) for pair in pairs) / len(pairs)


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties with mean ranks; None for fewer than three pairs or a side without order."""
    from pandas import Series

    if len(xs) < 3 or min(len(set(xs)), len(set(ys))) < 2:
        return None
    return correlation(Series(xs).rank(), Series(ys).rank())


# The baselines know the published values: each is fitted to the very points it is scored on, and to the very score, the
# mean absolute relative error. Such a fit goes exactly through as many points as it has coefficients, so trying all of
# those finds the best one.


def _loss(predictions: Sequence[float], values: Sequence[float]) -> float:
    return sum(abs(ours / paper - 1) for ours, paper in zip(predictions, values, strict=True)) / len(values)


def constant_error(pairs: Sequence[ScoredPair]) -> float:
    """Mean error of the best constant."""
    return _multiple_error(pairs, [1.0] * len(pairs))


def bubble_error(pairs: Sequence[ScoredPair]) -> float:
    """Mean error of the best constant divided by 1 + (p-1)/(vm): the paper's bubble formula (Section 2.2)."""
    return _multiple_error(pairs, [1 / (1 + pair.bubble) for pair in pairs])


def _multiple_error(pairs: Sequence[ScoredPair], shape: Sequence[float]) -> float:
    values = [pair.paper for pair in pairs]
    factors = [value / x for value, x in zip(values, shape, strict=True)]
    return min(_loss([factor * x for x in shape], values) for factor in factors)


def line_error(pairs: Sequence[ScoredPair]) -> float:
    """Mean error of the best straight line in the hidden size h."""
    values = [pair.paper for pair in pairs]
    best = constant_error(pairs)  # all there is where every h is the same
    for first, second in combinations(pairs, 2):
        if first.hidden == second.hidden:
            continue
        slope = (second.paper - first.paper) / (second.hidden - first.hidden)
        best = min(best, _loss([first.paper + slope * (pair.hidden - first.hidden) for pair in pairs], values))
    return best


BASELINES = {
    "constant": constant_error,
    "line_in_h": line_error,
    "constant_with_bubble": bubble_error,
}


def baselines(pairs: Sequence[ScoredPair]) -> dict[str, float]:
    """Mean absolute relative error of every baseline, fitted to these pairs."""
    return {name: error(pairs) for name, error in BASELINES.items()}
