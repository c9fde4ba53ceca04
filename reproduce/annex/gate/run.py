"""Runs a check from start to end: trees, launches, session, result."""

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reproduce.annex.gate.counts import ALLOCATED, CALLS
from reproduce.annex.gate.guard import canary
from reproduce.annex.gate.launcher import Counts, ProcessLauncher
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
    result = SessionResult()
    if measurable and not only_counts and (keep_going or not exact.failed):
        suite = Procedure(measurable, swap_tables(seed))
        result = Session(suite, launcher, canary, seed, budget_s, started=started, progress=progress).run()
    return CheckResult(trees, seed, budget_s, exact, lacks, result)


def counted(launcher: ProcessLauncher, names: Sequence[str], only: str = "") -> ExactFinding:
    """The counts of a step of these benchmarks that begin with `only`, compared: what head does more of comes first.

    More of anything fails, but for calls of Python functions, as the next refactoring makes some: those fail where they
    grow faster with the size. What varies between two runs of head is left out, at one size and at two.
    """
    changes: dict[str, list[CountChange]] = {}
    lines = ["counts of a step:"]
    for name in names:
        base, head, again = (launcher.counts(side, name) for side in (BASE, HEAD, HEAD))
        runs = [(head[size], again[size]) for size in head]
        varying = {what for one, other in runs for what in one | other if one.get(what) != other.get(what)}
        counted = {what for counts in (*base.values(), *head.values()) for what in counts if what.startswith(only)}
        found = [change for what in sorted(counted - varying) for change in _changes(what, base, head)]
        changes[name] = sorted(found, key=lambda each: (not each.fails, not each.grown))
        lines += [f"{name}: {change}" for change in changes[name]] or [f"{name}: as on base"]
        lines += [f"{name}: left out, as it varies from run to run: {what}" for what in sorted(varying)]
    failed = any(change.fails for found in changes.values() for change in found)
    status = "different" if any(changes.values()) else "same"
    return ExactFinding(status, failed, "\n".join(lines) if names else "", changes=changes)


def _changes(what: str, base: Counts, head: Counts) -> Iterator[CountChange]:
    """How a count changed at the first size, and how its growth from there to the second size did, if there are two."""
    sizes, calls = list(head), what.startswith(CALLS)
    before, after = ([counts.get(what, 0) for counts in side.values()] for side in (base, head))
    if after[0] != before[0]:
        yield CountChange(what, before[0], after[0], not calls and after[0] > before[0])
    growth_before, growth = (counts[-1] - counts[0] for counts in (before, after))
    if growth != growth_before:
        # Rounded memory that was less at the first size may grow by more; a new function may be called for each item.
        usual = _order(before, sizes) if before[0] else 1.0
        faster = _order(after, sizes) > usual + FASTER if calls else after[1] > before[1]
        name = f"{what}, more from size {sizes[0]} to {sizes[1]}"
        yield CountChange(name, growth_before, growth, faster and growth > growth_before)


def _order(counts: Sequence[int], sizes: Sequence[int]) -> float:
    """The order at which a count grows from the first size to the second: 1 if it doubles with the size, 2 for n^2."""
    first = max(1, counts[0])
    return math.log(max(1, first + counts[1] - counts[0]) / first) / math.log(sizes[1] / sizes[0])


def _own_checks(module: str, head: Tree) -> ExactFinding:
    """What head's own exact checks say, a module run in its tree; or that its pyproject.toml names none."""
    file = head.folder / "pyproject.toml"
    if not file.is_file() or module not in file.read_text(encoding="utf-8"):
        return ExactFinding("absent", False, f"exact checks: {head} has none")
    command, where = [str(head.python), "-m", *module.split()], os.environ | {"PYTHONPATH": str(head.folder)}
    done = subprocess.run(command, cwd=head.folder, env=where, capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode not in (errors.DONE, errors.REGRESSED):
        raise UnavailableError(f"the exact checks of {head} do not run: {last_line(done.stderr)}")
    failed = done.returncode == errors.REGRESSED
    text = done.stdout.decode("utf-8", "replace").strip()
    return ExactFinding("different" if failed else "same", failed, text, "differs from its own committed reference")
