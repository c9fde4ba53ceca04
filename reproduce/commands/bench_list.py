"""`reproduce bench list`: what can be measured."""

from argparse import ArgumentParser, Namespace

from benchmarks.harness.registry import BENCHMARKS
from reproduce.commands import options
from results.records.documents import print_document
from results.records.errors import DONE


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench list`."""
    options.add_json(parser)


def run(parsed: Namespace) -> int:
    """Print a line for each benchmark; the exit code."""
    if parsed.json:
        rows = [{"name": b.name, "title": b.title, "section": b.section} for b in BENCHMARKS.values()]
        print_document("benchmarks-list", 1, {"benchmarks": rows})
        return DONE
    width = max(map(len, BENCHMARKS))
    for benchmark in BENCHMARKS.values():
        section = f" ({benchmark.section})" if benchmark.section else ""
        print(f"{benchmark.name:{width}}  {benchmark.title}{section}")
    print(f"\nnext: {parsed.program} bench run {next(iter(BENCHMARKS))} --quick")
    return DONE
