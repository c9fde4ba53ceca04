"""Runs a check from start to end: trees, launches, session, result."""

import math
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reproduce.annex.gate.counts import ALLOCATED, CALLS
from reproduce.annex.gate.guard import canary
from reproduce.annex.gate.launcher import GROWTH, ProcessLauncher
from reproduce.annex.gate.procedure import INCONCLUSIVE, OK, REGRESSED, Procedure, overall, swap_tables
from reproduce.annex.gate.project import ALLOCATIONS, Project
from reproduce.annex.gate.session import Session, SessionResult
from reproduce.annex.gate.trees import BASE, HEAD, Tree, last_line
from results.records import errors
from results.records.errors import UnavailableError

NOT_COMPARED = "not compared"
FASTER = 0.5  # of the order of growth of calls: n to n^2 is 1, and a few calls beside n less than this
CODES = {REGRESSED: errors.REGRESSED, INCONCLUSIVE: errors.INCONCLUSIVE}  # of verdicts; of the others it is 0


class CountChange(NamedTuple):
    """A count of a step that is another one on head; `fails` whether that is a regression, whatever the times say."""

    what: str
    base: int
    head: int
    fails: bool

    @property
    def grown(self) -> bool:
        """Whether head does more of it."""
        return self.head > self.base

    def __str__(self) -> str:
        note = ", a note: the times decide" if self.grown and not self.fails else ""
        return f"{self.what} {self.base} -> {self.head}{note}"


@dataclass(frozen=True)
class ExactFinding:
    """What was compared at zero tolerance before any time is taken.

    `status` is 'same', 'different' or 'absent', `failed` whether that is a regression, `text` says it. `changes` are
    the changed counts by benchmark, growth first.
    """

    status: str
    failed: bool
    text: str
    headline: str = "does more than base"
    changes: Mapping[str, Sequence[CountChange]] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """The result of a check: what is exact, why base cannot run some benchmarks (`lacking`), and the times.

    `session` found nothing if base can run none of them, or if the exact checks ended the check.
    """

    trees: Mapping[str, Tree]
    seed: int
    budget_s: float
    exact: ExactFinding
    lacking: Mapping[str, str]
    session: SessionResult

    @property
    def timed(self) -> bool:
        """Whether times were to be taken; not if the exact checks ended the check, or are all of it."""
        return bool(self.session.findings) or not (self.exact.failed or self.exact.changes)

    @property
    def told(self) -> bool:
        """Whether there is a verdict: both sides ran at least once, if there was anything to time."""
        return self.exact.failed or not self.session.findings or self.session.rounds > 0

    @property
    def verdict(self) -> str:
        """The verdict on the benchmarks that both sides can run; `NOT_COMPARED` if there are none."""
        if self.exact.failed:
            return REGRESSED
        verdicts = [finding.verdict for finding in self.session.findings]
        return overall(verdicts) if verdicts else OK if self.exact.changes else NOT_COMPARED

    @property
    def code(self) -> int:
        """The exit code."""
        return CODES.get(self.verdict, errors.DONE) if self.told else errors.NOTHING_SELECTED


def check(
    project: Project,
    trees: Mapping[str, Tree],
    seed: int,
    budget_s: float,
    progress: Callable[[str], None],
    keep_going: bool = False,
    slowdown: float = 0.0,
    started: float | None = None,
) -> CheckResult:
    """Compare what is exact, then measure what both trees can run in one session, and decide.

    What is exact are the project's own checks of head, or else counts of a step, if it wants any. If they fail, nothing
    is measured, unless `keep_going`. The budget counts from `started`, a time of the monotonic clock, by default from
    now; `progress` gets messages. Raises `UnavailableError` for checks that do not run, and for what head cannot run.
    """
    started = time.monotonic() if started is None else started
    launcher = ProcessLauncher(trees, project.workloads, slowdown)
    lacks: dict[str, str] = {}
    exact = ExactFinding("absent", False, "counts: the project wants none")
    if project.exact:
        exact = _own_checks(project.exact, trees[HEAD])
    if keep_going or not exact.failed:
        progress("trying both sides")
        lacks = launcher.lacking()
    measurable, only_counts = [name for name in launcher.workloads if name not in lacks], project.counts == ALLOCATIONS
    if project.counts and not project.exact:
        exact = counted(launcher, measurable, ALLOCATED if only_counts else "")
    if not measurable or (exact.failed and not keep_going) or only_counts:
        return CheckResult(trees, seed, budget_s, exact, lacks, SessionResult())
    suite = Procedure(measurable, swap_tables(seed))
    session = Session(suite, launcher, canary, seed, budget_s, started=started, progress=progress)
    return CheckResult(trees, seed, budget_s, exact, lacks, session.run())


def counted(launcher: ProcessLauncher, names: Sequence[str], only: str = "") -> ExactFinding:
    """The counts of a step of these benchmarks that begin with `only`, compared: what head does more of comes first.

    More of anything fails, but for calls of Python functions, as the next refactoring makes some: those fail where they
    grow faster with the size. What varies between two runs of head is left out, at one size and at two.
    """
    changes: dict[str, list[CountChange]] = {}
    lines = ["counts of a step:"]
    for name in names:
        base, head, again = (launcher.counts(side, name) for side in (BASE, HEAD, HEAD))
        varying = {what.partition(GROWTH)[0] for what in head | again if head.get(what) != again.get(what)}
        changed = [w for w in sorted(base | head) if w.startswith(only) and base.get(w, 0) != head.get(w, 0)]
        changes[name] = sorted(
            (
                CountChange(what, base.get(what, 0), head.get(what, 0), _fails(what, base, head))
                for what in changed
                if what.partition(GROWTH)[0] not in varying
            ),
            key=lambda each: (not each.fails, not each.grown),
        )
        lines += [f"{name}: {change}" for change in changes[name]] or [f"{name}: as on base"]
        lines += [f"{name}: left out, as it varies from run to run: {what}" for what in sorted(varying)]
    failed = any(change.fails for found in changes.values() for change in found)
    status = "different" if any(changes.values()) else "same"
    return ExactFinding(status, failed, "\n".join(lines) if names else "", changes=changes)


def _fails(what: str, base: Mapping[str, int], head: Mapping[str, int]) -> bool:
    """Whether a count that is larger on head is a regression by itself."""
    if head.get(what, 0) <= base.get(what, 0):
        return False
    function, grows, sizes = what.partition(GROWTH)
    if not what.startswith(CALLS):  # rounded memory that was less at the first size may grow by more
        at_second = [sum(counts.get(each, 0) for each in (function, what)) for counts in (base, head)]
        return not grows or at_second[1] > at_second[0]
    if not grows:
        return False
    first, second = map(int, sizes.split(" to "))

    def order(counts: Mapping[str, int]) -> float:
        least = max(1, counts.get(function, 0))
        return math.log(max(1, least + counts.get(what, 0)) / least) / math.log(second / first)

    usual = order(base) if function in base else 1.0  # a new function may be called for each item
    return order(head) > usual + FASTER


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
    )
    if done.returncode not in (errors.DONE, errors.REGRESSED):
        raise UnavailableError(f"the exact checks of {head} do not run: {last_line(done.stderr)}")
    failed = done.returncode == errors.REGRESSED
    text = done.stdout.decode("utf-8", "replace").strip()
    return ExactFinding("different" if failed else "same", failed, text, "differs from its own committed reference")
