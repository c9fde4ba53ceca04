"""The files by which a launcher (torchrun, Slurm) and the ranks that it starts exchange a job and its results.

They share a folder. The launcher writes the job, rank 0 writes the results of all ranks, and a rank that fails writes
its error. Job and results are pickled, which is safe because the folder belongs to one run of one user.
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
    """A call of `function(beat, *args)` on every rank, on `device`.

    A rank fails if it waits for another one for more than `timeout_s` seconds.
    """

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
    """Write the job to the folder."""
    (folder / "job").write_bytes(pickle.dumps(job))


def read_job(folder: Path) -> Job:
    """Read the job that `write_job` wrote."""
    job = pickle.loads((folder / "job").read_bytes())
    assert isinstance(job, Job)
    return job


def write_results(folder: Path, results: Sequence[Any]) -> None:
    """Write what each rank returned, whole or not at all."""
    partial = folder / "results.partial"
    partial.write_bytes(pickle.dumps(list(results)))
    os.replace(partial, folder / "results")


def read_results(folder: Path) -> list[Any] | None:
    """Read what each rank returned; None if there are no results."""
    try:
        results: list[Any] = pickle.loads((folder / "results").read_bytes())
    except FileNotFoundError:
        return None
    return results


def write_error(folder: Path, rank: int, error: BaseException, stack: str) -> None:
    """Write why a rank failed."""
    (folder / f"error-{rank}").write_text(json.dumps([type(error).__name__, str(error), stack]), encoding="utf-8")


def read_errors(folder: Path) -> dict[int, Failure]:
    """Read why ranks failed, by rank."""
    return {
        int(path.name.partition("-")[2]): Failure(*json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("error-*"))
    }
