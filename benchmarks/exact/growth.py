"""Section `growth`: how the lines that each function executes grow with the size of a problem.

The same computation runs at two sizes, one twice the other. The lines that a function executes then stay as many (power
0), double (power 1) or become four times as many (power 2: a loop in a loop). Lines are counted, not times, and the
powers are rounded, so that they are the same on every machine and version of Python. A scan in C code, as in
`x in numbers`, executes no lines, unless it compares objects of our own classes.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import log2
from types import FrameType
from typing import Any

from benchmarks.exact.quantities import Entry, Section, Value
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.schedules import build, lower
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.executor import compile_blocking
from results import ROOT

SIZES = (64, 128)  # microbatches
FEWEST = 3 * SIZES[0]  # a function with fewer lines at the larger size is not listed
OURS = tuple(f"{ROOT / package}/" for package in ("kernels", "ptdp_core", "benchmarks/exact/counts", "reproduce"))

Run = Callable[[int], Callable[[], object]]  # prepares a computation of a size, and returns it


def collect() -> Section:
    """The growth of the simulator's and the schedules' functions with the number of microbatches."""
    runs: dict[str, Run] = {
        "compile step": lambda m: partial(compile_blocking, build("1f1b", 4, m, 1)),
        "schedule": lambda m: partial(build, "interleaved", 4, m, 2),
        "lowering": lambda m: partial(lower, build("1f1b", 4, m, 1), "overlapped"),
        "simulated iteration": _simulated,
    }
    return {name: Entry({"growth": of(run, SIZES)}) for name, run in runs.items()}


def _simulated(m: int) -> Callable[[], object]:
    """The simulation of an iteration of m microbatches."""
    config = TrainingConfig(ModelConfig(8, 1024, 16), ParallelConfig(p=4, B=m))
    cluster = load_cluster("selene")
    return partial(simulate, config, cluster)


def of(run: Run, sizes: Sequence[int]) -> dict[str, Value]:
    """The power with which the lines of each function grow from the first size to the second, its double."""
    run(sizes[0] // 2)()  # fills the caches
    small, large = (executed_lines(run(size)) for size in sizes)
    return {
        name: round(log2(large[name] / small[name])) if small[name] else 2
        for name in sorted(large)
        if large[name] >= FEWEST
    }


def executed_lines(run: Callable[[], object]) -> Counter[str]:
    """Count the lines that each function of the project executes; those of a comprehension count for its function."""
    lines: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call":
            return trace if frame.f_code.co_filename.startswith((*OURS, "<string>")) else None
        if event == "line":
            lines[_name(frame)] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines


def _name(frame: FrameType) -> str:
    """The qualified name of a frame's function, without that of a comprehension, which not every Python has."""
    code = frame.f_code
    module = str(frame.f_globals.get("__name__", "")).rsplit(".", 1)[-1]
    parts = [part for part in code.co_qualname.split(".") if part != "<locals>" and not part.startswith("<")]
    return ".".join([module, *parts])
