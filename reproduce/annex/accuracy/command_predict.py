"""`reproduce predict`: sealed predictions of public training runs, made before anybody joins what they measured."""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path

from reproduce.commands import options
from reproduce.commands.simulate import read_points
from reproduce.output.terminal import shown_path
from results.records.errors import DONE

HELP = """POINTS.json is a list of public runs without what they measured (docs/blind.md says which keys a row has).
Writes DIR/record.json: every row's prediction with its interval, or why there is none, and prints what limits each: the
largest parts of its time, and the machine's rates that it is bound by (not with -q). A sealed record is never written
again.

example:
  reproduce predict results/reference/blind/second/points.json --out sealed

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce predict`."""
    parser.add_argument("file", metavar="POINTS.json", type=options.path_of, help="the runs")
    options.add(parser, "program")
    parser.add_argument("--out", type=options.path_of, metavar="DIR", required=True, help="where to seal them")


def run(parsed: Namespace) -> int:
    """Write the sealed predictions of the runs in the file; say what limits each, why not more, and the digest."""
    from collections import Counter

    from reproduce.annex.accuracy import sealed
    from reproduce.running.runner import RECORD
    from results.records import digest_file

    started = datetime.now(UTC)
    rows, file = read_points(str(parsed.file)), Path(parsed.file)
    options.say_where_python_runs(parsed.quiet)
    record = sealed.seal(rows, file, parsed.out, parsed.command, started, parsed.trainer)
    for line in () if parsed.quiet else sealed.limited_by(rows, parsed.trainer):
        print(line)
    print(record.notes[0])
    for reason, count in Counter(point.reason for point in record.points if not point.metrics).most_common():
        print(f"{count:5}  {reason}")
    print(shown_path(parsed.out), f"SHA-256 of its {RECORD}: {digest_file(parsed.out / RECORD)}", sep="\n")
    return DONE
