"""Decides from pairs of launches whether head is slower than base. Pure numpy, without clock, process or file.

The input is an array [pairs, rounds] of differences: log(head / base) of the seconds in each round of each pair. The
statistic T is their interquartile mean: it cuts off the disturbance of one process of a round as an outlier, and a
disturbance of both cancels in the difference. A hypothesis "the slow-down is 3%" is tested by subtracting log(1.03) and
swapping base and head inside pairs at random: if it is true, the labels mean nothing, whatever the distribution of the
noise and however it drifts from pair to pair. For 12 pairs all 4096 swaps are tried, for more pairs 4096 random ones.

    regressed      "slow-down <= 3%" is rejected
    ok             "slow-down >= 10%" is rejected
    improved       "slow-down >= 10%" and "speed-up <= 3%" are rejected
    inconclusive   none of these is rejected

Looks at 12, 20 and 32 pairs spend errors of 0.1%, 0.2% and 0.2%: each of the two wrong verdicts has a probability of
at most 0.5%, for the whole suite (Holm) and for all looks together. The price is that a difference between 3% and 10%
may get either verdict, or none.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]
Swaps = NDArray[np.bool_]

REGRESSED, OK, IMPROVED, INCONCLUSIVE = "regressed", "ok", "improved", "inconclusive"
TOLERATED, EXCLUDED = math.log(1.03), math.log(1.10)
SWAPS = 4096  # 2^12: every possible swap of the first look's 12 pairs
TIE = 1e-12  # T of equal numbers summed in another order may differ by this much


class Look(NamedTuple):
    """An analysis after `pairs` pairs, with the probability `alpha` of each wrong verdict that it may spend."""

    pairs: int
    alpha: float


LOOKS = (Look(12, 0.001), Look(20, 0.002), Look(32, 0.002))


class Hypothesis(NamedTuple):
    """A hypothesis that a look tries to reject: the slow-down (a logarithm) is at most, or at least, `shift`."""

    shift: float
    at_most: bool


SLOW_DOWN_TOLERATED = Hypothesis(TOLERATED, at_most=True)
SLOW_DOWN_EXCLUDED = Hypothesis(EXCLUDED, at_most=False)
NO_SPEED_UP = Hypothesis(-TOLERATED, at_most=False)


class ConfidenceInterval(NamedTuple):
    """Slow-downs as ratios minus one: the estimate, and the bounds of those that a look cannot reject."""

    estimate: float
    lower: float
    upper: float


def swap_table(pairs: int, rng: np.random.Generator) -> Swaps:
    """Booleans [pairs, SWAPS] that say whether a swap exchanges the labels of a pair. The first swap exchanges none."""
    if 2**pairs <= SWAPS:
        return np.array(list(product((False, True), repeat=pairs))).T
    table = rng.random((pairs, SWAPS)) < 0.5
    table[:, 0] = False
    return table


def swap_tables(seed: int) -> dict[int, Swaps]:
    """The swaps of every look, by its number of pairs."""
    rng = np.random.default_rng(seed)
    return {look.pairs: swap_table(look.pairs, rng) for look in LOOKS}


def statistic(differences: Logs) -> float:
    """The statistic T of differences [pairs, rounds]: their interquartile mean, a logarithm."""
    return float(_interquartile_mean(differences.reshape(1, -1))[0])


def null_distribution(differences: Logs, swaps: Swaps) -> Logs:
    """The statistic T of the differences under each swap of labels: an array [swaps]."""
    signs = np.where(swaps.T, -1.0, 1.0)[:, :, None]
    return _interquartile_mean((signs * differences).reshape(len(signs), -1))


def _interquartile_mean(rows: Logs) -> Logs:
    """The mean of each row without its lowest and its highest quarter."""
    quarter = rows.shape[1] // 4
    middle: Logs = np.sort(rows)[:, quarter : rows.shape[1] - quarter].mean(axis=1)
    return middle


def p_value(differences: Logs, hypothesis: Hypothesis, swaps: Swaps) -> float:
    """The share of swaps with a T at least as far from the hypothesis as the measured T; 1 if that agrees with it."""
    away = (differences - hypothesis.shift) * (1 if hypothesis.at_most else -1)
    measured = statistic(away)
    if measured <= 0:
        return 1.0
    return float((null_distribution(away, swaps) >= measured - TIE).mean())


def interval(differences: Logs, alpha: float, swaps: Swaps) -> ConfidenceInterval:
    """The interval of the slow-downs that a test at `alpha` on either side does not reject, found by bisection."""
    estimate = statistic(differences)

    def bound(at_most: bool) -> float:
        inside, outside = estimate, estimate - 1.0 if at_most else estimate + 1.0
        if p_value(differences, Hypothesis(outside, at_most), swaps) > alpha:
            return -1.0 if at_most else math.inf  # too few pairs for any bound
        for _ in range(20):
            middle = (inside + outside) / 2
            if p_value(differences, Hypothesis(middle, at_most), swaps) > alpha:
                inside = middle
            else:
                outside = middle
        return math.expm1(inside)

    return ConfidenceInterval(math.expm1(estimate), bound(at_most=True), bound(at_most=False))


def holm(p_values: Mapping[str, float], alpha: float, family: int) -> set[str]:
    """The names whose hypothesis Holm's procedure rejects, of a family of `family` of which only these were tested."""
    rejected: set[str] = set()
    for name, p in sorted(p_values.items(), key=lambda entry: entry[1]):
        if p > alpha / (family - len(rejected)):
            break
        rejected.add(name)
    return rejected


