"""`reproduce report`: all results of a folder as one HTML page that needs nothing else, no network either.

This module reads the records; `reproduce.annex.report` writes the page. The same results give the same page.
"""

import shlex
import sys
import textwrap
from argparse import ArgumentParser, Namespace
from pathlib import Path

from reproduce.annex.report.contents import ArtifactResults, RecordFiles, ReportContents
from reproduce.commands import options
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.output.terminal import shown_path
from reproduce.running.fidelities import code_digest
from reproduce.running.runner import PARTIAL, RECORD, record_paths
from results import opening
from results.records import atomic_write_bytes, read_record, storage
from results.records.documents import print_document
from results.records.errors import DONE, USAGE, InvalidResultsError, NothingSelectedError, UsageError

ACCURACY = "accuracy"
PLAN = "plan"
HEAD = 1000  # bytes of a page within which it says what it is made from


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce report`."""
    parser.add_argument(
        "--out", type=options.path_to_write, metavar="FILE", help="where to write (default: report.html in --results)"
    )
    options.add(parser, "paper", "json", "results")


def run(parsed: Namespace) -> int:
    """Read the results, write the page, say where it is. Raises `ReproduceError` and `StorageError`."""
    results, out = parsed.results, parsed.out or parsed.results / "report.html"
    if out.is_dir():
        raise UsageError(f"--out {out} is a folder; needs a file; try --out {out / 'report.html'}")
    broken = options.say_broken()
    content = collect(results, parsed.program, parsed.paper)
    if not _is_made_from(content, out):
        from reproduce.annex.report.report_page import page  # imported here, as it takes a while

        atomic_write_bytes(out, page(content).encode("utf-8", "replace"))
    code = USAGE if broken else DONE
    for line in content.left_out:
        print(f"reproduce: {line}", file=sys.stderr)
    have = sum(bool(entry.results) for entry in content.entries)
    if parsed.json:
        counts = {"artifacts": len(content.entries), "with_results": have, "counts": content.answer.counts}
        print_document("report", 1, {"file": str(out), "answer": content.answer.headline, **counts})
        return code
    for line in (content.answer.headline, *content.answer.by_paper):
        print(*textwrap.wrap(line, 100), sep="\n")
    print(f"{have} of {len(content.entries)} artifacts: {shown_path(out)}")
    missing = [entry for entry in content.entries if not entry.results]
    if missing and not parsed.quiet:
        print(f"next: {content.command('all')}, then this again")
    return code


def collect(results: Path, program: str = "reproduce", paper: str | None = None) -> ReportContents:
    """The records below `results`, or those of a paper.

    Raises `InvalidResultsError` for an invalid one, `NothingSelectedError` for none.
    """
    where = () if results == storage.DEFAULT_RESULTS else ("--results", str(results))
    entries = []
    for id in catalog.ids(paper):
        artifact = catalog.load(id)
        records = tuple(_result(path, id, artifact) for path in record_paths(results, artifact))
        command = f"{program} {shlex.join([id, *where])}"
        entries.append(ArtifactResults(artifact, records, command))
    comparison = results / ACCURACY / RECORD
    report = ReportContents(
        entries=tuple(entries),
        accuracy=_result(comparison, ACCURACY) if comparison.is_file() else None,
        plans=tuple(_result(path, PLAN) for path in sorted((results / PLAN).glob(f"*/{RECORD}"))),
        program=program,
        options=where,
        paper=paper,
    )
    if not report.shown and report.accuracy is None and not report.plans:
        raise NothingSelectedError(f"no results in {results}; run {report.command('all')} first")
    return report


def _is_made_from(content: ReportContents, out: Path) -> bool:
    """Whether a file is the page of this content already."""
    try:
        with opening.open_regular(out) as file:
            return f'content="sha256-{content.digest}"'.encode() in file.read(HEAD)
    except OSError:  # there is none yet, or none that can be read
        return False


def _result(path: Path, id: str, artifact: Artifact | None = None) -> RecordFiles:
    record = read_record(path)
    if record.id != id:
        raise InvalidResultsError(f"{path} holds the record of {record.id}, not of {id} (move the file away)")
    if artifact is not None and record.fidelity != path.parent.name.split("-")[0]:
        raise InvalidResultsError(f"{path} holds a {record.fidelity} record (move the file away)")
    files = (p for p in path.parent.iterdir() if p.is_file() and not p.name.startswith(".") and p.name != PARTIAL)
    outdated = (
        artifact is not None
        and not FIDELITIES[record.fidelity].timed  # other numbers follow from the sources, which can be compared
        and record.provenance.code_digest is not None
        and record.provenance.code_digest != code_digest(artifact, record.fidelity)
    )
    artifact = artifact.at(record.scale) if artifact else None
    return RecordFiles(record, path.parent, tuple(sorted(files)), artifact, outdated)
