"""`reproduce bench run`: measure with microbenchmarks; each writes one record."""

import shlex
import sys
from argparse import ArgumentParser, Namespace

from benchmarks.harness.registry import BENCHMARKS, find
from ptdp_core import interrupts
from reproduce.commands import options
from results.records import errors
from results.records.documents import print_document
from results.records.errors import NothingSelectedError

HELP = """examples:
  reproduce bench run gemm --quick
  reproduce bench run p2p collectives --device cuda
  reproduce plot gemm

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench run`."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="benchmarks to run, or all")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--quick", action="store_true", help="small sizes and few samples: a trial")
    options.add_json(parser)
    options.add_results(parser)


def run(parsed: Namespace) -> int:
    """Run the benchmarks, print them, and write DIR/benchmarks/NAME/record.json; the exit code."""
    if not parsed.names:
        raise NothingSelectedError(
            f"nothing selected: name benchmarks ({parsed.program} bench list shows them), or all"
        )
    names = list(BENCHMARKS) if parsed.names == ["all"] else list(dict.fromkeys(parsed.names))
    for name in names:  # all of them before the first one runs
        find(name)
    from benchmarks.harness import history, runner
    from benchmarks.harness.table import table
    from results.records import write_record

    device, records = runner.choose_device(parsed.device), []
    tell = (lambda what: None) if parsed.quiet else _tell
    for index, name in enumerate(names):
        try:
            record = runner.run(BENCHMARKS[name], device, parsed.quick, parsed.command, tell)
        except KeyboardInterrupt:
            rest = shlex.join([*parsed.program.split(), "bench", "run", *names[index:]])
            print(f"reproduce: interrupted in {name}; the rest, with the same options: {rest}", file=sys.stderr)
            return interrupts.settle()
        tell("")
        path = runner.record_path(parsed.results, name)
        write_record(record, path)
        history.keep(record, parsed.results)
        records.append(record)
        if not parsed.json:
            text = str(path) if parsed.quiet else f"{table(record)}\nfile: {path}\n"
            print(text, flush=True)
    statuses = [{point.status for point in runner.results_of(record)} for record in records]
    code = errors.POINTS_FAILED if any("failed" in status for status in statuses) else errors.DONE
    if not code and any("ok" not in status for status in statuses):
        code = errors.NOTHING_SELECTED
    if parsed.json:
        print_document("benchmarks-run", 1, {"exit_code": code, "benchmarks": [r.to_json() for r in records]})
    elif not parsed.quiet:
        print(f"next: {parsed.program} plot {names[-1]}")
    return code


def _tell(what: str) -> None:
    """Show the progress on a terminal, on a line that the next text, or nothing, overwrites."""
    if sys.stderr.isatty():
        print(f"\033[K{what}\r", end="", file=sys.stderr, flush=True)
