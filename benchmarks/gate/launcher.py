"""Starts the processes that run the workload, of base and of head, and lets them take turns in measuring."""

import json
import os
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks.gate.guard import measured_core
from benchmarks.gate.trees import BASE, HEAD, Tree, last_line
from results.records.errors import UnavailableError

WORKLOAD = Path(__file__).with_name("workload.py")
STARTS = 3  # measuring processes that one parent process starts, one after another, before it is replaced
GROWTH = ", more from size "  # in the name of a count at two sizes
ANSWER_LIMIT_S = 120.0  # a process answers within seconds; after this it counts as hung


@dataclass(frozen=True)
class GateBenchmark:
    """A benchmark of a session: its name, what runs (`workload.py`), and how much a trial slows head down."""

    name: str
    workload: Mapping[str, Any]
    injected: float = 0.0


class StepCounts(NamedTuple):
    """What a step does on base and on head, by what is counted, without `varying`, what differs in two runs of head."""

    base: dict[str, int]
    head: dict[str, int]
    varying: list[str]


class SideLauncher(Protocol):
    """What a session measures with: it starts and stops a process of each side, and times slices in it."""

    def start(self, names: Sequence[str]) -> None:
        """Start a fresh process of each side, ready to measure these benchmarks."""

    def run(self, side: str, name: str) -> float:
        """Let this side's process measure a slice of a benchmark, and return the seconds of its median iteration."""

    def stop(self) -> None:
        """End all running processes."""


