"""The decision: from pairs of times to a verdict. Pure numpy, without clock, process or file.

Input are logarithms of launch times in pairs: the i-th of `base` and the i-th of `head` were launched one after the
other, in random order. The statistic T is the mean of the faster half of head minus that of base, since what disturbs
a machine only adds time. A hypothesis "the slow-down is 3%" is tested by taking 3% off head and swapping base and head
inside pairs at random: if it holds, the labels mean nothing, whatever the distribution of the noise and however it
drifts from pair to pair. For 12 pairs all 4096 swaps are tried, for more pairs that many at random.

    regressed      "slow-down <= 3%" is rejected
    ok             "slow-down >= 10%" is rejected
    improved       so is "speed-up <= 3%"
    inconclusive   neither

Looks at 12, 20 and 32 pairs spend errors of 0.1%, 0.2% and 0.2%: each of the two wrong verdicts has a probability of
at most 0.5%, for the whole suite (Holm) and for all looks together. The price is that a difference between 3% and 10%
may get either verdict, or none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Logs = NDArray[np.float64]
Swaps = NDArray[np.bool_]

REGRESSED, OK, IMPROVED, INCONCLUSIVE = "regressed", "ok", "improved", "inconclusive"
TOLERATED, EXCLUDED = math.log(1.03), math.log(1.10)
SWAPS = 4096  # 2^12: all there are for the first look
TIE = 1e-12  # sums of the same numbers in another order


class Look(NamedTuple):
    """An analysis after `pairs` pairs, with the probability `alpha` of each wrong verdict that it may spend."""

    pairs: int
    alpha: float


LOOKS = (Look(12, 0.001), Look(20, 0.002), Look(32, 0.002))


class Hypothesis(NamedTuple):
    """What a look tries to reject: a slow-down (as a logarithm) of at most, or at least, `shift`."""

    shift: float
    at_most: bool


SLOW_DOWN_TOLERATED = Hypothesis(TOLERATED, at_most=True)
SLOW_DOWN_EXCLUDED = Hypothesis(EXCLUDED, at_most=False)
NO_SPEED_UP = Hypothesis(-TOLERATED, at_most=False)


@dataclass(frozen=True)
class Interval:
    """Slow-downs as ratios minus one: the estimate, and those that a look cannot reject."""

    estimate: float
    lower: float
    upper: float


def swap_table(pairs: int, rng: np.random.Generator) -> Swaps:
    """[pairs, SWAPS]: whether a swap exchanges the labels of a pair. The first exchanges none."""
    if 2**pairs <= SWAPS:
        return np.array(list(product((False, True), repeat=pairs))).T
    table = rng.random((pairs, SWAPS)) < 0.5
    table[:, 0] = False
    return table


def swap_tables(seed: int, looks: Sequence[Look] = LOOKS) -> dict[int, Swaps]:
    """The swaps of every look, by its number of pairs."""
    rng = np.random.default_rng(seed)
    return {look.pairs: swap_table(look.pairs, rng) for look in looks}


def statistic(base: Logs, head: Logs) -> float:
    """T: the mean of the faster half of `head` minus that of `base`; a logarithm."""
    half = len(base) // 2
    return float(np.sort(head)[:half].mean() - np.sort(base)[:half].mean())


def null_distribution(base: Logs, head: Logs, swaps: Swaps) -> Logs:
    """[swaps]: T of each relabelling, the first of which is T of the labels as they are.

    A relabelling's faster halves are found in the sorted pool of both sides, by counting, without sorting again.
    """
    pairs = len(base)
    half = pairs // 2
    pool = np.concatenate([base, head])
    order = np.argsort(pool, kind="stable")
    faster_heads = np.zeros(swaps.shape[1], dtype=np.int8)
    found = np.zeros(swaps.shape[1])
    for place, (i, value) in enumerate(zip(order, pool[order] / half, strict=True)):
        is_head = ~swaps[i - pairs] if i >= pairs else swaps[i]
        faster_heads += is_head
        of_head = is_head & (faster_heads <= half)
        of_base = ~is_head & (faster_heads > place - half)  # of place + 1 so far, at most half are base's
        found += value * (of_head.view(np.int8) - of_base.view(np.int8))
    return found


def p_value(base: Logs, head: Logs, hypothesis: Hypothesis, swaps: Swaps) -> float:
    """The share of relabellings at least as far from the hypothesis as what was measured; 1 if that is within it."""
    shifted = head - hypothesis.shift
    if (statistic(base, shifted) > 0) != hypothesis.at_most:
        return 1.0
    found = null_distribution(base, shifted, swaps)
    extreme = found >= found[0] - TIE if hypothesis.at_most else found <= found[0] + TIE
    return float(extreme.mean())


def interval(base: Logs, head: Logs, alpha: float, swaps: Swaps) -> Interval:
    """The slow-downs that a test at `alpha` on either side does not reject, by bisection."""
    estimate = statistic(base, head)

    def bound(at_most: bool) -> float:
        inside, outside = estimate, estimate - 1.0 if at_most else estimate + 1.0
        if p_value(base, head, Hypothesis(outside, at_most), swaps) > alpha:
            return -1.0 if at_most else math.inf  # too few pairs for any bound
        for _ in range(20):
            middle = (inside + outside) / 2
            if p_value(base, head, Hypothesis(middle, at_most), swaps) > alpha:
                inside = middle
            else:
                outside = middle
        return math.expm1(inside)

    return Interval(math.expm1(estimate), bound(at_most=True), bound(at_most=False))


def holm(p_values: Mapping[str, float], alpha: float, family: int) -> set[str]:
    """The hypotheses rejected by Holm's procedure, among `family` of which only these have been tested."""
    rejected: set[str] = set()
    for name, p in sorted(p_values.items(), key=lambda entry: entry[1]):
        if p > alpha / (family - len(rejected)):
            break
        rejected.add(name)
    return rejected


