"""Runs a check from start to end: trees, launches, session, result; and the self-test, which checks the gate itself."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gate import procedure
from benchmarks.gate.guard import canary
from benchmarks.gate.launcher import GateBenchmark, ProcessLauncher
from benchmarks.gate.procedure import Procedure, overall, swap_tables
from benchmarks.gate.session import Finding, Session, SessionResult
from benchmarks.gate.trees import Tree
from benchmarks.gate.workloads import SUITE, WORKLOADS
from results.records.errors import (
    DONE,
    INCONCLUSIVE,
    INTERNAL,
    NOTHING_SELECTED,
    REGRESSED,
    UsageError,
    did_you_mean,
)

NOT_COMPARED = "not compared"
INJECTED = 0.15
EXIT_CODES = {
    procedure.REGRESSED: REGRESSED,
    procedure.INCONCLUSIVE: INCONCLUSIVE,
    procedure.OK: DONE,
    procedure.IMPROVED: DONE,
    NOT_COMPARED: DONE,
}


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. `lacking` says why base cannot run some benchmarks.

    If base can run none of them, `session` is None.
    """

    trees: dict[str, Tree]
    seed: int
    budget_s: float
    lacking: dict[str, str]
    session: SessionResult | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all benchmarks that were measured."""
        return tuple(finding for suite in self.session.suites for finding in suite) if self.session else ()

    @property
    def measured(self) -> bool:
        """Whether both sides ran at least once, if there is anything that both can run."""
        return self.session is None or self.session.rounds > 0

    @property
    def verdict(self) -> str:
        """The verdict on the benchmarks that both sides can run; `NOT_COMPARED` if there are none."""
        return overall([finding.verdict for finding in self.findings]) if self.session else NOT_COMPARED

    @property
    def code(self) -> int:
        """The exit code."""
        return EXIT_CODES[self.verdict] if self.measured else NOTHING_SELECTED


def select(names: Sequence[str]) -> tuple[str, ...]:
    """The benchmarks asked for, or the suite. Raises `UsageError` for an unknown one."""
    for name in names:
        if name not in WORKLOADS:
            raise UsageError(
                f"unknown benchmark {name!r}{did_you_mean(name, tuple(WORKLOADS))}; there are {', '.join(WORKLOADS)}"
            )
    return tuple(dict.fromkeys(names)) or SUITE


def check(
    trees: dict[str, Tree],
    names: Sequence[str],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None = None,
) -> CheckResult:
    """Measure both trees and decide. Raises `UnavailableError` for what head cannot run.

    The budget counts from `started`, a time of the monotonic clock, by default from now; `progress` gets messages.
    """
    return _measure(trees, [[GateBenchmark(name, name) for name in names]], seed, budget_s, progress, started)


def self_test(
    trees: dict[str, Tree],
    names: Sequence[str],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None = None,
) -> CheckResult:
    """Measure two suites on trees of the same commit: one as it is, one with head's iterations stretched by 15%.

    The other arguments are those of `check`.
    """
    identical = [GateBenchmark(name, name) for name in names]
    slowed = [GateBenchmark(f"{name}+{INJECTED:.0%}", name, INJECTED) for name in names]
    return _measure(trees, [identical, slowed], seed, budget_s, progress, started)


def self_test_code(result: CheckResult) -> int:
    """The exit code of a self-test.

    It is 0 if identical code is ok and the slowed code regressed, `INCONCLUSIVE` if a verdict is missing, and
    `INTERNAL` if a verdict is wrong.
    """
    if not result.measured:
        return NOTHING_SELECTED
    expected = {True: procedure.OK, False: procedure.REGRESSED}
    verdicts = [(finding.verdict, expected[finding.name in WORKLOADS]) for finding in result.findings]
    if any(verdict not in (right, procedure.INCONCLUSIVE) for verdict, right in verdicts):
        return INTERNAL
    decided = not result.lacking and all(verdict == right for verdict, right in verdicts)
    return DONE if decided else INCONCLUSIVE


def _measure(
    trees: dict[str, Tree],
    suites: Sequence[Sequence[GateBenchmark]],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None,
) -> CheckResult:
    """Try all benchmarks, and measure those that both sides can run in one session."""
    launcher = ProcessLauncher(trees, [benchmark for suite in suites for benchmark in suite])
    started = time.monotonic() if started is None else started
    progress("trying both sides")
    lacking = launcher.lacking()
    tables = swap_tables(seed)
    measurable = [[benchmark.name for benchmark in suite if benchmark.name not in lacking] for suite in suites]
    if not any(measurable):
        return CheckResult(trees, seed, budget_s, lacking, None)
    procedures = [Procedure(names, tables) for names in measurable]
    session = Session(procedures, launcher, canary, seed, budget_s, started=started, progress=progress)
    return CheckResult(trees, seed, budget_s, lacking, session.run())
