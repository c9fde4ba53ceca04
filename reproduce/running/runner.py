"""Running an artifact: evaluate its points or reuse them, judge the claims, write the files.

In `<results>/<id>/<fidelity>/` (`<fidelity>-<scale>` for a scale that is not the default) there are record.json and
the files that show it; results of another cluster than the paper's are in `<results>/clusters/<name>/<id>/...`.
All files of a folder are of the same run: they are prepared next to their place and renamed at the end, so a
failure leaves the earlier ones. While a run lasts it keeps what is finished as a partial record: in record.json, or,
where that holds a complete record, in partial.json until the new one is complete.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from ptdp_core import interrupts
from reproduce.experiment import predictions
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import ELSEWHERE, FIDELITIES, folder_name
from reproduce.experiment.judging import accuracy, judge
from reproduce.experiment.results import Results
from reproduce.output import export
from reproduce.running.fidelities import Plan, PointEvaluator, default_scale, evaluator
from results import ROOT
from results.records import (
    ClaimResult,
    PaperPlace,
    PointResult,
    Record,
    RecordError,
    StorageError,
    read_record,
    write_files,
    write_record,
)
from results.records.errors import InvalidResultsError, UsageError, did_you_mean
from results.records.provenance import collect

RECORD = "record.json"
PARTIAL = "partial.json"
SAVE_EVERY_S = 1.0
SOURCES = ("reproduce", "ptdp_core", "benchmarks", "results/records", "results/schema")
SOURCE_KINDS = ("*.py", "*.json", "*.toml")
# What the fingerprint settles. A failure may have been of the moment; what is invalid is quickly found to be so again,
# also by checks that the fingerprint does not cover.
REUSED = ("ok", "oom")


def record_paths(results: Path, artifact: Artifact) -> list[Path]:
    """An artifact's records below a results folder, in the order of its fidelities: its default one first."""

    def place(path: Path) -> tuple[int, Path]:
        fidelity = path.parent.name.split("-")[0]
        known = fidelity in artifact.fidelities
        return artifact.fidelities.index(fidelity) if known else len(artifact.fidelities), path

    return sorted((results / artifact.id).glob(f"*/{RECORD}"), key=place)


@dataclass(frozen=True)
class Run:
    """What a run did; `files` are those in the folder now, `computed` and `reused` count points."""

    plan: Plan
    record: Record
    files: tuple[Path, ...]
    computed: int
    reused: int

    @property
    def failed(self) -> list[PointResult]:
        """Points that are invalid or broke: 'oom' is a result."""
        return [point for point in self.record.points if point.status in ("failed", "invalid")]


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
    cluster: str | None = None,
    launcher: str = "local",
) -> Plan:
    """The plan for an artifact; fidelity and scale are its first that go together unless given,
    the cluster is its paper's.

    What is measured has the scale of the devices that `launcher` finds. Raises `UsageError`.
    """
    known = artifact.fidelities
    fidelity = fidelity or next((name for name in known if scale in artifact.scales_at(name)), known[0])
    if fidelity not in FIDELITIES:
        near = did_you_mean(fidelity, tuple(FIDELITIES))
        raise UsageError(f"unknown fidelity {fidelity!r}; {artifact.id} has: {', '.join(known)}{near}")
    if fidelity not in known:
        raise UsageError(f"{artifact.id} has no fidelity {fidelity!r}; it has: {', '.join(known)}")
    scales = artifact.scales_at(fidelity)
    scale = scale or default_scale(artifact, fidelity, launcher)
    if scale not in scales:
        raise UsageError(f"{artifact.id} has no scale {scale!r} at fidelity {fidelity}; it has: {', '.join(scales)}")
    cluster, below = cluster or artifact.cluster, Path(artifact.id) / folder_name(fidelity, scale)
    made = Plan(artifact.at(scale), fidelity, scale, artifact.points(scale), results / below, cluster, launcher)
    return replace(made, folder=results / ELSEWHERE / Path(cluster).stem / below) if made.elsewhere else made