class Procedure:
    """The verdicts of a suite over the looks of a session; a benchmark that has one is not looked at again.

    A hypothesis rejected at an earlier look leaves the family, and what it spent goes to the others, as within Holm's
    procedure. One that is no longer tested because the opposite verdict fell stays in: its going depends on the data.
    """

    def __init__(self, names: Sequence[str], tables: Mapping[int, Swaps], looks: Sequence[Look] = LOOKS) -> None:
        self.names, self.tables, self.looks = tuple(names), tables, tuple(looks)
        self.done = 0
        self.verdicts: dict[str, str] = {}
        self._rejected: dict[Hypothesis, set[str]] = {
            hypothesis: set() for hypothesis in (SLOW_DOWN_TOLERATED, SLOW_DOWN_EXCLUDED, NO_SPEED_UP)
        }

    @property
    def next_look(self) -> Look | None:
        """The look that is due, or None if all are decided or no look is left."""
        return self.looks[self.done] if self.undecided and self.done < len(self.looks) else None

    @property
    def undecided(self) -> tuple[str, ...]:
        """The benchmarks without a verdict."""
        return tuple(name for name in self.names if name not in self.verdicts)

    def look(self, base: Mapping[str, Logs], head: Mapping[str, Logs]) -> None:
        """Decide what can be, from the first pairs of the undecided benchmarks: as many as the look needs, or more."""
        look = self.looks[self.done]
        self.done += 1
        sides = {name: (base[name][: look.pairs], head[name][: look.pairs]) for name in self.undecided}
        regressed = self._reject(SLOW_DOWN_TOLERATED, sides, look)
        ok = self._reject(SLOW_DOWN_EXCLUDED, sides, look) - regressed
        improved = self._reject(NO_SPEED_UP, {name: sides[name] for name in ok}, look)
        for verdict, names in ((OK, ok), (IMPROVED, improved), (REGRESSED, regressed)):
            self.verdicts.update(dict.fromkeys(names, verdict))

    def _reject(self, hypothesis: Hypothesis, sides: Mapping[str, tuple[Logs, Logs]], look: Look) -> set[str]:
        rejected = self._rejected[hypothesis]
        p_values = {name: p_value(*both, hypothesis, self.tables[look.pairs]) for name, both in sides.items()}
        new = holm(p_values, look.alpha, len(self.names) - len(rejected))
        rejected |= new
        return new


def overall(verdicts: Sequence[str]) -> str:
    """The verdict of a suite: it is ok only if every benchmark is, and regressed if any is."""
    for verdict in (REGRESSED, INCONCLUSIVE, IMPROVED):
        if verdict in verdicts:
            return verdict
    return OK if verdicts else INCONCLUSIVE
