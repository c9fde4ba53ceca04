"""`reproduce bench run`: the microbenchmarks, as `python -m benchmarks run` runs them."""

from argparse import ArgumentParser, Namespace

from benchmarks import __main__ as benchmarks

HELP = """examples:
  reproduce bench run gemm --quick
  reproduce bench run p2p collectives --device cuda
  reproduce plot gemm

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench run`."""
    benchmarks.add_run_arguments(parser)


def run(parsed: Namespace) -> int:
    """Measure, print and write; the exit code."""
    return benchmarks.run_named(parsed, parsed.command, parsed.quiet)