def run(
    plan: Plan,
    command: Sequence[str],
    fresh: bool = False,
    debug: bool = False,
    progress: AbstractContextManager[Callable[[str], None]] | None = None,
    exported: bool = False,
    judged: Callable[[Record, int], None] | None = None,
) -> Run:
    """Evaluate the plan's points, reusing unchanged ones of earlier records, and write the files.

    `fresh` computes all of them and does not look at earlier records. `progress` begins when the points do, and gives
    what is called with the label of each that is finished. `judged` gets the record, and how many of its points were
    computed, before what is written beside it is made; the record stands alone unless it is `exported`. Whatever
    ends the run early, what is finished is saved first. Raises `ReproduceError`, `StorageError` and `InterruptedRun`.
    """
    evaluate = evaluator(plan, debug)
    require_folder(plan.folder)
    session = _Session(evaluate, command, fresh)
    try:
        with progress or nullcontext(lambda label: None) as on_point:
            for point in evaluate.order():
                if point.key not in session.results:
                    session.add(evaluate.evaluate(point))
                on_point(point.label)
        earlier = session.unchanged()
        if earlier and (files := written(plan, earlier, exported)):
            if judged:
                judged(earlier, 0)
            return Run(plan, earlier, files, 0, len(plan.points))
        points, claims, notes = judge_points(evaluate, session.points)
        record = replace(session.record("complete"), points=points, claims=claims, notes=notes)
        if judged:
            judged(record, session.computed)
        files = write_results(plan, record, exported)
    except BaseException as error:
        with suppress(OSError, RecordError):
            session.save()
        if isinstance(error, KeyboardInterrupt):
            raise InterruptedRun(plan, len(session.results)) from None
        raise
    return Run(plan, record, files, session.computed, len(plan.points) - session.computed)


def judge_points(
    evaluate: PointEvaluator, points: Sequence[PointResult]
) -> tuple[tuple[PointResult, ...], tuple[ClaimResult, ...], tuple[str, ...]]:
    """A plan's evaluated points with their intervals, the claims judged on them, and the notes of `told_points`."""
    results = evaluate.results(points)
    claims = tuple(judge(claim, results) for claim in evaluate.plan.artifact.claims)
    shown, notes = told_points(evaluate, results)
    return shown, claims, notes


def told_points(evaluate: PointEvaluator, results: Results) -> tuple[tuple[PointResult, ...], tuple[str, ...]]:
    """A plan's evaluated points with their intervals, and what a reader has to know of them.

    On another cluster than the paper's, the points that come back have no published values to be compared with.
    """
    artifact = evaluate.plan.artifact
    cluster = evaluate.cluster_ref.name if evaluate.cluster_ref else artifact.cluster
    cluster_notes = []
    if cluster != artifact.cluster and any(point.paper for point in results.points):
        results = replace(results, points=tuple(replace(point, paper={}) for point in results.points))
        cluster_notes.append(
            f"The published values are of the paper's own cluster ({artifact.cluster}): not compared with {cluster}."
        )
    parameters = [point.parameters for point in results.points]
    named = dict.fromkeys(str(each["cluster"]) for each in parameters if "cluster" in each)
    if cluster != artifact.cluster and named:
        cluster_notes.append(f"Series that name a cluster are on it ({', '.join(named)}); all others are on {cluster}.")
    difference = accuracy(artifact, results.points)
    notes = [str(difference)] if difference else []
    if FIDELITIES[results.fidelity].timed:
        notes += predictions.notes(results.points, results.fidelity)
    notes += artifact.notes_on(results)
    notes += evaluate.notes(results)
    return results.points, (*notes, *cluster_notes)


def reusable(evaluate: PointEvaluator, records: Sequence[Record]) -> dict[str, PointResult]:
    """The results in earlier records of a plan's points that need not be computed again, by the points' keys.

    A point is the same if its fingerprint is, whatever its key and names were. The first record that has it wins.
    """
    settled = {p.fingerprint: p for record in reversed(records) for p in record.points if p.status in REUSED}
    results = {}
    for point in evaluate.plan.points:
        if result := settled.get(evaluate.fingerprint(point)):
            results[point.key] = replace(
                result, key=point.key, series=point.series, label=point.label, paper=point.paper
            )
    return results


