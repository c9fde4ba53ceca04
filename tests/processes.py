"""Programs that tests start and stop, with everything that descends from them: found by a mark in its environment."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MARK = "PTDP_TEST_PROGRAM"
PATIENCE_S = 120.0  # of tests, for what is sure to come, also on a busy machine
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def python(
    *words: object, code: int = 0, cwd: Path = ROOT, env: Mapping[str, str] | None = None, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run this Python to its end, which has to be with the exit code; `env` comes on top of the environment."""
    command, environment = [sys.executable, *map(str, words)], {**os.environ, **(env or {})}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, **how)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def wait_for(condition: Callable[[], object], patience: float = PATIENCE_S) -> None:
    """Return as soon as the condition holds; fails if it does not in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for did not come"
        time.sleep(0.05)


class Program:
    """`python *arguments` from the project's root, in a session of its own; leaving the `with` ends all of it.

    What it writes goes to files in `folder`; its temporary files go to the folder `temporary`, which goes with it.
    Ctrl-C and the loss of its terminal end it, also where this process ignores them, as under nohup. With a `terminal`,
    the descriptor of a pseudo-terminal's end, that is its controlling terminal, and gets what it writes.
    """

    def __init__(
        self, folder: Path, *arguments: str, environment: dict[str, str] | None = None, terminal: int | None = None
    ) -> None:
        self.mark = f"{MARK}={uuid.uuid4()}"
        self.out_path, self.err_path = folder / "stdout", folder / "stderr"
        # Sockets in it may have paths of at most 107 bytes, which pytest's folders can exceed.
        self.temporary = Path(tempfile.mkdtemp(prefix="ptdp-", dir="/tmp"))
        marks = {MARK: self.mark.partition("=")[2], "TMPDIR": str(self.temporary)}

        def prepare() -> None:
            for number in (signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            if terminal is not None:
                fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

        with self.out_path.open("w") as out, self.err_path.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env={**os.environ, **marks, **(environment or {})},
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=out if terminal is None else terminal,
                stderr=err if terminal is None else terminal,
                pass_fds=() if terminal is None else (terminal,),
                start_new_session=True,
                preexec_fn=prepare,
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in [self.process.pid, *self.processes()]:
            if pid != self.process.pid or self.process.poll() is None:
                kill(pid)
        self.process.wait()
        shutil.rmtree(self.temporary, ignore_errors=True)

    def processes(self) -> set[int]:
        """The program's living processes, those included that have outlived it."""
        pids = set()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (path / "environ").read_bytes().split(b"\0"):  # empty for a zombie
                    pids.add(int(path.name))
            except OSError:
                continue
        return pids

    def temporary_files(self) -> list[str]:
        """What lies in its folder for temporary files, but for PyTorch's cache, which is meant to stay."""
        return [path.name for path in self.temporary.iterdir() if not path.name.startswith("torchinductor_")]

    def signal_group(self, number: int) -> None:
        """As a terminal does with Ctrl-C: to all processes of the program's group."""
        os.killpg(self.process.pid, number)

    def wait(self) -> int:
        """The exit code."""
        return self.process.wait(PATIENCE_S)

    def wait_until_gone(self) -> None:
        """Return when no process of it is left."""
        wait_for(lambda: not self.processes())

    @property
    def stdout(self) -> str:
        return self.out_path.read_text()

    @property
    def stderr(self) -> str:
        return self.err_path.read_text()


def kill(pid: int) -> None:
    """SIGKILL, to a process that may just have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    return _state(pid)[0] not in ("Z", "gone")


def parent(pid: int) -> int:
    """The parent of a process; 0 if it has ended."""
    return int(_state(pid)[1])


def _state(pid: int) -> list[str]:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return ["gone", "0"]
