"""`ptdp-train`, also as `python -m ptdp_core.launch`: from its first import on ended in order by Ctrl-C and SIGTERM."""

import os
import sys

from ptdp_core.interrupts import run_program


def main() -> None:
    """Run the command; the process ends with its exit code."""
    if "WORLD_SIZE" in os.environ:  # a rank that torchrun or srun starts, and ends even where it waits for another
        sys.exit(_command())
    run_program("ptdp-train", _command)


def _command() -> int:
    from ptdp_core.launch.train import main

    return main()


if __name__ == "__main__":
    main()
