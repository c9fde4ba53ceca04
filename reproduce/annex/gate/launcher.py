"""Starts the processes that run the workload, of base and of head, and lets them take turns in measuring."""

import multiprocessing
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reproduce.annex.gate.guard import measured_core
from reproduce.annex.gate.trees import HEAD, TEMPORARY, Tree, last_line
from reproduce.annex.gate.workload import TESTS
from results.records.errors import UnavailableError

WORKLOAD = Path(__file__).with_name("workload.py")
STARTS = 3  # measuring processes that one parent process starts, one after another, before it is replaced
ANSWER_LIMIT_S = 120.0  # a process answers within seconds; after this it counts as hung
Workloads = Mapping[str, Mapping[str, Any]]  # what runs (`workload.py`), by the benchmark's name
Counts = dict[int, dict[str, int]]  # of a step, by what is counted, at each of the workload's sizes, or at 0


class ProcessLauncher:
    """What a session measures with: it starts and stops a process of each side, and times slices in it.

    Iterations of head are stretched by the ratio `slowdown`, for trials.
    """

    def __init__(self, trees: Mapping[str, Tree], workloads: Workloads, slowdown: float = 0.0) -> None:
        self.trees, self.workloads, self.slowdown = trees, dict(workloads), slowdown
        self._loaded: dict[str, _Loaded] = {}

    def start(self, names: Sequence[str]) -> None:
        """Start a fresh process of each side, both at once, and wait until both have set these benchmarks up."""
        if any(loaded.starts == STARTS for loaded in self._loaded.values()):
            self.stop()
        for side, tree in self.trees.items():
            if side not in self._loaded:
                self._loaded[side] = _Loaded(tree, self.workloads)
            slowdown = self.slowdown if side == HEAD else 0.0
            self._loaded[side].start({name: {**self.workloads[name], "slowdown": slowdown} for name in names})
        for loaded in self._loaded.values():
            loaded.answer("ready")

    def run(self, side: str, name: str) -> float:
        """Let this side's process measure a slice of a benchmark, and return the seconds of its median iteration.

        Raises `UnavailableError` if the process does not answer.
        """
        loaded = self._loaded[side]
        loaded.say({"slice": name})
        return statistics.median(loaded.answer("seconds"))

    def stop(self) -> None:
        """End all running processes."""
        while self._loaded:
            self._loaded.popitem()[1].stop()

    def lacking(self) -> dict[str, str]:
        """Try every benchmark once on both sides; return, by name, why some of them cannot be compared.

        This first run also compiles both trees' modules. What base cannot run is no fault of head: base may be older
        than the benchmark, or broken. Several tests of one name are several workloads from then on. Raises
        `UnavailableError` for what head cannot run.
        """
        lacks: dict[str, str] = {}
        names = list(self.workloads)
        for name in names:
            workload, digests = self.workloads[name], {}
            for side, tree in reversed(list(self.trees.items())):
                try:
                    ready = self._ask(tree, name, workload)
                    if side == HEAD and TESTS in ready:
                        names += ready[TESTS]
                        del self.workloads[name]
                        self.workloads |= {test: {**workload, "test": test} for test in ready[TESTS]}
                        break
                    digests[side] = ready[name]
                except UnavailableError as error:
                    why = str(error).removeprefix(f"{tree} does not run: ")
                    if side == HEAD:
                        raise UnavailableError(f"{tree} cannot run {name}: {why}") from None
                    lacks[name] = f"{tree} cannot run it: {why}"
                except KeyError:
                    lacks[name] = f"{tree} skips it, or gives its benchmark fixture no function"
            if len(set(digests.values())) == 2:
                again = self._ask(self.trees[HEAD], name, workload)[name]
                if again == digests[HEAD]:
                    lacks[name] = "its result differs between base and head, so that it does other work"
        return lacks

    def counts(self, side: str, name: str) -> Counts:
        """What one step of a benchmark does on a side."""
        workload = self.workloads[name]
        sized = {size: {**workload, "sizes": [size]} for size in workload.get("sizes", ())} or {0: dict(workload)}
        return {size: self._ask(self.trees[side], name, each, count=True) for size, each in sized.items()}

    def _ask(self, tree: Tree, name: str, workload: Mapping[str, Any], count: bool = False) -> dict[str, Any]:
        """The digest of what a benchmark's first step returns, by name, nothing if it is skipped; or a step's counts.

        Raises `UnavailableError` if the tree cannot run it.
        """
        loaded = _Loaded(tree, {name: workload})
        try:
            loaded.start({name: workload})
            answer: dict[str, Any] = loaded.answer("ready")
            if count:
                loaded.say({"count": name})
                answer = loaded.answer("counts")
            return answer
        finally:
            loaded.stop()


class _Loaded:
    """A process of one side that has imported the slow packages (torch) and forks the processes that measure."""

    def __init__(self, tree: Tree, workloads: Workloads) -> None:
        self.tree = tree
        self.starts = 0
        packages = dict.fromkeys(name for each in workloads.values() for name in each.get("packages", ()))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._pipe, theirs = multiprocessing.Pipe()
        arguments = map(str, (WORKLOAD, theirs.fileno(), tree.folder, measured_core(), *packages))
        self._process = subprocess.Popen(
            [str(tree.python), "-P", *arguments],
            cwd=tree.folder,
            env=_environment(tree),
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()

    def start(self, workloads: Workloads) -> None:
        """Fork a process that measures these workloads, and end the one before."""
        if self.starts:
            self.say({"end": True})
        self.say({"start": workloads})
        self.starts += 1

    def say(self, command: Mapping[str, Any]) -> None:
        """Send a command; `workload.py` documents them."""
        with suppress(BrokenPipeError):  # the process has died; `answer` reads why
            self._pipe.send(command)

    def answer(self, key: str) -> Any:
        """Wait for the next answer, and return its value under `key`.

        Raises `UnavailableError` if it has none, with what the process says is wrong, or its last line on stderr.
        """
        if not self._pipe.poll(ANSWER_LIMIT_S):
            raise UnavailableError(f"{self.tree} does not run: it has said nothing for {ANSWER_LIMIT_S:.0f} s")
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._errors.seek(0)
            answer = {"cannot": last_line(self._errors.read())}
        if key not in answer:
            raise UnavailableError(f"{self.tree} does not run: {answer['cannot']}")
        return answer[key]

    def stop(self) -> None:
        """Kill the process and its ranks, which share its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        self._pipe.close()
        self._errors.close()


def _environment(tree: Tree) -> dict[str, str]:
    """This process's environment, but with the tree's packages and interpreter first, one thread and no GPU.

    Temporary files of a workload go with the tree, whatever becomes of its process.
    """
    inherited = {k: value for k, value in os.environ.items() if not k.startswith(("PYTHON", "COVERAGE", "PYTEST"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    temporary = tree.folder / TEMPORARY
    temporary.mkdir(exist_ok=True)
    places = [str(place) for place in (tree.folder / "src", tree.folder, temporary) if place.is_dir()]
    programs = os.pathsep.join([str(tree.python.parent), *filter(None, [os.environ.get("PATH")])])
    paths = {"PYTHONPATH": os.pathsep.join(places), "PATH": programs, "TMPDIR": str(temporary)}
    return inherited | threads | paths | {"CUDA_VISIBLE_DEVICES": ""}
