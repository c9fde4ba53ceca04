"""Trials of the timing gate on itself: on identical code, and on code that a patch really slows down.

A project names a patch that slows it down, or each iteration is stretched. Each trial is a session of the
gate with a new seed. Its verdicts are appended to a record, by commit and class of machine, which so shows how often
the gate is wrong and how often it does not decide.
"""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gate import report, run, trees
from benchmarks.gate.launcher import GateBenchmark
from benchmarks.gate.procedure import INCONCLUSIVE, OK, REGRESSED
from benchmarks.gate.project import Project
from benchmarks.gate.run import CheckResult
from benchmarks.gate.session import ROUNDS, Finding
from benchmarks.gate.trees import BASE, HEAD, Tree, last_line
from results.records import Metric, PointResult, fingerprint, provenance, read_record, write_record
from results.records.errors import DONE, INTERNAL, UnavailableError

ID = "gate_trials"
STRETCHED = 0.10  # of the iterations of a project's head, for which there is no patch
RIGHT = {"identical": OK, "slowed": REGRESSED}  # the right verdict on each kind of head
UNDECIDED = 4  # trials without any verdict after which a machine counts as one that never decides


@dataclass(frozen=True)
class Machine:
    """A class of machine: what decides whether its verdicts are comparable."""

    cpu: str
    logical_cores: int

    @classmethod
    def here(cls) -> "Machine":
        """The class of this machine."""
        host = provenance.host()
        return cls(host.cpu or host.machine, host.logical_cores or 0)

    def __str__(self) -> str:
        return f"{self.cpu}, {self.logical_cores} cores"


def record_path(results: Path) -> Path:
    """The path of the record that trials are appended to."""
    return results / ID / "measured" / "record.json"


def earlier(path: Path) -> tuple[PointResult, ...]:
    """The trials in a record; none if there is no file yet. Raises `InvalidResultsError` if the file is no record."""
    return read_record(path).points if path.exists() else ()


def of(points: Sequence[PointResult], machine: Machine, commit: str) -> list[PointResult]:
    """The trials of a commit on a class of machine."""
    return [point for point in points if machine_of(point) == machine and point.parameters["commit"] == commit]


def machine_of(point: PointResult) -> Machine:
    """The class of machine of a trial."""
    return Machine(str(point.parameters["cpu"]), int(str(point.parameters["logical_cores"])))


def next_kind(points: Sequence[PointResult]) -> str:
    """The kind of trial of which there are fewer."""
    counts = Counter(point.series for point in points)
    return min(RIGHT, key=lambda kind: counts[kind])


@contextmanager
def built(project: Project, commit: str) -> Iterator[dict[str, dict[str, Tree]]]:
    """Build base and head for each kind of trial: trees of `commit`, of which this project's slowed head is patched.

    Raises `UnavailableError` if a tree does not build, or the patch does not fit.
    """
    with trees.built(project.folder, {BASE: commit, HEAD: commit}) as identical:
        if not project.slowed:
            yield {"identical": identical, "slowed": identical}
            return
        patch = (project.folder / project.slowed).resolve()
        slowed = replace(
            identical[HEAD], ref=f"HEAD with {patch.name}", folder=identical[HEAD].folder.with_name("slowed")
        )
        trees.export(project.folder, commit, slowed.folder)
        patched = subprocess.run(["git", "apply", str(patch)], cwd=slowed.folder, capture_output=True, check=False)
        if patched.returncode:
            raise UnavailableError(f"{project.slowed} does not fit {commit[:10]}: {last_line(patched.stderr)}")
        yield {"identical": identical, "slowed": {**identical, HEAD: slowed}}


def trial(
    kind: str,
    sides: dict[str, Tree],
    project: Project,
    benchmarks: Sequence[GateBenchmark],
    budget_s: float,
    progress: Callable[[str], None],
) -> list[PointResult]:
    """Run one session of the gate, and return a point for each benchmark."""
    if kind == "slowed" and not project.slowed:
        benchmarks = [replace(each, injected=STRETCHED) for each in benchmarks]
    started, clock, seed = datetime.now(UTC), time.monotonic(), random.SystemRandom().randrange(2**31)
    result = run.check(sides, benchmarks, seed, budget_s, progress)
    seconds = time.monotonic() - clock
    return [_point(kind, result, finding, provenance.timestamp(started), seconds) for finding in result.findings]


