"""`reproduce`, also as `python -m reproduce`: the command line, from its first import on ended in order by Ctrl-C."""

import gc

from ptdp_core.interrupts import run_program


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    # Modules, points and schedules are many objects that stay: to look for garbage among them as often as Python does
    # by default took a tenth of a run's time.
    gc.set_threshold(20_000, 20, 50)
    run_program("reproduce", _command)


def _command() -> int:
    from reproduce.cli import main

    return main()


if __name__ == "__main__":
    main()
