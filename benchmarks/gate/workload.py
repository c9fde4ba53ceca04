"""Runs workloads of the gate in any tree of this project that has an adapter (`adapter.py`), as a script.

    PYTHONPATH=TREE python -P workload.py TREE CORE PACKAGE ...

It imports third-party packages that take long (PACKAGE ...), and then reads commands on standard input, one line of
JSON each:

    {"start": [{"name": "a", "slowdown": 0.0, "workload": {...}}]}    fork a process on core CORE and set these up
    {"slice": "a"}    measure a slice; the answer is the seconds of its iterations
    {"end": true}     end the forked process

An empty CORE leaves the core open. A forked process waits for commands without using a core. It has loaded nothing of
the tree when it starts. This script does the timing, for base and head alike; it times the step that the tree's own
adapter makes. Every iteration of a rank is stretched by the ratio `slowdown`, which the self-test sets.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

Slices = Iterator[list[float]]  # yields a slice at a time: the seconds of its iterations

OWN = ("kernels", "ptdp_core", "benchmarks")
ADAPTER = "benchmarks.gate.adapter"
ENGINE = ("kernels", "ptdp_core.engine.trainer")  # imported before ranks are forked, where a tree has them
# Unbuffered, so that parent and child each read whole lines.
COMMANDS = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115


class WorkloadError(RuntimeError):
    """A rank failed; the text says with which error."""


def require_own(tree: Path) -> None:
    """Raise `RuntimeError` if one of the project's modules was not imported from the tree."""
    for name, module in sys.modules.items():
        if name.split(".")[0] in OWN:
            place = Path(str(module.__file__)).resolve()
            if not place.is_relative_to(tree.resolve()):
                raise RuntimeError(f"{name} was imported from {place}, not from {tree}")


def iterate(step: Callable[[], object], count: int, slowdown: float) -> list[float]:
    """Run `step` `count` times, each stretched by the ratio `slowdown`, and return the seconds of each run."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        if slowdown:
            time.sleep((time.perf_counter() - start) * slowdown)  # leaves the core to the other rank
        seconds.append(time.perf_counter() - start)
    return seconds


def in_this_process(workload: dict[str, Any], slowdown: float) -> Slices:
    """Yield slices of a workload that needs no ranks."""
    step = import_module(ADAPTER).make_step(workload, 0, 1, "")
    while True:
        yield iterate(step, workload["iterations"], slowdown)


def in_ranks(workload: dict[str, Any], slowdown: float) -> Slices:
    """Yield slices of a workload whose ranks are separate processes; an iteration counts by its slowest rank."""
    import_module(ADAPTER)
    for name in ENGINE:
        import_module(name)
    context = multiprocessing.get_context("fork")  # safe: no thread runs yet
    pipes: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="ptdp-gate-") as folder:  # where the ranks find each other
        for rank in range(workload["ranks"]):
            parent_end, rank_end = context.Pipe()
            arguments = (workload, rank, f"{folder}/store", slowdown, rank_end)
            context.Process(target=serve_rank, args=arguments, daemon=True).start()
            rank_end.close()
            pipes.append(parent_end)
        first = slice_of_ranks(pipes)  # after it all ranks have met, and the folder may go
    yield first
    while True:
        yield slice_of_ranks(pipes)


def slice_of_ranks(pipes: list[Any]) -> list[float]:
    """Let all ranks measure a slice. Raises `WorkloadError` with what the first rank that fails says."""
    for pipe in pipes:
        try:
            pipe.send("go")
        except OSError:  # the rank has ended; what it said is still in the pipe
            continue
    seconds: dict[Any, list[float]] = {}
    while waiting := [pipe for pipe in pipes if pipe not in seconds]:
        ready: list[Any] = wait(waiting)
        for pipe in ready:
            rank = pipes.index(pipe)
            try:
                answer = pipe.recv()
            except (EOFError, OSError):
                raise WorkloadError(f"rank {rank} ended without a word") from None
            if isinstance(answer, str):
                raise WorkloadError(f"rank {rank}: {answer}")
            seconds[pipe] = answer
    return slowest([seconds[pipe] for pipe in pipes])


def slowest(by_rank: list[list[float]]) -> list[float]:
    """The seconds of each iteration on the rank that took longest for it."""
    return [max(iteration) for iteration in zip(*by_rank, strict=True)]


def serve_rank(workload: dict[str, Any], rank: int, store: str, slowdown: float, pipe: Any) -> None:
    """Run one rank until it is killed with its parent, or until it fails; it then sends its error."""
    try:
        step = import_module(ADAPTER).make_step(workload, rank, workload["ranks"], store)
        while True:
            pipe.recv()
            pipe.send(iterate(step, workload["iterations"], slowdown))
    except Exception as error:
        pipe.send(said(error))


def said(error: Exception) -> str:
    """An error in one line, as at the end of a traceback."""
    return " ".join("".join(traceback.format_exception_only(error)).strip().splitlines()[-1:])


def prepare(workload: dict[str, Any], slowdown: float) -> Slices:
    """Run the first slice of a workload, to warm up, and return the iterator of the others."""
    slices = (in_ranks if workload["ranks"] else in_this_process)(workload, slowdown)
    next(slices)
    return slices


def serve(tree: Path, core: str, benchmarks: list[dict[str, Any]]) -> None:
    """Set the benchmarks up, then measure a slice for every "slice" command until another command comes."""
    if core:
        os.sched_setaffinity(0, {int(core)})
    try:
        slices = {b["name"]: prepare(b["workload"], b["slowdown"]) for b in benchmarks}
    except Exception as error:
        say({"cannot": str(error) if isinstance(error, WorkloadError) else said(error)})
        return
    require_own(tree)
    say({"ready": True})
    while "slice" in (command := hear()):
        say({"seconds": next(slices[command["slice"]])})


def fork(tree: Path, core: str, benchmarks: list[dict[str, Any]]) -> None:
    """Serve in a fresh process and wait for its end. If it fails, this process ends, too."""
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
        return
    status = 1
    try:
        serve(tree, core, benchmarks)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        for rank in multiprocessing.active_children():
            rank.kill()
            rank.join()
        os._exit(status)


def say(answer: dict[str, Any]) -> None:
    """Write one line of JSON to the gate."""
    print(json.dumps(answer), flush=True)


def hear() -> dict[str, Any]:
    """Read the gate's next command; empty when the gate has ended."""
    line = COMMANDS.readline()
    return json.loads(line) if line else {}


def main() -> None:
    """Import what is slow, and fork a process for every "start" command."""
    tree, core, *packages = sys.argv[1:]
    # An editable install of another checkout would fill in the modules that this tree lacks.
    sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "__module__", "").startswith("__editable__")]
    for name in packages:
        import_module(name)
    while "start" in (command := hear()):
        fork(Path(tree), core, command["start"])


if __name__ == "__main__":
    main()
