"""`reproduce`, also as `python -m ptdp`."""

from ptdp import find_packages


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    find_packages()
    from reproduce.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
