"""Starts `ptdp-train` (also `python -m ptdp_core.launch`) so that Ctrl-C, SIGTERM and SIGHUP always end it in order."""

import os
import signal
import sys

from ptdp_core.interrupts import run_program


def main() -> None:
    """Run the command; the process ends with its exit code."""
    if "WORLD_SIZE" in os.environ:
        become_rank()
        sys.exit(_command())
    run_program("ptdp-train", _command)


def become_rank() -> None:
    """Set up a process that is a rank of torchrun or srun: signals reach its launcher, which ends it."""
    from ptdp_core.launch import end_with_parent  # noqa: F401  (on Linux it is killed when its launcher is)

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # its launcher gets Ctrl-C, too, and says so


def _command() -> int:
    """Run the command; imported here, when signals are handled already."""
    from ptdp_core.launch.command_line import main

    return main()


if __name__ == "__main__":
    main()
