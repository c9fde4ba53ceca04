"""`python -m benchmarks list | run NAME ... | exact`: microbenchmarks, each writing one record; and exact checks.

`reproduce bench list`, `reproduce bench run` and `reproduce gate exact` are the same.
"""

import shlex
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence

from benchmarks.exact import command as exact
from benchmarks.harness.command import Parser, add_results, run_command
from benchmarks.harness.registry import BENCHMARKS, find
from ptdp_core import interrupts
from results.records import errors
from results.records.documents import JSON_HELP, print_document
from results.records.errors import NothingSelectedError

PROGRAM = "python -m benchmarks"
ENTRY = "reproduce bench"  # of which this is a part: what messages tell to type
CODES = (
    errors.DONE,
    errors.INTERNAL,
    errors.USAGE,
    errors.UNAVAILABLE,
    errors.POINTS_FAILED,
    errors.REGRESSED,
    errors.INVALID_RESULTS,
    errors.NOTHING_SELECTED,
    errors.INTERRUPTED,
    errors.TERMINATED,
)
EXAMPLES = f"""\
examples:
  {PROGRAM} list
  {PROGRAM} run gemm --quick
  {PROGRAM} exact
  {PROGRAM} run p2p collectives --device cuda
  reproduce plot gemm

exit codes:
"""


def parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Microbenchmarks of the engine, its kernels and messages, the simulator and the command line.",
        epilog=EXAMPLES + "\n".join(f"  {code:>3}  {errors.MEANINGS[code]}" for code in CODES),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="list | run | exact")
    lists = commands.add_parser("list", help="what can be measured", allow_abbrev=False)
    runs = commands.add_parser(
        "run", help="measure, print, and write DIR/benchmarks/NAME/record.json", allow_abbrev=False
    )
    lists.add_argument("--json", action="store_true", help=JSON_HELP)
    add_run_arguments(runs)
    exact.add_parser(commands)
    return parser


def add_run_arguments(parser: ArgumentParser) -> None:
    """The options of a measurement."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="benchmarks to run, or all")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--quick", action="store_true", help="small sizes and few samples: a trial")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    add_results(parser)


def dispatch(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    asked = parser().parse_args(arguments)
    if asked.command == "list":
        return print_list(asked.json)
    if asked.command == "exact":
        return exact.run(asked)
    return run_named(asked, (*PROGRAM.split(), *arguments))


def run_named(asked: Namespace, command: Sequence[str], quiet: bool = False) -> int:
    """Run the benchmarks that are asked for; returns the exit code."""
    if not asked.names:
        raise NothingSelectedError(f"nothing selected: name benchmarks ({ENTRY} list shows them), or all")
    names = list(BENCHMARKS) if asked.names == ["all"] else list(dict.fromkeys(asked.names))
    for name in names:  # all of them before the first one runs
        find(name)
    return _run(names, asked, command, quiet)


def print_list(as_json: bool) -> int:
    """Print a line for each benchmark; returns the exit code."""
    if as_json:
        rows = [{"name": b.name, "title": b.title, "section": b.section} for b in BENCHMARKS.values()]
        print_document("benchmarks-list", 1, {"benchmarks": rows})
        return errors.DONE
    width = max(map(len, BENCHMARKS))
    for benchmark in BENCHMARKS.values():
        section = f" ({benchmark.section})" if benchmark.section else ""
        print(f"{benchmark.name:{width}}  {benchmark.title}{section}")
    print(f"\nnext: {ENTRY} run {next(iter(BENCHMARKS))} --quick")
    return errors.DONE


def _run(names: list[str], asked: Namespace, command: Sequence[str], quiet: bool) -> int:
    from benchmarks.harness import history
    from benchmarks.harness.runner import choose_device, record_path, results_of, run
    from benchmarks.harness.table import table
    from results.records import write_record

    device, records = choose_device(asked.device), []
    for index, name in enumerate(names):
        try:
            record = run(BENCHMARKS[name], device, asked.quick, command, (lambda what: None) if quiet else _tell)
        except KeyboardInterrupt:
            rest = shlex.join([*ENTRY.split(), "run", *names[index:]])
            print(f"benchmarks: interrupted in {name}; the rest, with the same options: {rest}", file=sys.stderr)
            return interrupts.settle()
        if not quiet:
            _tell("")
        path = record_path(asked.results, name)
        write_record(record, path)
        history.keep(record, asked.results)
        records.append(record)
        if quiet and not asked.json:
            print(path, flush=True)
        elif not asked.json:
            print(table(record), f"file: {path}", "", sep="\n", flush=True)
    statuses = [{point.status for point in results_of(record)} for record in records]
    code = errors.POINTS_FAILED if any("failed" in status for status in statuses) else errors.DONE
    if not code and any("ok" not in status for status in statuses):
        code = errors.NOTHING_SELECTED
    if asked.json:
        print_document("benchmarks-run", 1, {"exit_code": code, "benchmarks": [r.to_json() for r in records]})
    elif not quiet:
        print(f"next: reproduce plot {names[-1]}")
    return code


def _tell(what: str) -> None:
    """Show the progress on a terminal, on a line that the next text, or nothing, overwrites."""
    if sys.stderr.isatty():
        print(f"\033[K{what}\r", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return run_command("benchmarks", PROGRAM, sys.argv[1:] if arguments is None else arguments, dispatch)


if __name__ == "__main__":
    interrupts.run_program("benchmarks", main)
