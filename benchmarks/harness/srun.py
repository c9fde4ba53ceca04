"""Starts ranks as tasks of srun, inside an allocation of Slurm: `launch`. As a program it is one of these tasks.

They share a folder: the launcher writes a job, a call of a function; each rank writes what the function returned, or
its error. All are pickled, which is safe because the folder belongs to one run of one user.
"""

import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ptdp_core.interrupts import allowed, held
from ptdp_core.launch.local import FAILED_RANK_EXIT, Failure, RankError, call_on_rank, first_cause
from ptdp_core.launch.slurm import as_rank
from results import ROOT
from results.records.errors import UnavailableError

END_S = 3.0  # how long srun may take to end its tasks
PARENT_EVERY_S = 0.5


def launch(
    function: Callable[..., Any],
    ranks: int,
    args: Sequence[Any],
    *,
    device: str,
    timeout: float,
    limit: float,
    folder: Path | None = None,
) -> list[Any]:
    """Run `function(beat, *args)` on `ranks` ranks of this allocation; return each rank's result.

    `folder` is a place for temporary files that all ranks can see. A rank fails if it waits for another one for more
    than `timeout` seconds. Raises `RankError` for the rank that failed first, `TimeoutError` if the ranks are not done
    in `limit` seconds.
    """
    with held(), tempfile.TemporaryDirectory(prefix=".job-", dir=folder) as name, allowed():
        shared = Path(name).absolute()
        (shared / "job").write_bytes(pickle.dumps((function, args, device, timeout)))
        task = as_rank([sys.executable, "-m", "benchmarks.harness.srun", str(shared)])
        code, output = _run(["srun", "--kill-on-bad-exit=1", f"--ntasks={ranks}", "bash", "-c", task], limit)
        ended = {rank: path for rank in range(ranks) if (path := _file(shared, rank)).exists()}
        left = {rank: pickle.loads(path.read_bytes()) for rank, path in ended.items()}
    if code == 0 and len(left) == ranks:
        return [result for result, _ in left.values()]
    raise _failure(code, output, {rank: Failure(*error) for rank, (_, error) in left.items() if error})


def _run(command: Sequence[str], limit: float) -> tuple[int, str]:
    """Run srun in a session of its own and return its exit code and output.

    It is ended if this process fails or is interrupted. Raises `UnavailableError` if it cannot be started.
    """
    with held():
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise UnavailableError(f"cannot start {command[0]}: {error.strerror}") from None
        try:
            with allowed():
                output, _ = process.communicate(timeout=limit)
        except BaseException as error:
            process.send_signal(signal.SIGTERM)  # srun first gets time to end its tasks on other nodes, too
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeoutError(f"the ranks were not done in {limit:g} s") from None
            raise
    return process.returncode, output


KILLED = re.compile(r"task (\d+): (Killed|Segmentation fault|Aborted|Bus error)")
SIGNALS = {"Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS"}


def _failure(code: int, output: str, failures: dict[int, Failure]) -> RankError:
    """The error of the rank that caused the failure.

    That is a rank that was killed, of which only srun's output tells, else the first with an error of its own.
    """
    if killed := KILLED.search(output):
        name = SIGNALS[killed[2]]
        return RankError(int(killed[1]), -signal.Signals[name], f"was killed by {name} before it was done")
    if failures:
        rank = first_cause(failures)
        return RankError.raised(rank, None, *failures[rank])
    last = ([line.strip() for line in output.splitlines() if line.strip()] or ["nothing"])[-1]
    return RankError(0, code, f"(or another) did not start: exit code {code}; the launcher's last words: {last}")


def _file(folder: Path, rank: int) -> Path:
    """The file in which a rank leaves what it returned, or why it failed."""
    return folder / f"rank-{rank}"


def _run_rank(folder: Path) -> Any:
    """Call the job's function on this rank, and return what it returns."""
    function, args, device, timeout = pickle.loads((folder / "job").read_bytes())
    return call_on_rank(function, args, device=device, timeout=timeout if int(os.environ["WORLD_SIZE"]) > 1 else None)


def _follow_parent(parent: int, folder: Path) -> None:
    """Wait until the parent process has ended, or the job's folder is gone; then end this process.

    A rank must not go on alone. The folder, which the launcher removes, tells of a parent that had ended before this
    process knew it.
    """
    while os.getppid() == parent and _is_there(folder):
        time.sleep(PARENT_EVERY_S)
    os._exit(FAILED_RANK_EXIT)


def _is_there(folder: Path) -> bool:
    """Whether a folder is there; a shared file system that gives no answer does not say that it is gone."""
    try:
        return folder.is_dir()
    except OSError:
        return True


def main() -> None:
    """Run the rank. It ends by `os._exit`, as gloo's threads must not outlive the objects that they use."""
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    threading.Thread(target=_follow_parent, args=(os.getppid(), folder), daemon=True).start()
    code = 0
    try:
        left = pickle.dumps((_run_rank(folder), None))
    except BaseException as error:
        code = FAILED_RANK_EXIT
        left = pickle.dumps((None, tuple(Failure.of(error))))
    partial = folder / f"partial-{rank}"
    partial.write_bytes(left)
    os.replace(partial, _file(folder, rank))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
