"""What passes, through a folder, between who starts ranks with another launcher than the engine's and the ranks.

The job is one file; rank 0 writes the results, a rank that fails writes why. Job and results are pickled: the folder
belongs to one run of one user.
"""

import json
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

FAILED_EXIT = 13


@dataclass(frozen=True)
class Job:
    """`function(beat, *args)` on every rank, on `device`; a rank that waits for another longer than that fails."""

    function: Callable[..., Any]
    args: Sequence[Any]
    device: str
    timeout_s: float


class Failure(NamedTuple):
    """Why a rank failed: the exception's type and message, and its traceback."""

    kind: str
    message: str
    stack: str


def write_job(folder: Path, job: Job) -> None:
    """Keep the job where its ranks will read it."""
    (folder / "job").write_bytes(pickle.dumps(job))


def read_job(folder: Path) -> Job:
    """The job that was kept."""
    found = pickle.loads((folder / "job").read_bytes())
    assert isinstance(found, Job)
    return found


def write_results(folder: Path, results: Sequence[Any]) -> None:
    """Keep what each rank returned: whole or not at all."""
    partial = folder / "results.partial"
    partial.write_bytes(pickle.dumps(list(results)))
    os.replace(partial, folder / "results")


def read_results(folder: Path) -> list[Any] | None:
    """What each rank returned; None if they did not get that far."""
    try:
        found: list[Any] = pickle.loads((folder / "results").read_bytes())
    except FileNotFoundError:
        return None
    return found


def write_error(folder: Path, rank: int, error: BaseException, stack: str) -> None:
    """Keep why a rank failed."""
    (folder / f"error-{rank}").write_text(json.dumps([type(error).__name__, str(error), stack]), encoding="utf-8")


def read_errors(folder: Path) -> dict[int, Failure]:
    """Why ranks failed, by rank."""
    return {
        int(path.name.partition("-")[2]): Failure(*json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("error-*"))
    }
