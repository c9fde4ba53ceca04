"""`ptdp-train`, also as `python -m ptdp.train`."""

from ptdp import find_packages


def main() -> None:
    """Run the command; the process ends with its exit code."""
    find_packages()
    from ptdp_core.launch.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
