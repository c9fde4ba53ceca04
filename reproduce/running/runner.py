"""Running an artifact: evaluate its points or reuse them, judge the claims, write the files.

In `<results>/<id>/<fidelity>/` (`<fidelity>-<scale>` for a scale that is not the default) there are record.json and
what an exporter makes of it, all of the same run: they are prepared next to their place and renamed at the end, so a
failure leaves the earlier ones. While a run lasts it keeps what is finished as a partial record: in record.json, or,
where that holds a complete record, in partial.json until the new one is complete.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks.records import (
    ClaimResult,
    PaperPlace,
    PointResult,
    Provenance,
    Record,
    RecordError,
    StorageError,
    read_record,
    write_record,
)
from benchmarks.records.errors import InvalidResultsError, UsageError
from benchmarks.records.provenance import collect
from ptdp_core import interrupts
from reproduce import ROOT
from reproduce.experiment import predictions
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import accuracy, judge
from reproduce.experiment.fidelity import folder_name
from reproduce.experiment.sweep import Point
from reproduce.running.evaluator import Devices, Evaluator, scales_of
from reproduce.running.fidelities import check_fidelity, default_scale, evaluator

RECORD = "record.json"
PARTIAL = "partial.json"
PAPERS_CLUSTER = "selene"  # the published values were measured on it
SAVE_EVERY_S = 1.0
REUSED = ("ok", "oom", "invalid")  # settled by what the fingerprint covers; a failure may have been of the moment


def record_paths(results: Path, artifact: Artifact) -> list[Path]:
    """An artifact's records below a results folder, in the order of its fidelities: its default one first."""

    def place(path: Path) -> tuple[int, Path]:
        fidelity = path.parent.name.split("-")[0]
        known = fidelity in artifact.fidelities
        return artifact.fidelities.index(fidelity) if known else len(artifact.fidelities), path

    return sorted((results / artifact.id).glob(f"*/{RECORD}"), key=place)


class Exporter(Protocol):
    """What makes the files beside a record (`reproduce.output.export`)."""

    def names(self, artifact: Artifact, record: Record) -> tuple[str, ...]:
        """The names of the files."""

    def contents(self, artifact: Artifact, record: Record) -> Mapping[str, bytes]:
        """The files, by name."""


@dataclass(frozen=True)
class Plan:
    """What a run would do: an artifact's points at a fidelity and a scale, and where it writes."""

    artifact: Artifact
    fidelity: str
    scale: str
    points: tuple[Point, ...]
    folder: Path


@dataclass(frozen=True)
class Run:
    """What a run did; `files` are those in the folder now, `computed` and `reused` count points."""

    plan: Plan
    record: Record
    files: tuple[Path, ...]
    computed: int
    reused: int


class InterruptedRun(KeyboardInterrupt):
    """The run was interrupted with `done` of its points finished and kept."""

    def __init__(self, plan: Plan, done: int) -> None:
        super().__init__(
            f"interrupted: {done} of {len(plan.points)} points of {plan.artifact.id} are finished and kept"
        )


def plan(
    artifact: Artifact,
    results: Path,
    fidelity: str | None = None,
    scale: str | None = None,
    launcher: str = "local",
) -> Plan:
    """The plan for an artifact; fidelity and scale are its first that go together unless given.

    What is measured has the scale of the devices that `launcher` finds. Raises `UsageError`.
    """
    fidelity = fidelity or next((f for f in artifact.fidelities if scale in scales_of(artifact, f)), None)
    fidelity = fidelity or artifact.fidelities[0]
    check_fidelity(artifact, fidelity)
    scales = scales_of(artifact, fidelity)
    scale = scale or default_scale(artifact, fidelity, launcher)
    if scale not in scales:
        raise UsageError(f"{artifact.id} has no scale {scale!r} at fidelity {fidelity}; it has: {', '.join(scales)}")
    folder = results / artifact.id / folder_name(fidelity, scale)
    return Plan(artifact.at(scale), fidelity, scale, artifact.points(scale), folder)