class _Session:
    """The state of one run: `results` are the points that are finished, by it or by earlier ones, by their keys."""

    def __init__(self, evaluate: PointEvaluator, command: Sequence[str], fresh: bool) -> None:
        self.plan = evaluate.plan
        self.clock = time.monotonic()
        self.earlier = [] if fresh else earlier_records(self.plan.folder)
        self.results = reusable(evaluate, self.earlier)
        self.provenance = collect(
            command, datetime.now(UTC), cluster=evaluate.cluster_ref, code_digest=evaluate.code_digest
        )
        self.computed = 0
        self.saved = self.clock

    @property
    def points(self) -> tuple[PointResult, ...]:
        """The finished points, in the plan's order."""
        return tuple(self.results[point.key] for point in self.plan.points if point.key in self.results)

    def unchanged(self) -> Record | None:
        """The earlier record of just these points, in which nothing is new but perhaps their claims; None without one.

        On another cluster than the paper's its points have no published values.
        """
        latest = self.earlier[0] if self.earlier else None
        if latest is None or self.computed or latest.state != "complete":
            return None
        without_paper = tuple(replace(point, paper={}) for point in self.points)
        return latest if latest.points in (self.points, without_paper) else None

    def add(self, result: PointResult) -> None:
        """Keep a point that was computed; save now and then."""
        interrupts.check()
        self.results[result.key] = result
        self.computed += 1
        if time.monotonic() - self.saved >= SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Write what is finished, if any of it is new: beside a complete record, if there is one, not in its place."""
        if not self.computed:
            return
        record, partial = self.plan.folder / RECORD, self.plan.folder / PARTIAL
        try:
            complete = read_record(record).state == "complete"
        except (FileNotFoundError, InvalidResultsError):
            complete = False
        write_record(self.record("partial"), partial if complete else record)
        if not complete:  # what an earlier partial.json held is in it now
            partial.unlink(missing_ok=True)
        self.saved = time.monotonic()

    def record(self, state: str) -> Record:
        """The record of what is finished, not judged."""
        artifact = self.plan.artifact
        provenance = replace(self.provenance, duration_s=round(time.monotonic() - self.clock, 3))
        if not self.computed and self.earlier:  # all numbers are the earlier run's
            provenance = self.earlier[0].provenance
        return Record(
            kind="artifact",
            id=artifact.id,
            title=artifact.title,
            paper=PaperPlace(artifact.label, artifact.section),
            fidelity=self.plan.fidelity,
            scale=self.plan.scale,
            state=state,
            provenance=provenance,
            points=self.points,
        )


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
            records.append(read_record(path, "move the file away, or make it again with --fresh"))
        except FileNotFoundError:
            continue
    return records


def written(plan: Plan, record: Record, exported: bool) -> tuple[Path, ...] | None:
    """The files that an earlier run wrote for this very record; None if one is missing, old or shows other columns."""
    names = export.names(plan.artifact, record) if exported else ()
    files = tuple(plan.folder / name for name in (RECORD, *names))
    try:
        oldest = min(path.stat().st_mtime_ns for path in files)
    except OSError:
        return None
    newer = oldest > _newest_source()
    return files if newer and (not exported or export.up_to_date(plan.artifact, record, plan.folder)) else None


@cache
def _newest_source() -> int:
    """When the sources of all that a run writes last changed: programs, published numbers, clusters and margins."""
    from reproduce.experiment import margins  # imported here, as `report` and `plot` only read records

    sources = [margins.FILE] if margins.FILE.exists() else []
    sources += [path for package in SOURCES for kind in SOURCE_KINDS for path in (ROOT / package).rglob(kind)]
    return max(path.stat().st_mtime_ns for path in sources)


def write_results(plan: Plan, record: Record, exported: bool) -> tuple[Path, ...]:
    """Write the record, and if it is exported what shows it: all of the files, or, if anything fails, none."""
    contents = export.contents(plan.artifact, record) if exported else {}
    staging = plan.folder / f".new-{os.getpid()}"
    with interrupts.held():
        try:
            write_files(staging, contents)
            write_record(record, staging / RECORD)
            for name in (*contents, RECORD):  # the record last: it vouches for the others
                os.replace(staging / name, plan.folder / name)
        except StorageError as error:
            raise StorageError(plan.folder / error.path.name, error) from error  # the place, not the staging folder
        finally:
            with suppress(OSError):
                for path in staging.iterdir():
                    path.unlink()
                staging.rmdir()
        (plan.folder / PARTIAL).unlink(missing_ok=True)
    return tuple(plan.folder / name for name in (RECORD, *contents))
