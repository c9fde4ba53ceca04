"""`reproduce train`: a training run, as `ptdp-train` starts it."""

import os
import sys
from argparse import ArgumentParser, Namespace

from ptdp_core.launch import train
from ptdp_core.launch.train import MEANINGS

__all__ = ["HELP", "MEANINGS", "add_arguments", "run"]
HELP = f"""{train.__doc__}
fields for --set, or a file's sections:

{train.FIELDS}

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of a training run."""
    train.add_arguments(parser)


def run(parsed: Namespace) -> int:
    """Train; the exit code."""
    if "WORLD_SIZE" in os.environ:
        from ptdp_core.launch.__main__ import become_rank

        become_rank()
    if parsed.quiet:
        parsed.set.append(f"log_every={sys.maxsize}")
    words = list(parsed.command)
    return train.run(parsed, words[words.index("train") + 1 :])