def run(
    plan: Plan,
    command: Sequence[str],
    cluster: str = "selene",
    fresh: bool = False,
    debug: bool = False,
    progress: AbstractContextManager[Callable[[str], None]] | None = None,
    launcher: str = "local",
    export: Exporter | None = None,
) -> Run:
    """Evaluate the plan's points, reusing unchanged ones of earlier records, and write the files.

    `fresh` computes all of them and does not look at earlier records. `progress` begins when the points do, and gives
    what is called with the label of each that is finished. `launcher` starts what is measured. `export` makes what is
    written beside the record; without it the record stands alone. Whatever ends the run early, what is finished is
    saved first. Raises `ReproduceError`, `StorageError` and `InterruptedRun`.
    """
    devices = Devices(plan.scale, launcher, plan.folder)
    evaluate = evaluator(plan.artifact, plan.fidelity, cluster, debug, devices)
    require_folder(plan.folder)
    session = _Session(plan, evaluate, command, fresh)
    try:
        with progress or nullcontext(lambda label: None) as on_point:
            for point in evaluate.order(plan.points):
                session.do(point)
                on_point(point.label)
        record = session.finished()
        files = written(plan, record, export) if record in session.earlier else None
        files = files or write_results(plan, record, export)
    except BaseException as error:
        with suppress(OSError, RecordError):
            session.save()
        if isinstance(error, KeyboardInterrupt):
            raise InterruptedRun(plan, len(session.finished_points())) from None
        raise
    return Run(plan, record, files, session.computed, len(plan.points) - session.computed)


class Judged(NamedTuple):
    """Evaluated points with their intervals, the claims judged on them, and what a reader has to know of them."""

    points: tuple[PointResult, ...]
    claims: tuple[ClaimResult, ...]
    notes: tuple[str, ...]


def judge_points(plan: Plan, evaluate: Evaluator, points: Sequence[PointResult]) -> Judged:
    """Judge the claims on a plan's evaluated points, and write the notes.

    On another cluster than the paper's, the points that come back have no published values to be compared with.
    """
    artifact, results = plan.artifact, evaluate.results(points, plan.scale)
    claims = tuple(judge(claim, results) for claim in artifact.claims)
    cluster = evaluate.cluster_ref.name if evaluate.cluster_ref else PAPERS_CLUSTER
    cluster_notes = []
    if cluster != PAPERS_CLUSTER and any(point.paper for point in results.points):
        results = replace(results, points=tuple(replace(point, paper={}) for point in results.points))
        cluster_notes.append(
            f"The published values are of the paper's A100s ({PAPERS_CLUSTER}): not compared with {cluster}."
        )
    difference = accuracy(artifact, results.points)
    notes = [str(difference)] if difference else []
    notes += predictions.notes(results.points, plan.fidelity)
    notes += artifact.notes(results) if artifact.notes else ()
    notes += evaluate.notes(results)
    return Judged(results.points, claims, (*notes, *cluster_notes))


def settled(records: Sequence[Record]) -> dict[str, PointResult]:
    """The points of earlier records that need not be computed again, by fingerprint; the first record wins."""
    return {p.fingerprint: p for record in reversed(records) for p in record.points if p.status in REUSED}


def reusable(known: Mapping[str, PointResult], evaluate: Evaluator, point: Point) -> PointResult | None:
    """The earlier result with this point's fingerprint, under the point's own key and names; None if there is none."""
    earlier = known.get(evaluate.fingerprint(point))
    if earlier is None:
        return None
    return replace(earlier, key=point.key, series=point.series, label=point.label, paper=point.paper)