class ProcessLauncher:
    """The launcher that starts real processes; tests have launchers without."""

    def __init__(self, trees: Mapping[str, Tree], benchmarks: Sequence[GateBenchmark]) -> None:
        self.trees = trees
        self.benchmarks = {benchmark.name: benchmark for benchmark in benchmarks}
        self._loaded: dict[str, _Loaded] = {}

    def start(self, names: Sequence[str]) -> None:
        """Start both sides at once, and wait until both have set their benchmarks up."""
        if any(loaded.starts == STARTS for loaded in self._loaded.values()):
            self.stop()
        for side, tree in self.trees.items():
            if side not in self._loaded:
                self._loaded[side] = _Loaded(tree, _packages(self.benchmarks.values()))
            self._loaded[side].start([self.benchmarks[name] for name in names])
        for loaded in self._loaded.values():
            loaded.answer("ready")

    def run(self, side: str, name: str) -> float:
        """Measure a slice (see `SideLauncher`). Raises `UnavailableError` if the process does not answer."""
        loaded = self._loaded[side]
        loaded.say({"slice": name})
        return statistics.median(loaded.answer("seconds"))

    def stop(self) -> None:
        """End all running processes."""
        while self._loaded:
            self._loaded.popitem()[1].stop()

    def lacking(self) -> dict[str, str]:
        """Try every benchmark once on both sides; return, by name, why base cannot run some of them.

        This first run also compiles both trees' modules. What base cannot run is no fault of head: base may be older
        than the benchmark, or broken. Raises `UnavailableError` for what head cannot run.
        """
        lacks: dict[str, str] = {}
        outputs: dict[str, dict[str, str]] = {}
        for side, tree in self.trees.items():
            # All at once first, which is enough if nothing is wrong; then one by one, to learn which cannot run.
            problem, outputs[side] = self._try(tree, list(self.benchmarks.values()))
            for name, benchmark in self.benchmarks.items() if problem else ():
                why, output = (problem, {}) if len(self.benchmarks) == 1 else self._try(tree, [benchmark])
                if why and side == HEAD:
                    raise UnavailableError(f"{tree} cannot run {name}: {why}")
                if why:
                    lacks[name] = f"{tree} cannot run it: {why}"
                outputs[side] |= output
        return lacks | {name: why for name, why in self._different(outputs).items() if name not in lacks}

    def _different(self, outputs: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """The benchmarks whose first step returns something else on the two sides, but the same again on head."""
        base, head = (outputs.get(side, {}) for side in (BASE, HEAD))
        changed = [name for name in head if base.get(name, head[name]) != head[name]]
        again = self._try(self.trees[HEAD], [self.benchmarks[name] for name in changed])[1] if changed else {}
        steady = [name for name in changed if again.get(name) == head[name]]
        return dict.fromkeys(steady, "its result differs between base and head, so that it does other work")

    def counts(self, name: str) -> StepCounts:
        """What one step of a benchmark does on each side; with two sizes also how much more it does at the second."""
        benchmark = self.benchmarks[name]
        sizes = benchmark.workload.get("sizes", ())
        by_size = [
            replace(benchmark, workload={**benchmark.workload, "sizes": sizes[place:]})
            for place in range(len(sizes) or 1)
        ]
        base, head, again = (
            _with_growth([self._ask(self.trees[side], [sized], name) for sized in by_size], sizes)
            for side in (BASE, HEAD, HEAD)
        )
        varying = {what for what in head.keys() | again.keys() if head.get(what) != again.get(what)}

        def steady(counts: Mapping[str, int]) -> dict[str, int]:
            return {what: count for what, count in counts.items() if not {what, what.partition(GROWTH)[0]} & varying}

        return StepCounts(steady(base), steady(head), sorted(what for what in varying if GROWTH not in what))

    def _try(self, tree: Tree, benchmarks: Sequence[GateBenchmark]) -> tuple[str, dict[str, str]]:
        """Set the benchmarks up, which also runs each once: why the tree cannot run them, or '', and their outputs."""
        try:
            answer = self._ask(tree, benchmarks)
        except UnavailableError as error:
            return str(error).removeprefix(f"{tree} does not run: "), {}
        return (answer, {}) if isinstance(answer, str) else ("", answer)

    def _ask(self, tree: Tree, benchmarks: Sequence[GateBenchmark], count: str = "") -> Any:
        """What a process that sets these up says: their outputs, why it cannot, or the counts of the one to `count`."""
        loaded = _Loaded(tree, _packages(benchmarks))
        try:
            loaded.start(benchmarks)
            answer = loaded.answer("ready", "cannot")
            if not count or isinstance(answer, str):
                return answer
            loaded.say({"count": count})
            return loaded.answer("counts")
        finally:
            loaded.stop()


def _with_growth(by_size: Sequence[Mapping[str, int]], sizes: Sequence[int]) -> dict[str, int]:
    """The counts at the first size, and of each how much more there is at the second, if there is one."""
    first, second = by_size[0], by_size[-1]
    growth = {what: second.get(what, 0) - first.get(what, 0) for what in first.keys() | second.keys()}
    return {**first, **({f"{what}{GROWTH}{sizes[0]} to {sizes[1]}": n for what, n in growth.items()} if sizes else {})}


def _packages(benchmarks: Iterable[GateBenchmark]) -> tuple[str, ...]:
    """The third-party packages that a process of these benchmarks imports before it forks any other."""
    named = (benchmark.workload.get("packages", ()) for benchmark in benchmarks)
    return tuple(dict.fromkeys(package for packages in named for package in packages))


class _Loaded:
    """A process of one side that has imported the slow packages (torch) and forks the processes that measure."""

    def __init__(self, tree: Tree, packages: Iterable[str]) -> None:
        self.tree = tree
        self.starts = 0
        core = measured_core()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            [str(tree.python), "-P", str(WORKLOAD), str(tree.folder), "" if core is None else str(core), *packages],
            cwd=tree.folder,
            env=_environment(tree.folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._received = b""

    def start(self, benchmarks: Sequence[GateBenchmark]) -> None:
        """Fork a process that measures these benchmarks, and end the one before."""
        requests = [
            {
                "name": benchmark.name,
                "workload": benchmark.workload,
                "slowdown": benchmark.injected if self.tree.side == HEAD else 0.0,
            }
            for benchmark in benchmarks
        ]
        if self.starts:
            self.say({"end": True})
        self.say({"start": requests})
        self.starts += 1

    def say(self, command: Mapping[str, Any]) -> None:
        """Send a command; `workload.py` documents them."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has died; `answer` reads why
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, *keys: str) -> Any:
        """Read the next answer, and return its value under the first of `keys` that it has.

        Raises `UnavailableError` if it has none of them, with what the process says is wrong, or its last line on
        stderr.
        """
        try:
            line = json.loads(self._line())
        except ValueError:
            line = {}
        for key in keys:
            if key in line:
                return line[key]
        self._errors.seek(0)
        raise UnavailableError(f"{self.tree} does not run: {line.get('cannot') or last_line(self._errors.read())}")

    def _line(self) -> bytes:
        """Read the process's next line of output, which is cut short if the process ended."""
        assert self._process.stdout is not None
        end = time.monotonic() + ANSWER_LIMIT_S
        while b"\n" not in self._received:
            if not select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                raise UnavailableError(f"{self.tree} does not run: it has said nothing for {ANSWER_LIMIT_S:.0f} s")
            if not (part := os.read(self._process.stdout.fileno(), 1 << 16)):
                break
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def stop(self) -> None:
        """Kill the process and its ranks, which share its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def _environment(tree: Path) -> dict[str, str]:
    """This process's environment, changed so that the tree's packages come first, with one thread and without a GPU."""
    inherited = {k: value for k, value in os.environ.items() if not k.startswith(("PYTHON", "COVERAGE", "PYTEST"))}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    places = [str(place) for place in (tree / "src", tree) if place.is_dir()]
    return inherited | threads | {"PYTHONPATH": os.pathsep.join(places), "CUDA_VISIBLE_DEVICES": ""}
