"""Launches: the processes of both sides that run the workload, taking turns: one measures while the other waits."""

import json
import os
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.gate.guard import measured_core
from benchmarks.gate.trees import HEAD, Tree, last_line
from benchmarks.records.errors import UnavailableError

WORKLOAD = Path(__file__).with_name("workload.py")
STARTS = 3  # processes that measure, after one another, of a process that has loaded what takes long
PATIENCE_S = 120.0  # a process answers within seconds


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of a session: what it runs, and by which ratio head is slowed down on purpose (self-test)."""

    name: str
    workload: str
    injected: float = 0.0


class Launcher(Protocol):
    """What a session needs to have measured."""

    def start(self, names: Sequence[str]) -> None:
        """A fresh process of each side, ready to measure these benchmarks."""

    def run(self, side: str, name: str) -> float:
        """Let this side's process measure a slice of a benchmark: the seconds of its median iteration."""

    def stop(self) -> None:
        """End the processes that run."""


class Processes:
    """The launcher of the real thing."""

    def __init__(self, trees: Mapping[str, Tree], benchmarks: Sequence[Benchmark]) -> None:
        self.trees = trees
        self.benchmarks = {benchmark.name: benchmark for benchmark in benchmarks}
        self._loaded: dict[str, _Loaded] = {}

    def start(self, names: Sequence[str]) -> None:
        """Start both sides at once, and wait until both have set their benchmarks up."""
        if any(loaded.starts == STARTS for loaded in self._loaded.values()):
            self.stop()
        workloads = {benchmark.workload for benchmark in self.benchmarks.values()}
        for side, tree in self.trees.items():
            if side not in self._loaded:
                self._loaded[side] = _Loaded(tree, workloads)
            self._loaded[side].start([self.benchmarks[name] for name in names])
        for loaded in self._loaded.values():
            loaded.answer("ready")

    def run(self, side: str, name: str) -> float:
        """See `Launcher`."""
        loaded = self._loaded[side]
        loaded.say({"slice": name})
        return statistics.median(loaded.answer("seconds"))

    def stop(self) -> None:
        """See `Launcher`."""
        while self._loaded:
            self._loaded.popitem()[1].stop()

    def lacking(self) -> dict[str, str]:
        """Try all once on both sides: why those benchmarks cannot be measured of which a side lacks something.

        Raises `UnavailableError` for a side that does not run. Also compiles both trees' modules.
        """
        lacks: dict[str, str] = {}
        for tree in self.trees.values():
            if self._try(tree, list(self.benchmarks.values())):
                for name, benchmark in self.benchmarks.items():
                    if why := self._try(tree, [benchmark]):
                        lacks[name] = f"{tree} lacks what it measures: {why}"
        return lacks

    def _try(self, tree: Tree, benchmarks: Sequence[Benchmark]) -> str | None:
        """Set up, which also runs each once, or say what the tree lacks."""
        loaded = _Loaded(tree, {benchmark.workload for benchmark in benchmarks})
        try:
            loaded.start(benchmarks)
            answer = loaded.answer("ready", "lacks")
            return answer if isinstance(answer, str) else None
        finally:
            loaded.stop()


class _Loaded:
    """A process of one side that has loaded what takes long, and starts the processes that measure."""

    def __init__(self, tree: Tree, workloads: Iterable[str]) -> None:
        self.tree = tree
        self.starts = 0
        core = measured_core()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [str(tree.python), "-P", str(WORKLOAD), str(tree.folder), "" if core is None else str(core), *workloads],
            cwd=tree.folder,
            env=_environment(tree.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._received = b""

    def start(self, benchmarks: Sequence[Benchmark]) -> None:
        """Start a process, in place of the last one."""
        wanted = [
            {"name": one.name, "workload": one.workload, "slowdown": one.injected if self.tree.side == HEAD else 0.0}
            for one in benchmarks
        ]
        if self.starts:
            self.say({"end": True})
        self.say({"start": wanted})
        self.starts += 1

    def say(self, command: Mapping[str, Any]) -> None:
        """A command, which `workload.py` documents."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: the answer says why
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, *keys: str) -> Any:
        """The next answer's value under the first of `keys` that it has."""
        try:
            line = json.loads(self._line())
        except ValueError:
            line = {}
        for key in keys:
            if key in line:
                return line[key]
        self._errors.seek(0)
        raise UnavailableError(f"{self.tree} does not run: {last_line(self._errors.read())}")

    def _line(self) -> bytes:
        """The next line of its output, or what there is of it at its end."""
        assert self._process.stdout is not None
        end = time.monotonic() + PATIENCE_S
        while b"\n" not in self._received:
            if not select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise UnavailableError(f"{self.tree} does not run: it has said nothing for {PATIENCE_S:.0f} s")
            if not (part := os.read(self._process.stdout.fileno(), 1 << 16)):
                break
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def stop(self) -> None:
        """End it, with its ranks."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def _environment(tree: Path) -> dict[str, str]:
    """This process's environment, with the tree's packages first, one thread per rank and no GPU."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COVERAGE", "PYTEST"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return kept | threads | {"PYTHONPATH": str(tree), "CUDA_VISIBLE_DEVICES": ""}