class Procedure:
    """Collects the verdicts of a suite over the looks of a session. A benchmark with a verdict is not looked at again.

    `done` is the number of looks done. A hypothesis that an earlier look rejected leaves the family, and its share of
    the error goes to the others, as within Holm's procedure. A hypothesis that is no longer tested because the opposite
    verdict was reached stays in the family, because it depends on the data that it is not tested.
    """

    def __init__(self, names: Sequence[str], tables: Mapping[int, Swaps]) -> None:
        self.names, self.tables = tuple(names), tables
        self.done = 0
        self.verdicts: dict[str, str] = {}
        self._rejected: defaultdict[Hypothesis, set[str]] = defaultdict(set)

    @property
    def next_look(self) -> Look | None:
        """The look that is due, or None if all are decided or no look is left."""
        return LOOKS[self.done] if self.undecided and self.done < len(LOOKS) else None

    @property
    def undecided(self) -> tuple[str, ...]:
        """The benchmarks without a verdict."""
        return tuple(name for name in self.names if name not in self.verdicts)

    def look(self, differences: Mapping[str, Logs]) -> None:
        """Decide what can be decided from differences [pairs, rounds] of each undecided benchmark.

        The look uses the first `look.pairs` pairs; more may be given.
        """
        look = LOOKS[self.done]
        self.done += 1
        first_pairs = {name: differences[name][: look.pairs] for name in self.undecided}
        regressed = self._reject(SLOW_DOWN_TOLERATED, first_pairs, look)
        ok = self._reject(SLOW_DOWN_EXCLUDED, first_pairs, look) - regressed
        improved = self._reject(NO_SPEED_UP, {name: first_pairs[name] for name in ok}, look)
        for verdict, names in ((OK, ok), (IMPROVED, improved), (REGRESSED, regressed)):
            self.verdicts.update(dict.fromkeys(names, verdict))

    def _reject(self, hypothesis: Hypothesis, differences: Mapping[str, Logs], look: Look) -> set[str]:
        """The names for which this look rejects the hypothesis, added to those of earlier looks."""
        rejected = self._rejected[hypothesis]
        p_values = {name: p_value(logs, hypothesis, self.tables[look.pairs]) for name, logs in differences.items()}
        new = holm(p_values, look.alpha, len(self.names) - len(rejected))
        rejected |= new
        return new


def overall(verdicts: Sequence[str]) -> str:
    """The verdict of a suite: regressed if any benchmark is, else inconclusive if any is, else improved, else ok."""
    return next((verdict for verdict in (REGRESSED, INCONCLUSIVE, IMPROVED, OK) if verdict in verdicts), INCONCLUSIVE)
