"""Options that several commands share, and how this program was started."""

import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reproduce.experiment.fidelity import FIDELITIES, PAPERS_CLUSTER
from results.records import storage
from results.records.errors import UnavailableError, UsageError


def path_of(text: str) -> Path:
    """A path given on the command line, which names something: '' would be the current folder."""
    if not text.strip():
        raise ArgumentTypeError("'' names no file or folder; leave the option out for its default")
    return Path(text)


def file_to_write(text: str) -> Path:
    """A path for a file that is written, given on the command line. Its folder is not made: it may be a misspelling."""
    path = path_of(text)
    if not path.parent.is_dir():
        raise ArgumentTypeError(
            f"{text}: there is no folder {path.parent}; needs one that is there; try mkdir -p {path.parent}"
        )
    return path


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
    module = started.name == "__main__.py" and started.parent.name in ("reproduce", "ptdp")
    return f"python -m {started.parent.name}" if module else "reproduce"


def command_line(parsed: Namespace, *words: str) -> str:
    """A command to try next: this program with these words, and --results where that is not the default folder."""
    where = [] if parsed.results == storage.DEFAULT_RESULTS else ["--results", str(parsed.results)]
    return shlex.join([*parsed.program.split(), *words, *where])


def add_results(parser: ArgumentParser) -> None:
    """--results DIR"""
    parser.add_argument(
        "--results",
        type=path_of,
        default=storage.DEFAULT_RESULTS,
        metavar="DIR",
        help=f"folder of the results (default: {storage.DEFAULT_RESULTS_TEXT})",
    )


def add_json(parser: ArgumentParser) -> None:
    """--json"""
    text = "the result as JSON on stdout, and nothing else there; results/schema/ says what each property means"
    parser.add_argument("--json", action="store_true", help=text)


def add_columns(parser: ArgumentParser) -> None:
    """--columns NAME,NAME"""
    parser.add_argument(
        "--columns",
        type=lambda names: tuple(name.strip() for name in names.split(",")),
        default=(),
        metavar="NAMES",
        help="only these columns of the table: their names, or how their headings begin, with commas between",
    )


def add_cluster(
    parser: ArgumentParser, help: str = "cluster to simulate", default: str | None = PAPERS_CLUSTER
) -> None:
    """--cluster NAME; with None as the default it is known whether it is given (`cluster_of`)."""
    parser.add_argument(
        "--cluster", default=default, help=f"{help}: a name or a .toml file (default: {PAPERS_CLUSTER})"
    )


def cluster_of(parsed: Namespace, fidelities: Iterable[str]) -> str:
    """The cluster asked for, or the default one. Raises `UsageError` for one that none of these fidelities looks at."""
    kinds = list(dict.fromkeys(fidelities))
    if parsed.cluster is not None and not any(FIDELITIES[name].on_cluster for name in kinds):
        raise UsageError(f"--cluster {parsed.cluster} has no part in what is {' or '.join(kinds)}; leave it out")
    return parsed.cluster or PAPERS_CLUSTER
