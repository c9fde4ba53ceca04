"""Runs workloads of the gate in a tree of any project, as a script.

    PYTHONPATH=TREE python -P workload.py PIPE TREE CORE PACKAGE ...

It imports the slow packages, and then takes commands from the connection whose file descriptor is PIPE:

    {"start": {"a": {...}}}    fork a process on core CORE and set these workloads up
    {"slice": "a"}    measure a slice; the answer is the seconds of its iterations
    {"count": "a"}    run one more iteration, and answer what it does, counted (`counts.py`)
    {"end": True}     end the forked process

A forked process has loaded nothing of the tree when it starts. Trials stretch every iteration of head by the ratio
`slowdown` of its workloads. What a workload prints goes to standard error, and it reads nothing.

A workload's step is made by its `kind`, as docs/gate.md says; a 'function' gets the first of `sizes`, if there are any,
and all other kinds are known by the tree's own `adapter`. Without `iterations` a slice has as many as fit in 25 ms.
"""

import hashlib
import multiprocessing
import os
import queue
import re
import runpy
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import iter_modules, resolve_name
from typing import Any

SLICE_S, SHORTEST_S = 0.025, 1e-3  # of a slice, and of an iteration that can be timed; a shorter step is repeated in it
MOST_REPEATED = 100_000
TIMER_S = 1e-3  # that a sleep may last too long; the rest of a stretch is waited for without sleep, to be exact
TESTS = "::"  # what is ready in place of a workload that names several tests: their ids
ENDED = 77  # exit status of a forked process that the gate has ended, which a workload cannot know


OF_PYTEST = {4: "there is no such test or file", 5: "no test is in it"}  # by the exit code of pytest


class WorkloadError(RuntimeError):
    """A workload cannot run; the text says why."""


class SeveralTestsError(RuntimeError):
    """A workload names several tests, by their ids."""


def require_own(tree: Path) -> None:
    """Raise `RuntimeError` if a module that the tree has was not imported from there."""
    own = {module.name for module in iter_modules([f"{tree}/src", str(tree)])}
    for name, module in sys.modules.items():
        file = getattr(module, "__file__", None)
        if name.split(".")[0] in own and file and not Path(file).resolve().is_relative_to(tree.resolve()):
            raise RuntimeError(f"{name} was imported from {Path(file).resolve()}, not from {tree}")


def adapter(workload: dict[str, Any]) -> Any:
    """The tree's adapter: of the names of the module, apart by blanks, the first that the tree has."""
    *earlier, last = workload["adapter"].split()
    for name in earlier:
        with suppress(ModuleNotFoundError):
            return import_module(name)
    return import_module(last)


def _function(workload: dict[str, Any]) -> Callable[[], object]:
    function = resolve_name(workload["function"])
    made = function(*workload.get("sizes", ())[:1])
    return made if callable(made) else function


