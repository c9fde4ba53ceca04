"""`reproduce`, also as `python -m reproduce`: the command line, from its first import on ended in order by Ctrl-C."""

from ptdp_core.interrupts import run_program


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    run_program("reproduce", _command)


def _command() -> int:
    from reproduce.cli import main

    return main()


if __name__ == "__main__":
    main()
