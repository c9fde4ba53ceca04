"""`reproduce bench list`: what can be measured, as `python -m benchmarks list` shows it."""

from argparse import ArgumentParser, Namespace

from benchmarks.__main__ import print_list
from reproduce.commands import options


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench list`."""
    options.add_json(parser)


def run(parsed: Namespace) -> int:
    """Print a line for each benchmark."""
    return print_list(parsed.json)
