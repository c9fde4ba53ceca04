"""Trials of the timing gate on itself: on identical code, and on code that a patch really slows down.

A project names that patch, or each iteration is stretched. A trial is a session of the gate with a new seed. The record
of all trials, by commit and class of machine, shows how often the gate is wrong and how often it does not decide.
"""

import random
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from reproduce.annex.gate import report, run, trees
from reproduce.annex.gate.procedure import INCONCLUSIVE, OK, REGRESSED
from reproduce.annex.gate.project import Project
from reproduce.annex.gate.trees import BASE, HEAD, Tree, last_line
from results.records import Metric, PointResult, Provenance, fingerprint, provenance, read_record, write_record
from results.records.errors import UnavailableError

ID = "gate_trials"
STRETCHED = 0.10  # of the iterations of a project's head, for which there is no patch
RIGHT = {"identical": OK, "slowed": REGRESSED}  # the right verdict on each kind of head
UNDECIDED = 4  # trials without any verdict after which a machine counts as one that never decides
COLUMNS = ("machine", "benchmark", "code", "trials", "right", "wrong", "inconclusive", "s per trial")


def record_path(results: Path) -> Path:
    """The path of the record that trials are appended to."""
    return results / ID / "measured" / "record.json"


def earlier(path: Path) -> tuple[PointResult, ...]:
    """The trials in a record; none if there is no file yet. Raises `InvalidResultsError` if the file is no record."""
    return read_record(path).points if path.exists() else ()


def machine() -> dict[str, Any]:
    """The class of this machine, as parameters of a trial: what decides whether its verdicts are comparable."""
    host = provenance.host()
    return {"cpu": host.cpu or host.machine, "logical_cores": host.logical_cores or 0}


def having(points: Sequence[PointResult], parameters: Mapping[str, Any]) -> list[PointResult]:
    """The trials with these parameters."""
    return [point for point in points if parameters.items() <= point.parameters.items()]


def tried(points: Sequence[PointResult], benchmark: str, parameters: Mapping[str, Any]) -> list[str]:
    """The kinds of the trials of a benchmark, or of the tests that it stands for, which have these parameters."""
    found = [(point.parameters["benchmark"], point) for point in having(points, parameters)]
    of_it = [each for name, each in found if name == benchmark or name.startswith((f"{benchmark}::", f"{benchmark}["))]
    return list({point.parameters["seed"]: point.series for point in of_it}.values())


@contextmanager
def built(project: Project) -> Iterator[dict[str, dict[str, Tree]]]:
    """Build base and head for each kind of trial: trees of HEAD, of which this project's slowed head is patched.

    Raises `UnavailableError` if a tree does not build, or the patch does not fit.
    """
    with trees.built(project.folder, {BASE: "HEAD", HEAD: "HEAD"}, project.build) as identical:
        slowed = identical[HEAD]
        if project.slowed:
            patch = (project.folder / project.slowed).resolve()
            folder = trees.export(project.folder, slowed.commit, slowed.folder.with_name("slowed"))
            slowed = replace(slowed, ref=f"HEAD with {patch.name}", folder=folder)
            patched = subprocess.run(["git", "apply", str(patch)], cwd=folder, capture_output=True, check=False)
            if patched.returncode:
                why = f"{project.slowed} does not fit {slowed.commit[:10]}: {last_line(patched.stderr)}"
                raise UnavailableError(why)
            trees.install(slowed, project.build)
        yield {"identical": identical, "slowed": {**identical, HEAD: slowed}}


def trial(
    kind: str, sides: dict[str, Tree], project: Project, budget_s: float, progress: Callable[[str], None]
) -> list[PointResult]:
    """Run one session of the gate, and return a point for each benchmark."""
    slowdown = STRETCHED if kind == "slowed" and not project.slowed else 0.0
    started, clock, seed = provenance.timestamp(), time.monotonic(), random.SystemRandom().randrange(2**31)
    times_only = replace(project, exact="", counts=False)
    result = run.check(times_only, sides, seed, budget_s, progress, slowdown=slowdown)
    seconds = time.monotonic() - clock
    points = []
    for finding in result.session.findings:
        parameters = {
            "commit": sides[BASE].commit,
            **machine(),
            "benchmark": finding.name,
            "verdict": finding.verdict,
            "seed": seed,
            "budget_s": budget_s,
            "pairs": finding.pairs,
            "redone_rounds": result.session.redone,
            "started": started,
        }
        key, label = f"{kind}/{finding.name}/{started}/{seed}", f"{finding.name}: {finding.verdict}"
        metrics = {"duration": Metric(seconds, "s", "measured", (seconds,))} | report.metrics(finding)
        points.append(PointResult(key, kind, label, parameters, "ok", None, fingerprint(parameters), metrics))
    return points


def append(path: Path, points: Sequence[PointResult], where: Provenance) -> tuple[PointResult, ...]:
    """Write the record with these trials after its earlier ones; return all. Raises `StorageError` or `RecordError`."""
    record = report.comparison(
        ID,
        "Trials of the timing gate on identical and on slowed code",
        where,
        [*earlier(path), *points],
        ["Each point is a trial, on the machine and commit among its parameters; the provenance is the last one's."],
    )
    write_record(record, path)
    return record.points


def outcomes(points: Sequence[PointResult]) -> Counter[str]:
    """How many verdicts are right, wrong and inconclusive."""
    verdicts = [(point.parameters["verdict"], RIGHT[point.series]) for point in points]
    return Counter(
        INCONCLUSIVE if verdict == INCONCLUSIVE else "right" if verdict == right else "wrong"
        for verdict, right in verdicts
    )


def table(points: Sequence[PointResult]) -> str:
    """The verdicts by class of machine, benchmark and kind, in Markdown."""
    groups: dict[tuple[str, ...], list[PointResult]] = {}
    for point in points:
        of = point.parameters
        machine_class = f"{of['cpu']}, {of['logical_cores']} cores"
        groups.setdefault((machine_class, of["benchmark"], point.series), []).append(point)
    rows = []
    for group, trials in groups.items():
        counts = outcomes(trials)
        seconds = statistics.median(trial.metrics["duration"].value or 0 for trial in trials)
        numbers = (len(trials), counts["right"], counts["wrong"], counts[INCONCLUSIVE], round(seconds))
        rows.append((*group, *map(str, numbers)))
    return report.table(COLUMNS, rows)


def badge(points: Sequence[PointResult], project: Project) -> dict[str, str | int]:
    """The error rates of these trials as shields.io reads them (https://shields.io/badges/endpoint-badge)."""
    kinds = {kind: [point for point in points if point.series == kind] for kind in RIGHT}
    alarms, slowed = outcomes(kinds["identical"])["wrong"], kinds["slowed"]
    message = f"{alarms} of {len(kinds['identical'])} false"
    if slowed:
        found = outcomes(slowed)["right"] / len(slowed)
        message += f", {'slowed code' if project.slowed else f'{STRETCHED:+.0%}'} found in {found:.0%}"
    return {"schemaVersion": 1, "label": "gate", "message": message, "color": "red" if alarms else "green"}
