"""A session measures rounds in random order, redoes the disturbed ones, looks at the data, and ends in any case.

A pair is `ROUNDS` rounds: under heavy noise one round is not enough to tell a slow-down of 15% (`test_power.py`). In
every round a fresh process of each side is started, and the two measure in turn, slice by slice, in random order,
balanced in blocks of two. A shared machine has phases, of a tenth of a second to minutes, in which it is half as fast.
So each slice of head is compared with the neighbouring slice of base, and the round's difference is the median over
these comparisons.
"""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reproduce.annex.gate.guard import Reading, disturbed
from reproduce.annex.gate.launcher import ProcessLauncher
from reproduce.annex.gate.procedure import INCONCLUSIVE, ConfidenceInterval, Logs, Look, Procedure, interval, statistic
from reproduce.annex.gate.trees import BASE, HEAD

ROUNDS = 3
SLICES = 8  # of each benchmark and side in a round; even, for the balance
CANARIES = SLICES // 2  # in a round: one after each block of two slices
FIRST_READINGS = 16  # of the canary, before anything is measured
TOLD_SHARE = 0.1  # of the budget, that what comes before the session takes, from which on it is said
SPARE_REDOS = 9  # redone rounds that are allowed beyond one for each undisturbed round; with more, the session gives up


class RoundTimes(NamedTuple):
    """A benchmark's times in one round: medians over slices of the seconds, and of log(head / base) of neighbours."""

    base_s: float
    head_s: float
    difference: float

    @classmethod
    def of(cls, base: Sequence[float], head: Sequence[float]) -> "RoundTimes":
        """The medians of slices in seconds; slices at the same place of `base` and `head` are neighbours."""
        difference = np.log(head) - np.log(base)
        return cls(float(np.median(base)), float(np.median(head)), float(np.median(difference)))


@dataclass
class Round:
    """A round of the session: whether head goes first in each slice, and what was measured in it last."""

    head_first: tuple[bool, ...]
    times: dict[str, RoundTimes] = field(default_factory=dict)  # by benchmark
    readings: list[Reading] = field(default_factory=list)  # the canaries between the slices


@dataclass(frozen=True)
class Finding:
    """The verdict on one benchmark, and the rounds it is based on, those of a pair one after the other.

    `reason` says why if there is no verdict.
    """

    name: str
    verdict: str
    rounds: tuple[RoundTimes, ...]
    interval: ConfidenceInterval | None
    reason: str | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return len(self.rounds) // ROUNDS

    @property
    def seconds(self) -> dict[str, tuple[float, ...]]:
        """The seconds in each round, by side."""
        base_s, head_s, _ = zip(*self.rounds, strict=True) if self.rounds else ((), (), ())
        return {BASE: base_s, HEAD: head_s}

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """The slow-down in each round, as a ratio minus one."""
        return tuple(math.expm1(times.difference) for times in self.rounds)

    @property
    def slowdown(self) -> float:
        """The slow-down over all rounds, as a ratio minus one, whether or not there was a look."""
        return math.expm1(statistic(differences(self.rounds)))


@dataclass(frozen=True)
class SessionResult:
    """The findings of a session, by benchmark, and how long it was.

    `rounds` counts all measured rounds, of which `redone` were measured again; `seconds` is the time of the session.
    """

    findings: tuple[Finding, ...] = ()
    pairs: int = 0
    rounds: int = 0
    redone: int = 0
    seconds: float = 0.0


