"""Ways to start the ranks of a measurement, all with the interface of `benchmarks.harness.ranks.run_ranks`.

`Launcher("torchrun")(function, ranks, args, device)` returns a list of what `function(beat, *args)` returned on rank 0,
1, ...

- local: the engine's own launcher, on this machine
- torchrun: PyTorch's launcher, on this machine, at the port MASTER_PORT if that is set, else at a free one
- slurm: srun, inside an allocation; the script of `reproduce ... --launcher slurm --print-script` uses it
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.job import Failure, Job, read_errors, read_results, write_job
from ptdp_core.interrupts import allowed, held
from results import ROOT
from results.records.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from ptdp_core.launch.local import RankError

LAUNCHERS = ("local", "torchrun", "slurm")
TIMEOUT_S = 300.0  # how long a rank waits for another one before it fails
LIMIT_S = 1800.0  # how long a whole job may take
END_S = 3.0  # how long srun may take to end its tasks
# Parts of the errors that a rank reports because another rank has failed.
CONSEQUENCES = ("Connection closed by peer", "Connection reset", "Broken pipe", "Timed out", "heartbeat")


@dataclass(frozen=True)
class Launcher:
    """Starts ranks. `folder` is a place for temporary files that all ranks can see.

    Raises `UsageError` for an unknown name, `UnavailableError` where this launcher cannot work.
    """

    name: str = "local"
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.name not in LAUNCHERS:
            raise UsageError(f"unknown launcher {self.name!r}; there are: {', '.join(LAUNCHERS)}")
        if self.name == "torchrun":
            check_port()
        if self.name == "slurm" and "SLURM_JOB_ID" not in os.environ:
            raise UnavailableError(
                "launcher slurm works inside an allocation, and SLURM_JOB_ID is not set; print a script that asks for "
                "one with --launcher slurm --print-script, and submit that"
            )

    def __call__(self, function: Callable[..., Any], ranks: int, args: Sequence[Any], device: str) -> list[Any]:
        """Return the results of `function(beat, *args)` by rank. Raises `RankError` for the rank that failed first."""
        if self.name == "local":
            from benchmarks.harness.ranks import run_ranks

            return run_ranks(function, ranks, args, device)
        with held(), tempfile.TemporaryDirectory(prefix=".job-", dir=self.folder) as name, allowed():
            folder = Path(name).absolute()
            write_job(folder, Job(function, args, device, TIMEOUT_S))
            worker = ("-m", "benchmarks.harness.worker", str(folder))
            command = torchrun(ranks, worker, name) if self.name == "torchrun" else srun(ranks, worker)
            code, output = _run(command)
            results = read_results(folder)
            if code == 0 and results is not None:
                return results
            raise _failure(code, output, read_errors(folder))


def torchrun(ranks: int, worker: Sequence[str], logs: str) -> list[str]:
    """The torchrun command that starts `ranks` ranks on this machine and writes its logs to the folder `logs`."""
    port = check_port()
    meet = ["--standalone"] if port is None else ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    here = ["--nproc-per-node", str(ranks), "--log-dir", logs]
    return [sys.executable, "-m", "torch.distributed.run", *here, *meet, *worker]


def srun(ranks: int, worker: Sequence[str]) -> list[str]:
    """The srun command that starts `ranks` ranks in this allocation."""
    from ptdp_core.launch.slurm import as_rank

    return ["srun", "--kill-on-bad-exit=1", f"--ntasks={ranks}", "bash", "-c", as_rank([sys.executable, *worker])]


def check_port() -> int | None:
    """Return MASTER_PORT if it is set. Raises `UsageError` if it is no port, `UnavailableError` if it is in use."""
    text = os.environ.get("MASTER_PORT")
    if text is None:
        return None
    if not text.isdigit() or not 0 < int(text) < 2**16:
        raise UsageError(f"MASTER_PORT={text!r} is no port; needs 1 to 65535; unset it for a free one")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(text)))
        except OSError as error:
            raise UnavailableError(
                f"MASTER_PORT={text} cannot be used: {error.strerror}; needs a free port; unset it to have one chosen"
            ) from None
    return int(text)


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Run a launcher in a session of its own and return its exit code and output.

    It is ended if this process fails or is interrupted. Raises `UnavailableError` if it cannot be started,
    `TimeoutError` after `LIMIT_S` seconds.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with held():
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
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
                output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            _end(process)
            raise TimeoutError(f"the ranks were not done in {LIMIT_S:g} s") from None
        except BaseException:
            _end(process)
            raise
    return process.returncode, output


def _end(process: "subprocess.Popen[str]") -> None:
    """End the launcher. srun first gets time to end its tasks on other nodes, too; torchrun's ranks end with it."""
    if isinstance(process.args, list) and process.args[0] == "srun":
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


_TORCHRUN = re.compile(r"\brank\s*:\s*(\d+).*\n\s*exitcode\s*:\s*-(\d+)")
_SRUN = re.compile(r"task (\d+): (Killed|Segmentation fault|Aborted|Bus error)")
_SRUN_SIGNALS = {"Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS"}


def _failure(code: int, output: str, errors: dict[int, Failure]) -> "RankError":
    """The error of the rank that caused the failure.

    That is a rank that was killed, else the first whose error is not a consequence of another rank's.
    """
    from ptdp_core.launch.local import RankError

    for rank, number in _TORCHRUN.findall(output):
        if (ended := signal.Signals(int(number))) is not signal.SIGTERM:  # torchrun ends the other ranks with SIGTERM
            return RankError(int(rank), -ended, f"was killed by {ended.name} before it was done")
    if killed := _SRUN.search(output):
        name = _SRUN_SIGNALS[killed[2]]
        return RankError(int(killed[1]), -signal.Signals[name], f"was killed by {name} before it was done")
    causes = [rank for rank, error in errors.items() if not any(text in error.message for text in CONSEQUENCES)]
    if errors:
        rank = (causes or list(errors))[0]
        kind, message, stack = errors[rank]
        return RankError(rank, None, f"failed: {kind}: {message}\n{stack}")
    last = ([line.strip() for line in output.splitlines() if line.strip()] or ["nothing"])[-1]
    return RankError(0, code, f"(or another) did not start: exit code {code}; the launcher's last words: {last}")