def _command(workload: dict[str, Any]) -> Callable[[], object]:
    def step() -> None:
        done = subprocess.run(workload["command"], shell=True, stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it says nothing"]
            raise WorkloadError(f"{workload['command']} ends with {done.returncode}: {last[0]}")

    return step


class Handed:
    """The `benchmark` fixture of pytest-benchmark and pytest-codspeed, which hands its function to the gate."""

    def __init__(self, found: "queue.Queue[Any]") -> None:
        self._found = found
        self.extra_info: dict[str, object] = {}
        self.name = self.group = ""

    def __call__(self, function: Callable[..., object], *arguments: object, **options: object) -> object:
        """Hand the function over, and wait for the end of the process."""
        self._found.put(lambda: function(*arguments, **options))
        threading.Event().wait()
        return None

    def pedantic(self, target: Any, args: Any = (), kwargs: Any = None, setup: Any = None, **_: Any) -> object:
        """Likewise; what `setup` does before each call, such as making its arguments, belongs to the step."""

        def step() -> object:
            made_args, made_kwargs = (setup() if setup else None) or (args, kwargs or {})
            return target(*made_args, **made_kwargs)

        return self(step)


def _test(workload: dict[str, Any]) -> Callable[[], object] | None:
    """The function that a test gives to its `benchmark` fixture; the test waits, with its other fixtures alive.

    None if it is skipped, or passes and gives no function.
    """
    import pytest

    found: queue.Queue[Any] = queue.Queue()  # gets that function, or else an error or the exit code of pytest

    class Fixtures:
        @pytest.fixture
        def benchmark(self) -> Handed:
            return Handed(found)

    class Plugin:
        def pytest_configure(self, config: pytest.Config) -> None:
            # Not by -p no:NAME, as the project may give options of these plugins to every call.
            config.option.dist = "no"  # of pytest-xdist
            for name in ("benchmark", "codspeed"):
                if config.pluginmanager.has_plugin(name):
                    config.pluginmanager.unregister(name=name)
            config.pluginmanager.register(Fixtures())  # after theirs, which stay known

        def pytest_collection_finish(self, session: pytest.Session) -> None:
            ids = [item.nodeid for item in session.items if "benchmark" in getattr(item, "fixturenames", ())]
            if len(ids) > 1:  # the first would be measured under the name of all
                found.put(SeveralTestsError(ids))
                threading.Event().wait()

        @pytest.hookimpl(hookwrapper=True)
        def pytest_load_initial_conftests(self) -> Iterator[None]:
            loaded: Any = yield
            if loaded.excinfo:
                found.put(WorkloadError(said(loaded.excinfo[1].__cause__ or loaded.excinfo[1])))

        def pytest_exception_interact(self, call: Any) -> None:
            error = call.excinfo.value
            if isinstance(error, pytest.Collector.CollectError):  # which has a whole traceback as its text
                error = error.__cause__ or error
            found.put(WorkloadError(said(error)))

    def run() -> None:
        options = ["--quiet", "--capture=no", "-p", "no:ptdp_gate", "-p", "no:faulthandler"]
        options += ["-W", "ignore::pytest.PytestConfigWarning"]  # of that plugin's options, which would be an error
        found.put(pytest.main([workload["test"], *options], plugins=[Plugin()]))

    threading.Thread(target=run, daemon=True).start()
    step = found.get()
    if isinstance(step, Exception):
        raise step
    if isinstance(step, int) and step != pytest.ExitCode.OK:
        raise WorkloadError(OF_PYTEST.get(step, f"pytest ends with exit code {int(step)}"))
    return step if callable(step) else None


def iterate(step: Callable[[], object], count: int, slowdown: float, repeated: int = 1) -> list[float]:
    """Time `count` iterations of `repeated` steps each, stretched by the ratio `slowdown`: the seconds of a step."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        for _ in range(repeated):
            step()
        if slowdown:
            end = time.perf_counter() + (time.perf_counter() - start) * slowdown
            time.sleep(max(0.0, end - time.perf_counter() - TIMER_S))  # leaves the core to others
            while time.perf_counter() < end:
                pass
        seconds.append((time.perf_counter() - start) / repeated)
    return seconds


def pace(step: Callable[[], object]) -> tuple[int, int]:
    """How many iterations make a slice, and how many steps an iteration that is long enough to be timed."""
    repeated = 1
    while (seconds := iterate(step, 1, 0.0, repeated)[0] * repeated) < SHORTEST_S and repeated < MOST_REPEATED:
        repeated = min(MOST_REPEATED, repeated * max(2, int(SHORTEST_S / max(seconds, 1e-7))))
    return max(1, min(50, round(SLICE_S / max(seconds, 1e-6)))), repeated


@dataclass(frozen=True)
class Prepared:
    """A workload that is set up: its step, what it imported, how a slice is measured, a digest of what it returned."""

    step: Callable[[], object]
    modules: list[str]
    slice: Callable[[], list[float]]
    output: str


def prepare(workload: dict[str, Any]) -> Prepared | None:
    """Set up a workload; None if there is nothing to measure."""
    makers: dict[str, Any] = {"function": _function, "command": _command, "pytest": _test}
    make, before = makers.get(workload["kind"]), set(sys.modules)
    step = make(workload) if make else adapter(workload).make_step(workload, 0, 1, "")
    if step is None:
        return None
    returned = step()
    shown = "" if returned is None else re.sub(r"0x[0-9a-f]+", "", repr(returned))  # without addresses
    modules = sorted(set(sys.modules) - before)
    iterations, repeated = (workload["iterations"], 1) if "iterations" in workload else pace(step)
    slowdown = workload.get("slowdown", 0.0)
    digest = hashlib.sha256(shown.encode()).hexdigest()
    return Prepared(step, modules, lambda: iterate(step, iterations, slowdown, repeated), digest)


def said(error: BaseException) -> str:
    """An error in one line, as at the end of a traceback."""
    line = " ".join("".join(traceback.format_exception_only(error)).split())
    own, where = (error.name or "").partition(".")[0] if isinstance(error, ImportError) else "", Path.cwd()
    if isinstance(error, PackageNotFoundError):
        line += "; needs that package installed, as its version is asked for; try pip install -e . first"
    elif own and any((where / place / own).is_dir() for place in ("", "src")):
        line += '; needs its extension modules, if it has any; try build = "COMMAND" in [tool.ptdp.gate] (docs/gate.md)'
    elif own:
        line += "; needs what the project's tests need; try it inside the environment of tox or nox, or pip install"
    return line


def serve(gate: Connection, tree: Path, core: int, workloads: dict[str, Any]) -> None:
    """Set the workloads up, then measure a slice for every "slice" command until another command comes."""
    os.sched_setaffinity(0, {core})
    prepared: dict[str, Prepared] = {}
    try:
        for name, workload in workloads.items():
            if made := prepare(workload):
                made.slice()  # to warm up
                prepared[name] = made
    except SeveralTestsError as several:
        gate.send({"ready": {TESTS: several.args[0]}})
        return
    except (Exception, SystemExit) as error:
        gate.send({"cannot": str(error) if isinstance(error, WorkloadError) else said(error)})
        return
    require_own(tree)
    gate.send({"ready": {name: made.output for name, made in prepared.items()}})
    while (command := gate.recv()).keys() & {"slice", "count"}:
        if "count" in command:
            made, counts = prepared[command["count"]], runpy.run_path(str(Path(__file__).with_name("counts.py")))
            gate.send({"counts": counts["counted"](made.step, tree, made.modules)})
        else:
            gate.send({"seconds": prepared[command["slice"]].slice()})


def fork(gate: Connection, tree: Path, core: int, workloads: dict[str, Any]) -> None:
    """Serve in a fresh process and wait for its end. If it fails, this process ends, too."""
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == ENDED:
            return
        if code != 1:  # said here, as the interpreter may close the connection before it prints what `exit` is given
            print(f"its process ended by itself, with {code}", file=sys.stderr, flush=True)
        sys.exit(1)
    status = 1
    try:
        serve(gate, tree, core, workloads)
        status = ENDED
    except (Exception, SystemExit):
        traceback.print_exc()
    finally:
        for process in multiprocessing.active_children():  # of the workload
            process.kill()
            process.join()
        os._exit(status)


def main() -> None:
    """Import what is slow, and fork a process for every "start" command."""
    pipe, tree, core, *packages = sys.argv[1:]
    gate = Connection(int(pipe))
    # An editable install of another checkout would fill in the modules that this tree lacks.
    sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "__module__", "").startswith("__editable__")]
    for name in packages:
        import_module(name)
    with suppress(EOFError):  # the gate has ended
        while True:
            fork(gate, Path(tree), int(core), gate.recv()["start"])


if __name__ == "__main__":
    main()
