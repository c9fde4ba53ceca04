"""Runs a check from start to end: trees, launches, session, result."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.gate import procedure
from benchmarks.gate.guard import canary
from benchmarks.gate.launcher import GateBenchmark, ProcessLauncher
from benchmarks.gate.procedure import Procedure, overall, swap_tables
from benchmarks.gate.project import Project
from benchmarks.gate.session import Finding, Session, SessionResult
from benchmarks.gate.trees import HEAD, Tree, last_line
from results.records.errors import (
    DONE,
    INCONCLUSIVE,
    NOTHING_SELECTED,
    REGRESSED,
    UnavailableError,
    UsageError,
    did_you_mean,
)

NOT_COMPARED = "not compared"
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
        return self.session.findings if self.session else ()

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
    lacking: Mapping[str, str] | None = None,
) -> CheckResult:
    """Measure what both trees can run in one session, and decide. Raises `UnavailableError` for what head cannot run.

    The budget counts from `started`, a time of the monotonic clock, by default from now; `progress` gets messages.
    `lacking` says why base cannot run some benchmarks, where that is known; else all are tried.
    """
    launcher = ProcessLauncher(trees, benchmarks)
    started = time.monotonic() if started is None else started
    progress("trying both sides")
    lacks = launcher.lacking() if lacking is None else dict(lacking)
    measurable = [benchmark.name for benchmark in benchmarks if benchmark.name not in lacks]
    if not measurable:
        return CheckResult(trees, seed, budget_s, lacks, None)
    session = Session(
        Procedure(measurable, swap_tables(seed)), launcher, canary, seed, budget_s, started=started, progress=progress
    )
    return CheckResult(trees, seed, budget_s, lacks, session.run())


class CountChange(NamedTuple):
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
class ExactFinding:
    """What was compared at zero tolerance before any time is taken.

    `status` is 'same', 'different' or 'absent', `failed` whether that is a regression, `text` says it. `changes` are
    the changed counts by benchmark, growth first, and `lacking` why base cannot run a benchmark; None if not tried.
    """

    status: str
    failed: bool
    text: str
    headline: str = "does more than base"
    changes: Mapping[str, Sequence[CountChange]] = field(default_factory=dict)
    lacking: Mapping[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """The result in a document."""
        return {"exit_code": REGRESSED if self.failed else DONE, "status": self.status, "text": self.text}


def exact(project: Project, trees: dict[str, Tree], benchmarks: Sequence[GateBenchmark]) -> ExactFinding:
    """The project's own exact checks of head, or else counts of a step, if it wants any.

    Raises `UnavailableError` for checks that do not run, and for what head cannot run.
    """
    if project.exact:
        return _own_checks(project.exact, trees[HEAD])
    if not project.counts:
        return ExactFinding("absent", False, "counts: the project wants none")
    launcher = ProcessLauncher(trees, benchmarks)
    lacking = launcher.lacking()
    counts = {each.name: launcher.counts(each.name) for each in benchmarks if each.name not in lacking}
    changes = {name: differing(each.base, each.head) for name, each in counts.items()}
    lines = ["counts of a step:"]
    for name, each in counts.items():
        lines += [f"{name}: {change}" for change in changes[name]] or [f"{name}: as on base"]
        lines += [f"{name}: left out, as it varies from run to run: {what}" for what in each.varying]
    failed = any(change.grown for found in changes.values() for change in found)
    status = "different" if any(changes.values()) else "same"
    return ExactFinding(status, failed, "\n".join(lines) if counts else "", changes=changes, lacking=lacking)


def _own_checks(module: str, head: Tree) -> ExactFinding:
    """What head's own exact checks say, a module run in its tree; or that its pyproject.toml names none."""
    file = head.folder / "pyproject.toml"
    if not file.is_file() or module not in file.read_text(encoding="utf-8"):
        return ExactFinding("absent", False, f"exact checks: {head} has none")
    done = subprocess.run(
        [str(head.python), "-m", *module.split()],
        cwd=head.folder,
        env={**os.environ, "PYTHONPATH": str(head.folder)},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode not in (DONE, REGRESSED):
        raise UnavailableError(f"the exact checks of {head} do not run: {last_line(done.stderr)}")
    failed = done.returncode == REGRESSED
    text = done.stdout.decode("utf-8", "replace").strip()
    return ExactFinding("different" if failed else "same", failed, text, "differs from its own committed reference")


def differing(base: Mapping[str, int], head: Mapping[str, int]) -> list[CountChange]:
    """The counts that differ, those that grew first."""
    changes = [CountChange(what, base.get(what, 0), head.get(what, 0)) for what in sorted(base.keys() | head.keys())]
    return sorted((each for each in changes if each.base != each.head), key=lambda each: (not each.grown, each))
