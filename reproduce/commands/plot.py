"""`reproduce plot NAME ...`: draws the figures of artifacts and of benchmarks again, from their records alone."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from benchmarks.harness.registry import BENCHMARKS
from benchmarks.harness.runner import record_path
from benchmarks.records import Record, RecordError, atomic_write_bytes, errors, read_record
from benchmarks.records.errors import InvalidResultsError, NothingSelectedError, UsageError, did_you_mean
from reproduce.commands.options import add_results
from reproduce.experiment import catalog
from reproduce.output import figures
from reproduce.output.terminal import shown_path
from reproduce.running.runner import RECORD

HELP = """\
NAME is an artifact (reproduce list) or a benchmark (python -m benchmarks list); without one, everything that has a
record. Nothing runs: the figure next to each record is drawn again from what the record says.

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce plot`."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="artifacts and benchmarks (default: all with a record)"
    )
    add_results(parser)


def run(parsed: Namespace) -> int:
    """Draw the figures of the names given, or of all there is; returns the exit code."""
    names, results, program = parsed.names, parsed.results, parsed.program
    known = (*catalog.ids(), *BENCHMARKS)
    for name in names:
        if name not in known:
            raise UsageError(f"unknown artifact or benchmark {name!r}{did_you_mean(name, known)}")
    found = {name: _records(results, name) for name in dict.fromkeys(names or known)}
    for name in names:
        if not found[name]:
            how = f"python -m benchmarks run {name}" if name in BENCHMARKS else f"{program} {name}"
            raise NothingSelectedError(f"{name} has no record in {shown_path(results)}; try {how}")
    drawn = [path for name, paths in found.items() for record in paths for path in _draw(name, record)]
    if not drawn:
        raise NothingSelectedError(f"nothing to draw in {shown_path(results)}; try {program} fig_interleaved")
    for path in drawn:
        print(shown_path(path))
    return errors.DONE


def _records(results: Path, name: str) -> list[Path]:
    if name in BENCHMARKS:
        return [path] if (path := record_path(results, name)).exists() else []
    return sorted((results / name).glob(f"*/{RECORD}"))


def _draw(name: str, path: Path) -> list[Path]:
    contents = _contents(name, _read(path))
    for file, data in contents.items():
        atomic_write_bytes(path.with_name(file), data)
    return [path.with_name(file) for file in contents]


def _contents(name: str, record: Record) -> dict[str, bytes]:
    if name in BENCHMARKS:
        from reproduce.output import benchmark_figures

        return benchmark_figures.render(record)
    return figures.render(catalog.load(name).at(record.scale), record)


def _read(path: Path) -> Record:
    try:
        return read_record(path)
    except RecordError as error:
        raise InvalidResultsError(str(error)) from error
