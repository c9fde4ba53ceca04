"""Runs a check from start to end: trees, launches, session, result; and the self-test, which checks the gate itself."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gate import procedure
from benchmarks.gate.guard import canary
from benchmarks.gate.launcher import GateBenchmark, ProcessLauncher
from benchmarks.gate.procedure import Procedure, overall, swap_tables
from benchmarks.gate.project import Project
from benchmarks.gate.session import Finding, Session, SessionResult
from benchmarks.gate.trees import BASE, HEAD, Tree, build, require_clean, require_linux, resolve
from results.records.errors import (
    DONE,
    INCONCLUSIVE,
    INTERNAL,
    NOTHING_SELECTED,
    REGRESSED,
    NothingSelectedError,
    UsageError,
    did_you_mean,
)

NOT_COMPARED = "not compared"
INJECTED = 0.15
SLOWED = f"+{INJECTED:.0%}"  # in the names of what is slowed down
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


def select(project: Project, names: Sequence[str]) -> list[GateBenchmark]:
    """A project's benchmarks of these names, or its suite. Raises `UsageError` for an unknown one."""
    known = project.workloads
    for name in names:
        if name not in known:
            raise UsageError(
                f"unknown benchmark {name!r}{did_you_mean(name, tuple(known))}; there are {', '.join(known)}"
            )
    return [GateBenchmark(name, known[name]) for name in dict.fromkeys(names) or project.suite]


def check(
    trees: dict[str, Tree],
    benchmarks: Sequence[GateBenchmark],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None = None,
) -> CheckResult:
    """Measure both trees and decide. Raises `UnavailableError` for what head cannot run.

    The budget counts from `started`, a time of the monotonic clock, by default from now; `progress` gets messages.
    """
    return _measure(trees, [benchmarks], seed, budget_s, progress, started)


def self_test(
    trees: dict[str, Tree],
    benchmarks: Sequence[GateBenchmark],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    started: float | None = None,
) -> CheckResult:
    """Measure two suites on trees of the same commit: one as it is, one with head's iterations stretched by 15%.

    The other arguments are those of `check`.
    """
    slowed = [replace(each, name=f"{each.name}{SLOWED}", injected=INJECTED) for each in benchmarks]
    return _measure(trees, [benchmarks, slowed], seed, budget_s, progress, started)


def self_test_code(result: CheckResult) -> int:
    """The exit code of a self-test.

    It is 0 if identical code is ok and the slowed code regressed, `INCONCLUSIVE` if a verdict is missing, and
    `INTERNAL` if a verdict is wrong.
    """
    if not result.measured:
        return NOTHING_SELECTED
    expected = {True: procedure.REGRESSED, False: procedure.OK}
    verdicts = [(finding.verdict, expected[finding.name.endswith(SLOWED)]) for finding in result.findings]
    if any(verdict not in (right, procedure.INCONCLUSIVE) for verdict, right in verdicts):
        return INTERNAL
    decided = not result.lacking and all(verdict == right for verdict, right in verdicts)
    return DONE if decided else INCONCLUSIVE


@dataclass(frozen=True, order=True)
class Change:
    """A count of a step that is another one on head."""

    what: str
    base: int
    head: int

    @property
    def grown(self) -> bool:
        """Whether head does more of it."""
        return self.head > self.base

    def __str__(self) -> str:
        return f"{self.what} {self.base} -> {self.head}"


@dataclass(frozen=True)
class Found:
    """What the gate says of one benchmark: in words, whether it failed, and whether anything could be told."""

    text: str
    failed: bool
    decided: bool


@dataclass(frozen=True)
class Comparison:
    """Times of base and head, and what a step does more or less often on head."""

    result: CheckResult
    counts: Mapping[str, Sequence[Change]]

    @property
    def told(self) -> dict[str, list[str]]:
        """The changed counts in words."""
        return {name: list(map(str, changes)) for name, changes in self.counts.items()}

    @property
    def code(self) -> int:
        """The exit code."""
        grown = any(change.grown for changes in self.counts.values() for change in changes)
        return REGRESSED if grown else self.result.code

    def of(self, name: str) -> Found:
        """What was found of a benchmark."""
        if name in self.result.lacking:
            return Found(f"{NOT_COMPARED}: {self.result.lacking[name]}", failed=False, decided=False)
        finding = next(finding for finding in self.result.findings if finding.name == name)
        grown = [str(change) for change in self.counts.get(name, ()) if change.grown]
        slower = f"{finding.slowdown:+.1%}" if finding.rounds else "not measured"
        lines = [f"{finding.verdict}: {slower}{f', {finding.reason}' if finding.reason else ''}", *grown]
        failed = bool(grown) or finding.verdict == procedure.REGRESSED
        return Found("\n".join(lines), failed, finding.verdict != procedure.INCONCLUSIVE)


def compare(project: Project, base: str, seed: int, budget_s: float) -> Comparison:
    """Compare a project's suite at HEAD with a base: counts, then times. Raises `ReproduceError` for what cannot be."""
    require_linux()
    refs = [(BASE, base, resolve(project.folder, base)), (HEAD, "HEAD", resolve(project.folder, "HEAD"))]
    require_clean(project.folder)
    if refs[0][2] == refs[1][2]:
        raise NothingSelectedError(f"base {base} and head are the same commit; name an older commit as --base")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ptdp-gate-") as folder:
        trees, benchmarks = build(project.folder, refs, Path(folder)), select(project, ())
        counts = counted(trees, benchmarks) if project.counts else {}
        return Comparison(check(trees, benchmarks, seed, budget_s, lambda text: None, started), counts)


def counted(trees: dict[str, Tree], benchmarks: Sequence[GateBenchmark]) -> dict[str, list[Change]]:
    """What a step of each benchmark does more or less often on head than on base, growth first; [] if all is the same.

    Benchmarks that base cannot run are left out.
    """
    launcher = ProcessLauncher(trees, benchmarks)
    lacking = launcher.lacking()
    return {each.name: differing(*launcher.counts(each.name)) for each in benchmarks if each.name not in lacking}


def differing(base: dict[str, int], head: dict[str, int]) -> list[Change]:
    """The counts that differ, those that grew first."""
    changes = [Change(what, base.get(what, 0), head.get(what, 0)) for what in sorted(base.keys() | head.keys())]
    return sorted((each for each in changes if each.base != each.head), key=lambda each: (not each.grown, each))


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
