"""`reproduce report`: all results of a folder as one HTML page that needs nothing else, no network either.

This module reads the records; `report_page.py` and `report_sections.py` write the page. The same results give the same
page.
"""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.records import ClaimResult, Record, RecordError, atomic_write_bytes, read_record
from benchmarks.records.errors import DONE, InvalidResultsError, NothingSelectedError, UsageError
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Accuracy, accuracy
from reproduce.running.fidelities import code_digest
from reproduce.running.runner import PARTIAL, RECORD

FIGURE = "figure.png"
ACCURACY = "accuracy"
PLAN = "plan"
NOT_TESTABLE = "not testable here"
COMPUTED_HERE = ("simulated", "derived")  # their numbers follow from the sources, which can be compared


@dataclass(frozen=True)
class Result:
    """A record in its folder, with the files next to it; `outdated`: other sources than these made it."""

    record: Record
    folder: Path
    files: tuple[Path, ...]
    artifact: Artifact | None = None
    outdated: bool = False

    @property
    def accuracy(self) -> Accuracy | None:
        """How far the points are from the paper's."""
        return accuracy(self.artifact, self.record.points) if self.artifact else None


@dataclass(frozen=True)
class Entry:
    """An artifact of the paper with its results, one per fidelity; `command` runs it, if this version has it."""

    id: str
    label: str
    artifact: Artifact | None
    results: tuple[Result, ...]
    command: str

    @property
    def title(self) -> str:
        """What the figure or table shows."""
        return self.artifact.title if self.artifact else self.id


@dataclass(frozen=True)
class Report:
    """All that the page shows; links on it start at `base`."""

    entries: tuple[Entry, ...]
    base: Path
    results: Path
    accuracy: Result | None = None
    plans: tuple[Result, ...] = ()
    program: str = "reproduce"
    options: tuple[str, ...] = field(default=())

    @property
    def shown(self) -> tuple[tuple[Entry, Result], ...]:
        """Every result of an artifact, in the paper's order."""
        return tuple((entry, result) for entry in self.entries for result in entry.results)

    @property
    def claims(self) -> tuple[tuple[Entry, ClaimResult], ...]:
        """Every claim, once for each result that tests it; one that none can test, once."""
        found = []
        for entry in self.entries:
            judged = [claim for result in entry.results for claim in result.record.claims]
            tested = {claim.id for claim in judged if claim.verdict != NOT_TESTABLE}
            untested = {claim.id: claim for claim in judged if claim.id not in tested}
            found += [(entry, claim) for claim in judged if claim.verdict != NOT_TESTABLE]
            found += [(entry, claim) for claim in untested.values()]
        return tuple(found)

    def command(self, *words: str) -> str:
        """A command of this program for the same results."""
        return shlex.join([*self.program.split(), *words, *self.options])


def run(results: Path, out: Path | None, program: str) -> int:
    """Read the results, write the page, say where it is. Raises `ReproduceError` and `StorageError`."""
    from reproduce.commands.run import shown_path
    from reproduce.output.html.page import page

    out = out or results / "report.html"
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; needs a file; try --out {out / 'report.html'}")
    found = collect(results, out.parent, program)
    text = page(found)
    atomic_write_bytes(out, text.encode("utf-8", "replace"))
    have = sum(bool(entry.results) for entry in found.entries)
    print(f"{have} of {len(found.entries)} figures and tables, {len(found.claims)} claims: {shown_path(out)}")
    if missing := [entry for entry in found.entries if entry.artifact and not entry.results]:
        print(f"next: {missing[0].command}  (or {found.command('all')}), then {found.command('report')}")
    return DONE


def collect(results: Path, base: Path, program: str = "reproduce") -> Report:
    """The records below `results`. Raises `InvalidResultsError` for an invalid one, `NothingSelectedError` for none."""
    from reproduce.cli import DEFAULT_RESULTS

    options = () if results == DEFAULT_RESULTS else ("--results", str(results))
    available = set(catalog.ids())
    entries = []
    for id, label in catalog.LABELS.items():
        artifact = catalog.load(id) if id in available else None
        found = tuple(_result(path, id, artifact) for path in sorted((results / id).glob(f"*/{RECORD}")))
        command = shlex.join([*program.split(), id, *options])
        entries.append(Entry(id, label, artifact, found, command))
    comparison = results / ACCURACY / RECORD
    report = Report(
        entries=tuple(entries),
        base=base,
        results=results,
        accuracy=_result(comparison, ACCURACY) if comparison.is_file() else None,
        plans=tuple(_result(path, PLAN) for path in sorted((results / PLAN).glob(f"*/{RECORD}"))),
        program=program,
        options=options,
    )
    if not report.shown and report.accuracy is None and not report.plans:
        raise NothingSelectedError(f"no results in {results}; run {report.command('all')} first")
    return report


def _result(path: Path, id: str, artifact: Artifact | None = None) -> Result:
    try:
        record = read_record(path)
        files = tuple(sorted(p for p in path.parent.iterdir() if p.is_file() and not p.name.startswith(".")))
    except RecordError as error:
        raise InvalidResultsError(f"{error} (move the file away, or run {id} again with --fresh)") from None
    except OSError as error:
        raise InvalidResultsError(f"cannot read {path}: {error.strerror}") from None
    if record.id != id:
        raise InvalidResultsError(f"{path} holds the record of {record.id}, not of {id} (move the file away)")
    if artifact is not None and record.fidelity != path.parent.name.split("-")[0]:
        raise InvalidResultsError(f"{path} holds a {record.fidelity} record (move the file away)")
    files = tuple(p for p in files if p.name != PARTIAL)
    outdated = (
        artifact is not None
        and record.fidelity in COMPUTED_HERE
        and record.provenance.code_digest is not None
        and record.provenance.code_digest != code_digest(artifact, record.fidelity)
    )
    return Result(record, path.parent, files, artifact.at(record.scale) if artifact else None, outdated)


def link(report: Report, path: Path) -> str:
    """The address of a file as a link on the page has it: relative, with / and quoted."""
    from urllib.parse import quote

    relative = os.path.relpath(path.absolute(), report.base.absolute())
    return quote(relative.replace(os.sep, "/"))