class _Session:
    """The state of one run."""

    def __init__(self, plan: Plan, evaluate: Evaluator, command: Sequence[str], fresh: bool) -> None:
        self.plan, self.evaluate = plan, evaluate
        self.started, self.clock = datetime.now(UTC), time.monotonic()
        self.earlier = [] if fresh else earlier_records(plan.folder)
        self.known = settled(self.earlier)
        self.provenance = collect(command, self.started, cluster=evaluate.cluster_ref, code_digest=evaluate.code_digest)
        self.results: dict[str, PointResult] = {}  # of this run, by the points' keys
        self.computed = 0
        self.saved = self.clock

    def do(self, point: Point) -> None:
        """Take the point from an earlier record or evaluate it; save now and then."""
        result = reusable(self.known, self.evaluate, point)
        if result is None:
            result = self.evaluate.evaluate(point)
            interrupts.check()
            self.computed += 1
        self.results[point.key] = result
        if self.computed and time.monotonic() - self.saved >= SAVE_EVERY_S:
            self.save()

    def finished_points(self) -> tuple[PointResult, ...]:
        """The points that are finished: by this run, and those to come that earlier runs finished."""
        points = self.plan.points
        finished = (self.results.get(point.key) or reusable(self.known, self.evaluate, point) for point in points)
        return tuple(result for result in finished if result is not None)

    def save(self) -> None:
        """Write what is finished, also by earlier runs, as a partial record, if any of it is new."""
        if not self.computed:
            return
        path = self.partial_path()
        write_record(self._record("partial", self.finished_points()), path)
        if path.name == RECORD:  # what an earlier partial.json held is in it now
            (self.plan.folder / PARTIAL).unlink(missing_ok=True)
        self.saved = time.monotonic()

    def partial_path(self) -> Path:
        """Where a partial record goes: not over a complete one."""
        record = self.plan.folder / RECORD
        try:
            complete = read_record(record).state == "complete"
        except (FileNotFoundError, InvalidResultsError):
            complete = False
        return self.plan.folder / (PARTIAL if complete else RECORD)

    def finished(self) -> Record:
        """The complete record, with claims and notes."""
        judged = judge_points(self.plan, self.evaluate, self.finished_points())
        return replace(self._record("complete", judged.points), claims=judged.claims, notes=judged.notes)

    def _record(self, state: str, points: tuple[PointResult, ...]) -> Record:
        artifact = self.plan.artifact
        return Record(
            kind="artifact",
            id=artifact.id,
            title=artifact.title,
            paper=PaperPlace(artifact.label, artifact.section),
            fidelity=self.plan.fidelity,
            scale=self.plan.scale,
            state=state,
            provenance=self._provenance(),
            points=points,
        )

    def _provenance(self) -> Provenance:
        if not self.computed and self.earlier:  # all numbers are the earlier run's
            return self.earlier[0].provenance
        return replace(self.provenance, duration_s=round(time.monotonic() - self.clock, 3))


def require_folder(folder: Path) -> None:
    """Make the folder if need be. Raises `StorageError` unless it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(folder, PermissionError(13, "Permission denied"))


def earlier_records(folder: Path) -> list[Record]:
    """The records that earlier runs left in the folder, the newest first. Raises `InvalidResultsError`."""
    records = []
    for path in (folder / PARTIAL, folder / RECORD):
        try:
            records.append(read_record(path))
        except FileNotFoundError:
            continue
    return records


def written(plan: Plan, record: Record, export: Exporter | None) -> tuple[Path, ...] | None:
    """The files that an earlier run wrote for this very record; None if one is missing or older than our sources."""
    names = export.names(plan.artifact, record) if export else ()
    files = tuple(plan.folder / name for name in (RECORD, *names))
    sources = (path for package in ("reproduce", "ptdp_core", "benchmarks") for path in (ROOT / package).rglob("*.py"))
    try:
        oldest = min(path.stat().st_mtime_ns for path in files)
    except OSError:
        return None
    return files if oldest > max(path.stat().st_mtime_ns for path in sources) else None


def write_results(plan: Plan, record: Record, export: Exporter | None) -> tuple[Path, ...]:
    """Write the record and what `export` makes of it: all of the files, or, if anything fails, none."""
    contents = export.contents(plan.artifact, record) if export else {}
    staging = plan.folder / f".new-{os.getpid()}"
    with interrupts.held():
        try:
            require_folder(staging)
            for name, data in contents.items():
                _write(staging / name, data)
            _write_record(record, staging / RECORD)
            for name in (*contents, RECORD):  # the record last: it vouches for the others
                os.replace(staging / name, plan.folder / name)
        finally:
            with suppress(OSError):
                for path in staging.iterdir():
                    path.unlink()
                staging.rmdir()
        (plan.folder / PARTIAL).unlink(missing_ok=True)
    return tuple(plan.folder / name for name in (RECORD, *contents))


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StorageError(path.parent.parent / path.name, error) from error  # the place, not the staging folder


def _write_record(record: Record, path: Path) -> None:
    try:
        write_record(record, path)
    except StorageError as error:
        raise StorageError(path.parent.parent / path.name, error) from error
