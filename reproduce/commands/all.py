"""`reproduce all`: run every artifact, and answer whether the paper holds."""

from argparse import ArgumentParser, Namespace

from reproduce.commands import run as run_ids
from reproduce.experiment import catalog

HELP = run_ids.HELP


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce all`: those of `reproduce ID`."""
    run_ids.add_options(parser)


def run(parsed: Namespace) -> int:
    """Run every artifact that has the fidelity and the scale asked for."""
    artifacts = [catalog.load(id) for id in catalog.ids()]
    return run_ids.run_artifacts(run_ids.offered(artifacts, parsed), parsed, brief=True)