def _point(kind: str, result: CheckResult, finding: Finding, started: str, seconds: float) -> PointResult:
    machine = Machine.here()
    parameters: dict[str, int | float | str | bool | None] = {
        "commit": result.trees[BASE].commit,
        "cpu": machine.cpu,
        "logical_cores": machine.logical_cores,
        "benchmark": finding.name,
        "verdict": finding.verdict,
        "seed": result.seed,
        "budget_s": result.budget_s,
        "pairs": len(finding.rounds) // ROUNDS,
        "redone_rounds": result.session.redone if result.session else 0,
        "started": started,
    }
    metrics = {"duration": Metric(seconds, "s", "measured", (seconds,))}
    if finding.rounds:
        metrics |= report.slowdown_metrics(finding)
    return PointResult(
        key=f"{kind}/{finding.name}/{started}/{result.seed}",
        series=kind,
        label=f"{finding.name}: {finding.verdict}",
        parameters=parameters,
        status="ok",
        reason=None,
        fingerprint=fingerprint(parameters),
        metrics=metrics,
    )


def append(path: Path, points: Sequence[PointResult], command: Sequence[str], started: datetime) -> None:
    """Write the record with these trials after its earlier ones. Raises `StorageError` or `RecordError`."""
    record = report.comparison(
        ID,
        "Trials of the timing gate on identical and on slowed code",
        provenance.collect(command, started, packages=("torch",)),
        [*earlier(path), *points],
        ["Each point is a trial, on the machine and commit among its parameters; the provenance is the last one's."],
    )
    write_record(record, path)


def verdict_of(point: PointResult) -> str:
    """The verdict of a trial."""
    return str(point.parameters["verdict"])


def wrong(points: Sequence[PointResult]) -> int:
    """How many verdicts are neither right nor inconclusive."""
    return sum(verdict_of(point) not in (RIGHT[point.series], INCONCLUSIVE) for point in points)


def never_decides(points: Sequence[PointResult]) -> bool:
    """Whether there are enough trials of a class of machine, and none of them has a verdict."""
    return len(points) >= UNDECIDED and all(verdict_of(point) == INCONCLUSIVE for point in points)


def table(points: Sequence[PointResult]) -> list[str]:
    """The lines of a Markdown table that counts verdicts by class of machine, benchmark and kind."""
    rows: dict[tuple[Machine, str, str], list[PointResult]] = {}
    for point in points:
        rows.setdefault((machine_of(point), str(point.parameters["benchmark"]), point.series), []).append(point)
    lines: list[tuple[str, ...]] = [
        ("machine", "benchmark", "code", "trials", "right", "wrong", "inconclusive", "s per trial")
    ]
    for (machine, benchmark, kind), trials in rows.items():
        undecided = sum(verdict_of(point) == INCONCLUSIVE for point in trials)
        errors = wrong(trials)
        seconds = sorted(float(point.metrics["duration"].value or 0) for point in trials)[len(trials) // 2]
        counts = (len(trials), len(trials) - undecided - errors, errors, undecided, round(seconds))
        lines.append((str(machine), benchmark, kind, *map(str, counts)))
    return report.table(lines)


def badge(points: Sequence[PointResult], project: Project) -> dict[str, str | int]:
    """The error rates of these trials as shields.io reads them (https://shields.io/badges/endpoint-badge)."""
    kinds = {kind: [point for point in points if point.series == kind] for kind in RIGHT}
    alarms, slowed = wrong(kinds["identical"]), kinds["slowed"]
    message = f"{alarms} of {len(kinds['identical'])} false"
    if slowed:
        found = sum(verdict_of(point) == REGRESSED for point in slowed) / len(slowed)
        message += f", {'slowed code' if project.slowed else f'{STRETCHED:+.0%}'} found in {found:.0%}"
    return {"schemaVersion": 1, "label": "gate", "message": message, "color": "red" if alarms else "green"}


def code(points: Sequence[PointResult]) -> int:
    """The exit code for the trials of a class of machine."""
    return INTERNAL if wrong(points) else run.EXIT_CODES[INCONCLUSIVE] if never_decides(points) else DONE