class Session:
    """A session of benchmarks that are measured together, with their decision procedure.

    The budget counts seconds of `clock` from `started`, by default from now.
    """

    def __init__(
        self,
        suite: Procedure,
        launcher: ProcessLauncher,
        canary: Callable[[], Reading],
        seed: int,
        budget_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.suite, self.launcher, self.canary = suite, launcher, canary
        self.clock, self.progress = clock, progress
        self.started = self.began = clock() if started is None else started
        self.end = self.started + budget_s
        self.budget_s = budget_s
        self.readings: list[Reading] = []  # all canaries
        self.rounds: list[Round] = []
        self.redone = 0
        self._looked_at: dict[str, tuple[tuple[RoundTimes, ...], Look]] = {}  # the last look, and the rounds before it
        self._rng = random.Random(seed)
        self._longest = 0.0

    def run(self) -> SessionResult:
        """Measure and decide until all is decided, no look is left, the budget is spent or the machine is too busy."""
        reason, self.began = "the pairs of all looks do not tell", self.clock()
        try:
            self.readings += [self.canary() for _ in range(FIRST_READINGS)]
            while look := self.suite.next_look:
                if stop := self._measure(look.pairs):
                    reason = stop
                    break
                self._look(look)
        finally:
            self.launcher.stop()
        findings = tuple(self._finding(name, reason) for name in self.suite.names)
        pairs, rounds = len(self.rounds) // ROUNDS, len(self.rounds) + self.redone
        return SessionResult(findings, pairs, rounds, self.redone, self.clock() - self.started)

    def _measure(self, pairs: int) -> str | None:
        """Measure until there are `pairs` pairs of undisturbed rounds. Returns the reason if that is not possible."""
        while True:
            bad = [measured for measured in self.rounds if disturbed(measured.readings, self.readings)]
            good = len(self.rounds) - len(bad)
            if good == pairs * ROUNDS:
                return None
            if self.redone > SPARE_REDOS + good:
                return f"the machine is too loaded: {self.redone} rounds redone, {good} undisturbed; stop other work"
            if (now := self.clock()) + self._longest > self.end:
                before = self.began - self.started
                enough = max(before + 2 * self.budget_s, now - self.started + self._longest * (pairs * ROUNDS - good))
                spent = f"the budget of {self.budget_s:.0f} s is exhausted after {good // ROUNDS} of {pairs} pairs"
                if before > TOLD_SHARE * self.budget_s:
                    spent += f", as building, first runs and counts took {before:.0f} s"
                return f"{spent}; try --budget {math.ceil(enough)}s"
            self.progress(f"round {good + 1} of {pairs * ROUNDS}, {self.redone} redone")
            self.redone += bool(bad)
            before = self.clock()
            if bad:
                self._launch(bad[0])
            else:
                self.rounds.append(self._launch(Round(self._order())))
            self._longest = max(self._longest, self.clock() - before)

    def _look(self, look: Look) -> None:
        """Decide, and keep the times that the decision is based on.

        A round that is redone later measures the undecided benchmarks only, so its `times` lose the decided ones.
        """
        times = {name: self._times(name) for name in self.suite.undecided}
        self._looked_at |= {name: (rounds, look) for name, rounds in times.items()}
        self.suite.look({name: differences(rounds) for name, rounds in times.items()})

    def _times(self, name: str) -> tuple[RoundTimes, ...]:
        """A benchmark's times in the rounds of all complete pairs."""
        return tuple(measured.times[name] for measured in self.rounds[: len(self.rounds) // ROUNDS * ROUNDS])

    def _order(self) -> tuple[bool, ...]:
        """Whether head goes first in each slice of a round: at random, but once each way in every block of two."""
        blocks = [self._rng.random() < 0.5 for _ in range(SLICES // 2)]
        return tuple(turn for first in blocks for turn in (first, not first))

    def _launch(self, target: Round) -> Round:
        """Measure a round, replacing what was measured in it before, and return it."""
        names = self.suite.undecided
        self.launcher.start(names)
        readings = []
        slices: dict[str, dict[str, list[float]]] = {name: {BASE: [], HEAD: []} for name in names}
        for place, head_first in enumerate(target.head_first):
            for name in names:
                for side in (HEAD, BASE) if head_first else (BASE, HEAD):
                    slices[name][side].append(self.launcher.run(side, name))
            if place % 2:
                readings.append(self.canary())
        target.times = {name: RoundTimes.of(sides[BASE], sides[HEAD]) for name, sides in slices.items()}
        target.readings = readings
        self.readings += readings
        return target

    def _finding(self, name: str, reason: str) -> Finding:
        """The finding on a benchmark; `reason` says why the session ended, if there is no verdict."""
        if name not in self._looked_at:  # there was not even one look
            return Finding(name, INCONCLUSIVE, self._times(name), None, reason)
        rounds, look = self._looked_at[name]
        bounds = interval(differences(rounds), look.alpha, self.suite.tables[look.pairs])
        verdict = self.suite.verdicts.get(name)
        return Finding(name, verdict or INCONCLUSIVE, rounds, bounds, None if verdict else reason)


def differences(rounds: Sequence[RoundTimes]) -> Logs:
    """The differences log(head / base) of the rounds of complete pairs, as an array [pairs, ROUNDS]."""
    return np.array([times.difference for times in rounds]).reshape(-1, ROUNDS)
