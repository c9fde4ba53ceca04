"""A session: rounds in random order under the guard, looks, redone rounds, and an end in any case.

A pair is a launch of base and one of head. A launch is `ROUNDS` fresh processes, its time their fastest iteration:
under heavy noise one process is not enough to tell 15% (`tests/benchmarks/gate/test_power.py`). In every round one
process of each side is started and measured, one after the other, in random order, balanced in blocks of two rounds.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.gate.guard import Guard, Reading
from benchmarks.gate.launcher import Launcher
from benchmarks.gate.procedure import INCONCLUSIVE, Interval, Look, Procedure, interval
from benchmarks.gate.trees import BASE, HEAD

ROUNDS = 3
FIRST_READINGS = 8  # of the canary, before anything is measured
READINGS = 3  # a canary is disturbed if it is that many times in a row: half a second
SPARE_REDOS = 9  # rounds that may be redone beyond two for each one kept; more, and the machine is too loaded


@dataclass
class Round:
    """A place in the session: which side goes first, and its latest measurement."""

    head_first: bool
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # by side, by benchmark
    readings: list[Reading] = field(default_factory=list)


class Seen(NamedTuple):
    """The times of a benchmark, in seconds, at the last look that it was part of."""

    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    look: Look


@dataclass(frozen=True)
class Finding:
    """What a session says of one benchmark. `reason` if there is no verdict; times in seconds, one per pair."""

    name: str
    verdict: str
    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    interval: Interval | None
    reason: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What a session says: a finding per benchmark, by suite; and how it went: `redone` of `rounds`."""

    suites: tuple[tuple[Finding, ...], ...]
    pairs: int
    rounds: int
    redone: int
    seconds: float


class Session:
    """One session of suites that are measured together, each with its own procedure of decision.

    `started` is when the budget, in seconds of `clock`, began to run.
    """

    def __init__(
        self,
        suites: Sequence[Procedure],
        launcher: Launcher,
        canary: Callable[[], Reading],
        seed: int,
        budget_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        started: float | None = None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.suites, self.launcher, self.canary = tuple(suites), launcher, canary
        self.clock, self.progress = clock, progress
        self.started = clock() if started is None else started
        self.end = self.started + budget_s
        self.budget_s = budget_s
        self.guard = Guard()
        self.rounds: list[Round] = []
        self.redone = 0
        self._seen: dict[str, Seen] = {}
        self._orders = _balanced(random.Random(seed))
        self._longest = 0.0

    def run(self) -> Outcome:
        """Measure and decide until all is decided, no look is left, or it makes no sense to go on."""
        reason = "the pairs of all looks do not tell"
        try:
            self.guard.readings += [self.canary() for _ in range(FIRST_READINGS)]
            while looks := [suite.next_look for suite in self.suites if suite.next_look]:
                if stop := self._measure(looks[0].pairs):
                    reason = stop
                    break
                self._look(looks[0])
        finally:
            self.launcher.stop()
        suites = tuple(tuple(self._finding(suite, name, reason) for name in suite.names) for suite in self.suites)
        pairs, rounds = len(self.rounds) // ROUNDS, len(self.rounds) + self.redone
        return Outcome(suites, pairs, rounds, self.redone, self.clock() - self.started)

    def _measure(self, wanted: int) -> str | None:
        """Get `wanted` pairs of undisturbed rounds; or say why that is not possible."""
        while True:
            bad = [one for one in self.rounds if self.guard.disturbed(one.readings)]
            kept = len(self.rounds) - len(bad)
            if kept == wanted * ROUNDS:
                return None
            if self.redone > SPARE_REDOS + 2 * kept:
                return (
                    f"the machine is too loaded: {self.redone} rounds redone, {kept} undisturbed; stop what else runs"
                )
            if self.clock() + self._longest > self.end:
                return f"the budget of {self.budget_s:.0f} s is exhausted after {kept // ROUNDS} of {wanted} pairs"
            self.progress(f"round {kept + 1} of {wanted * ROUNDS}, {self.redone} redone")
            self.redone += bool(bad)
            before = self.clock()
            if bad:
                self._launch(bad[0])
            else:
                self.rounds.append(self._launch(Round(next(self._orders))))
            self._longest = max(self._longest, self.clock() - before)

    def _look(self, look: Look) -> None:
        """Decide, and keep what the decision saw: rounds may be redone later, without what is decided now."""
        for suite in self.suites:
            if suite.next_look:
                base, head = ({n: self._seconds(n, side) for n in suite.undecided} for side in (BASE, HEAD))
                self._seen |= {n: Seen(base[n], head[n], look) for n in base}
                suite.look({n: np.log(base[n]) for n in base}, {n: np.log(head[n]) for n in head})

    def _seconds(self, name: str, side: str) -> tuple[float, ...]:
        """Of the pairs that are complete."""
        every = [one.seconds[side][name] for one in self.rounds]
        return tuple(min(every[i : i + ROUNDS]) for i in range(0, len(every) - ROUNDS + 1, ROUNDS))

    def _launch(self, one: Round) -> Round:
        """Measure a round, in place of what it may hold."""
        names = [name for suite in self.suites for name in suite.undecided]
        self.launcher.start(names)
        readings, seconds = [self._read()], {}
        for side in (HEAD, BASE) if one.head_first else (BASE, HEAD):
            seconds[side] = self.launcher.run(side)
            readings.append(self._read())
        one.seconds, one.readings = seconds, readings
        return one

    def _read(self) -> Reading:
        """The canary, again while it is disturbed: what matters is what lasts."""
        for _ in range(READINGS):
            reading = self.canary()
            self.guard.readings.append(reading)
            if not self.guard.disturbed([reading]):
                break
        return reading

    def _finding(self, suite: Procedure, name: str, reason: str) -> Finding:
        if name not in self._seen:  # not even one look
            base, head = self._seconds(name, BASE), self._seconds(name, HEAD)
            return Finding(name, INCONCLUSIVE, base, head, None, reason)
        seen = self._seen[name]
        found = interval(np.log(seen.base_s), np.log(seen.head_s), seen.look.alpha, suite.tables[seen.look.pairs])
        verdict = suite.verdicts.get(name)
        return Finding(name, verdict or INCONCLUSIVE, seen.base_s, seen.head_s, found, None if verdict else reason)


def _balanced(rng: random.Random) -> Iterator[bool]:
    """Whether head goes first: random, but once each way in every block of two."""
    while True:
        first = rng.random() < 0.5
        yield from (first, not first)
