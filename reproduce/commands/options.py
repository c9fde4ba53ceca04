"""Options that several commands share, and how this program was started."""

import sys
from argparse import ArgumentParser
from pathlib import Path

import reproduce
from benchmarks.records.documents import JSON_HELP


def program() -> str:
    """How this program was started, as its messages should say it."""
    started = Path(sys.argv[0])
    module = started.name == "__main__.py" and started.parent.name == "reproduce"
    return "python -m reproduce" if module else "reproduce"


def add_results(parser: ArgumentParser) -> None:
    """--results DIR"""
    parser.add_argument(
        "--results",
        type=Path,
        default=reproduce.DEFAULT_RESULTS,
        metavar="DIR",
        help="where to write (default: results/runs)",
    )


def add_json(parser: ArgumentParser) -> None:
    """--json"""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def add_cluster(parser: ArgumentParser, help: str = "cluster to simulate") -> None:
    """--cluster NAME"""
    parser.add_argument("--cluster", default="selene", help=f"{help}: a name or a .toml file")
