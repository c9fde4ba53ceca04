"""Options that several commands share, and how this program was started."""

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.command import add_results, file_to_write, path_of
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.fidelity import PAPERS_CLUSTER as CLUSTER
from results.records.documents import JSON_HELP
from results.records.errors import UnavailableError, UsageError
from results.records.storage import DEFAULT_RESULTS

__all__ = [
    "CLUSTER",
    "add_cluster",
    "add_columns",
    "add_json",
    "add_results",
    "checkpoint_of",
    "cluster_of",
    "command_line",
    "engine_errors",
    "file_to_write",
    "path_of",
    "program",
]


@contextmanager
def engine_errors() -> Iterator[None]:
    """What the engine says of a wrong value or of this machine ends the command in one line, with its exit code."""
    from ptdp_core.engine.errors import EngineUnavailableError

    try:
        yield
    except EngineUnavailableError as error:
        raise UnavailableError(str(error)) from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def checkpoint_of(path: str) -> Path:
    """The whole checkpoint at the path CHECKPOINT. Raises `UsageError`; imports no torch, which takes seconds."""
    from ptdp_core.engine.checkpoint_folder import resolve

    with engine_errors():
        return resolve(path, "CHECKPOINT")


def program() -> str:
    """How this program was started, as its messages should say it."""
    started = Path(sys.argv[0])
    module = started.name == "__main__.py" and started.parent.name == "reproduce"
    return "python -m reproduce" if module else "reproduce"


def command_line(parsed: Namespace, *words: str) -> str:
    """A command to try next: this program with these words, and --results where that is not the default folder."""
    where = [] if parsed.results == DEFAULT_RESULTS else ["--results", str(parsed.results)]
    return shlex.join([*parsed.program.split(), *words, *where])


def add_json(parser: ArgumentParser) -> None:
    """--json"""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def add_columns(parser: ArgumentParser) -> None:
    """--columns NAME,NAME"""
    parser.add_argument(
        "--columns",
        type=lambda names: tuple(name.strip() for name in names.split(",")),
        default=(),
        metavar="NAMES",
        help="only these columns of the table: their names, or how their headings begin, with commas between",
    )


def add_cluster(parser: ArgumentParser, help: str = "cluster to simulate", default: str | None = CLUSTER) -> None:
    """--cluster NAME; with None as the default it is known whether it is given (`cluster_of`)."""
    parser.add_argument("--cluster", default=default, help=f"{help}: a name or a .toml file (default: {CLUSTER})")


def cluster_of(parsed: Namespace, fidelities: Iterable[str]) -> str:
    """The cluster asked for, or the default one. Raises `UsageError` for one that none of these fidelities looks at."""
    kinds = list(dict.fromkeys(fidelities))
    if parsed.cluster is not None and not any(FIDELITIES[name].on_cluster for name in kinds):
        raise UsageError(f"--cluster {parsed.cluster} has no part in what is {' or '.join(kinds)}; leave it out")
    return parsed.cluster or CLUSTER
