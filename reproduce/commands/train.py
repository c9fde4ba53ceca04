"""`reproduce train`: a training run, as `ptdp-train` starts it."""

import math
import os
import sys
from argparse import ArgumentParser, Namespace

from ptdp_core.engine import settings_file
from ptdp_core.launch import command_line
from ptdp_core.launch.outcome import Trained
from reproduce.commands.options import add
from results.records.errors import UsageError

FIELDS = settings_file.FIELDS
HELP = f"""{command_line.__doc__}
fields for --set, or a file's sections:

{command_line.FIELDS}

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of a training run."""
    command_line.add_arguments(parser)
    add(parser, "json")


def run(parsed: Namespace) -> int:
    """Train; the exit code."""
    if "WORLD_SIZE" in os.environ:
        from ptdp_core.launch.__main__ import become_rank

        become_rank()
    if parsed.json and parsed.print_sbatch:
        raise UsageError("--json and --print-sbatch: both given; needs one of them; try the batch script alone")
    if parsed.quiet:
        parsed.set.append(f"log_every={sys.maxsize}")
    words = list(parsed.command)
    words = words[words.index("train") + 1 :]
    return command_line.run(parsed, words, "reproduce", _print_document if parsed.json else None)


def _print_document(trained: Trained) -> None:
    from results.records.documents import print_document

    losses = [loss if math.isfinite(loss) else None for loss in trained.losses]
    document = {"step": trained.step, "losses": losses, "saved": trained.saved or None}
    print_document("train", 1, {**document, "terminated": trained.terminated})
