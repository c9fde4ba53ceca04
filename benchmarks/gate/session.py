"""A session: rounds in random order under the guard, looks, redone rounds, and an end in any case.

A pair is a launch of base and one of head. A launch is `ROUNDS` fresh processes: under heavy noise one is not enough to
tell 15% (`tests/benchmarks/gate/test_power.py`). In every round one process of each side is started, and they measure
in turn, slice by slice, in random order, balanced in blocks of two. A shared machine has phases, of a tenth of a second
to minutes, in which it is half as fast: what counts is how much slower head is than base in two slices that are
neighbours, and of that the median over the round.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from benchmarks.gate.guard import Guard, Reading
from benchmarks.gate.launcher import Launcher
from benchmarks.gate.procedure import INCONCLUSIVE, Interval, Logs, Look, Procedure, interval, statistic
from benchmarks.gate.trees import BASE, HEAD

ROUNDS = 3
SLICES = 8  # of each benchmark in a round, by each side; even, for the balance
FIRST_READINGS = 16  # of the canary, before anything is measured
SPARE_REDOS = 9  # rounds that may be redone beyond one for each one kept; more, and the machine is too loaded


class Times(NamedTuple):
    """What a round says of a benchmark, as medians over its slices: seconds, and log(head / base) of neighbours."""

    base_s: float
    head_s: float
    difference: float

    @classmethod
    def of(cls, base: Sequence[float], head: Sequence[float]) -> "Times":
        """From the slices, in seconds, of which those at the same place are neighbours."""
        difference = np.log(head) - np.log(base)
        return cls(float(np.median(base)), float(np.median(head)), float(np.median(difference)))


@dataclass
class Round:
    """A place in the session: whether head goes first in each slice, and its latest measurement."""

    head_first: tuple[bool, ...]
    times: dict[str, Times] = field(default_factory=dict)  # by benchmark
    readings: list[Reading] = field(default_factory=list)  # the canaries between the slices


class Seen(NamedTuple):
    """A benchmark at the last look that it was part of: its rounds, those of the same pair after one another."""

    rounds: tuple[Times, ...]
    look: Look


@dataclass(frozen=True)
class Finding:
    """What a session says of one benchmark, from which rounds. `reason` if there is no verdict."""

    name: str
    verdict: str
    rounds: tuple[Times, ...]
    interval: Interval | None
    reason: str | None = None

    @property
    def base_s(self) -> tuple[float, ...]:
        """Seconds on base, of each round."""
        return tuple(one.base_s for one in self.rounds)

    @property
    def head_s(self) -> tuple[float, ...]:
        """Seconds on head, of each round."""
        return tuple(one.head_s for one in self.rounds)

    @property
    def slowdowns(self) -> tuple[float, ...]:
        """Of each round, as ratios minus one."""
        return tuple(math.expm1(one.difference) for one in self.rounds)

    @property
    def slowdown(self) -> float:
        """Of all rounds, as a ratio minus one, whether or not there was a look."""
        return math.expm1(statistic(differences(self.rounds)))


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
            if self.redone > SPARE_REDOS + kept:
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
                self.rounds.append(self._launch(Round(tuple(islice(self._orders, SLICES)))))
            self._longest = max(self._longest, self.clock() - before)

    def _look(self, look: Look) -> None:
        """Decide, and keep what the decision saw: rounds may be redone later, without what is decided now."""
        for suite in self.suites:
            if suite.next_look:
                self._seen |= {name: Seen(self._times(name), look) for name in suite.undecided}
                suite.look({name: differences(self._seen[name].rounds) for name in suite.undecided})

    def _times(self, name: str) -> tuple[Times, ...]:
        """Of the pairs that are complete."""
        return tuple(one.times[name] for one in self.rounds[: len(self.rounds) // ROUNDS * ROUNDS])

    def _launch(self, one: Round) -> Round:
        """Measure a round, in place of what it may hold."""
        names = [name for suite in self.suites for name in suite.undecided]
        self.launcher.start(names)
        readings = []
        slices: dict[str, dict[str, list[float]]] = {name: {BASE: [], HEAD: []} for name in names}
        for head_first in one.head_first:
            for name in names:
                for side in (HEAD, BASE) if head_first else (BASE, HEAD):
                    slices[name][side].append(self.launcher.run(side, name))
            readings.append(self.canary())
        one.times = {name: Times.of(sides[BASE], sides[HEAD]) for name, sides in slices.items()}
        one.readings = readings
        self.guard.readings += readings
        return one

    def _finding(self, suite: Procedure, name: str, reason: str) -> Finding:
        if name not in self._seen:  # not even one look
            return Finding(name, INCONCLUSIVE, self._times(name), None, reason)
        seen = self._seen[name]
        found = interval(differences(seen.rounds), seen.look.alpha, suite.tables[seen.look.pairs])
        verdict = suite.verdicts.get(name)
        return Finding(name, verdict or INCONCLUSIVE, seen.rounds, found, None if verdict else reason)


def differences(rounds: Sequence[Times]) -> Logs:
    """[pairs, ROUNDS]: by how much head was slower, as logarithms."""
    return np.array([one.difference for one in rounds]).reshape(-1, ROUNDS)


def _balanced(rng: random.Random) -> Iterator[bool]:
    """Whether head goes first: random, but once each way in every block of two."""
    while True:
        first = rng.random() < 0.5
        yield from (first, not first)
