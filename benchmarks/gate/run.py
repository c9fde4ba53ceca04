"""A check from start to end: trees, launches, session, result; and the self-test of all that, live."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gate import procedure
from benchmarks.gate.guard import canary
from benchmarks.gate.launcher import Benchmark, Processes
from benchmarks.gate.procedure import Procedure, overall, swap_tables
from benchmarks.gate.session import Finding, Outcome, Session
from benchmarks.gate.trees import Tree
from benchmarks.records.errors import (
    DONE,
    INCONCLUSIVE,
    INTERNAL,
    NOTHING_SELECTED,
    REGRESSED,
    UsageError,
    did_you_mean,
)

WORKLOADS = ("pipeline_step", "train_step", "simulator")
SUITE = ("pipeline_step", "simulator")  # engine and simulator; every further one takes power from the others
INJECTED = 0.15
EXIT_CODES = {
    procedure.REGRESSED: REGRESSED,
    procedure.INCONCLUSIVE: INCONCLUSIVE,
    procedure.OK: DONE,
    procedure.IMPROVED: DONE,
}


@dataclass(frozen=True)
class Result:
    """What a check found. `lacking`: why some benchmarks were not measured; `outcome` is None if none was."""

    trees: dict[str, Tree]
    seed: int
    budget_s: float
    lacking: dict[str, str]
    outcome: Outcome | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all that was measured."""
        return tuple(finding for suite in self.outcome.suites for finding in suite) if self.outcome else ()

    @property
    def measured(self) -> bool:
        """Whether both sides ran at least once."""
        return self.outcome is not None and self.outcome.rounds > 0

    @property
    def verdict(self) -> str:
        """Of the suite: what was asked for and not measured leaves it inconclusive, unless it regressed."""
        return overall([finding.verdict for finding in self.findings] + [procedure.INCONCLUSIVE] * len(self.lacking))

    @property
    def code(self) -> int:
        """The exit code."""
        return EXIT_CODES[self.verdict] if self.measured else NOTHING_SELECTED


def select(names: Sequence[str]) -> tuple[str, ...]:
    """The benchmarks asked for, or the suite. Raises `UsageError` for an unknown one."""
    for name in names:
        if name not in WORKLOADS:
            raise UsageError(
                f"unknown benchmark {name!r}{did_you_mean(name, WORKLOADS)}; there are {', '.join(WORKLOADS)}"
            )
    return tuple(dict.fromkeys(names)) or SUITE


def check(
    trees: dict[str, Tree],
    names: Sequence[str],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None = None,
) -> Result:
    """Measure both trees and decide. Raises `UnavailableError` for a side that does not run."""
    return _measure(trees, [[Benchmark(name, name) for name in names]], seed, budget_s, progress, started)


def self_test(
    trees: dict[str, Tree],
    names: Sequence[str],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None = None,
) -> Result:
    """Two suites on trees of the same commit: as they are, and with head's iterations stretched by 15%."""
    identical = [Benchmark(name, name) for name in names]
    slowed = [Benchmark(f"{name}+{INJECTED:.0%}", name, INJECTED) for name in names]
    return _measure(trees, [identical, slowed], seed, budget_s, progress, started)


def self_test_code(result: Result) -> int:
    """0 if identical code is ok and the slowed one regressed; inconclusive if it cannot tell; else the gate errs."""
    if not result.measured:
        return NOTHING_SELECTED
    expected = {True: procedure.OK, False: procedure.REGRESSED}
    found = [(finding.verdict, expected[finding.name in WORKLOADS]) for finding in result.findings]
    if any(verdict not in (wanted, procedure.INCONCLUSIVE) for verdict, wanted in found):
        return INTERNAL
    return DONE if all(verdict == wanted for verdict, wanted in found) and not result.lacking else INCONCLUSIVE


def _measure(
    trees: dict[str, Tree],
    suites: Sequence[Sequence[Benchmark]],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None,
) -> Result:
    launcher = Processes(trees, [benchmark for suite in suites for benchmark in suite])
    started = time.monotonic() if started is None else started
    progress("trying both sides")
    lacking = launcher.lacking()
    tables = swap_tables(seed)
    chosen = [[one.name for one in suite if one.name not in lacking] for suite in suites]
    if not any(chosen):
        return Result(trees, seed, budget_s, lacking, None)
    procedures = [Procedure(names, tables) for names in chosen]
    session = Session(procedures, launcher, canary, seed, budget_s, started=started, progress=progress)
    return Result(trees, seed, budget_s, lacking, session.run())
