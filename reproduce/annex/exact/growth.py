"""Section `growth`: how the lines that each function executes grow with the size of a problem.

The same computation runs at two sizes, one twice the other. The lines that a function executes then stay as many (power
0), double (power 1) or become four times as many (power 2: a loop in a loop). Lines are counted, not times, and the
powers are rounded, so that they are the same on every machine and version of Python. A scan in C code, as in
`x in numbers`, executes no lines, unless it compares objects of our own classes.

What a cache saves does not grow. So the calls of a simulated iteration are counted as they are: of a first one, and of
a second one, which finds the costs of its passes in the cache; and those of two clusters that are read and get the same
training program. Whether the simulator asks its compiled loops is seen by
stand-ins for them.
"""

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from math import log2
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import patch

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.schedules import (
    MODES,
    build,
    check_complete,
    check_groups,
    check_order,
    definition,
    lower,
    names,
    peak_stash,
)
from ptdp_core.simulator import load_cluster, native, simulate
from ptdp_core.simulator.cluster import _with_bases as files_of
from ptdp_core.simulator.cluster import with_program
from ptdp_core.simulator.executor import compile_blocking
from ptdp_core.simulator.native import uncompiled
from reproduce.annex.exact import watched
from reproduce.annex.exact.entries import OURS, Entry, Quantities, Section, Value
from results import ROOT

SIZES = (64, 128)  # microbatches
FEWEST = 3 * SIZES[0]  # a function with fewer lines at the larger size is not listed
OFTEN = 64  # a line that is executed less often at the larger size does not decide a function's power
# Of every schedule: the sizes between which it grows, and the one that stays meanwhile.
MICROBATCHES, OF_RANKS = (16, 32), 4
RANKS, OF_MICROBATCHES = (4, 8), 16
CLUSTERS, PROGRAM = ("selene", "b200"), "megatron-core"
DEPTH = 2  # how deep calls are counted in a simulated iteration
SIMULATING = tuple(f"{ROOT / 'ptdp_core' / package}/" for package in ("simulator", "layout"))

Run = Callable[[int], Callable[[], object]]  # prepares a computation of a size, and returns it


def collect() -> Section:
    """The growth of the schedules' and the simulator's functions, and the calls of simulated iterations."""
    runs: dict[str, Run] = {
        "compile step": lambda m: partial(compile_blocking, build("1f1b", 4, m, 1)),
        "schedule": lambda m: partial(build, "interleaved", 4, m, 2),
        "lowering": lambda m: partial(lower, build("1f1b", 4, m, 1), "overlapped"),
        "simulated iteration": _simulated,
    }
    with uncompiled():  # what a C compiler makes of the simulator executes no lines
        return {**_counted(runs), "compiled loops": Entry({"work": _asked()})}


def _asked() -> dict[str, Value]:
    """How often the simulator asks its compiled loops for each schedule: stand-ins, as no compiler need be there.

    They say that they cannot do it, so that Python does.
    """
    asked: Counter[str] = Counter()

    class StandIn(ModuleType):
        @staticmethod
        def compile(*table: Any) -> object:
            asked["compile"] += 1
            return "a program"

        @staticmethod
        def execute(*costs: Any) -> None:
            asked["execute"] += 1

    quantities: dict[str, Value] = {}
    environment = {key: value for key, value in os.environ.items() if key != "PTDP_NATIVE"}
    with (
        patch.dict(sys.modules, {"_ptdp_native": StandIn("_ptdp_native")}),
        patch.dict(os.environ, environment, clear=True),
        patch.object(native, "_chosen", [native._load()]),
    ):
        for name in names():
            _empty_caches()
            asked.clear()
            parallel = ParallelConfig(p=4, v=definition(name).chunks[0], B=16, schedule=name)
            simulate(TrainingConfig(ModelConfig(16, 1024, 16), parallel), load_cluster("selene"))
            quantities |= {f"native.{function} of {name}": asked[function] for function in ("compile", "execute")}
    _empty_caches()  # which hold programs of the stand-ins
    return quantities


def _counted(runs: dict[str, Run]) -> Section:
    section = {name: Entry({"growth": of(run, SIZES)}) for name, run in runs.items()}
    for name in names():
        section[f"m of {name}"] = Entry({"growth": of(partial(_prepared, name, OF_RANKS), MICROBATCHES)})
        section[f"p of {name}"] = Entry({"growth": of(partial(_prepared, name, m=OF_MICROBATCHES), RANKS)})
    section |= {name: Entry(of_functions) for name, of_functions in _calls_of_iterations().items()}
    return {**section, "clusters read": Entry({"calls": calls(_read_clusters)})}


def _prepared(name: str, p: int, m: int) -> Callable[[], object]:
    """All that is done with a schedule before it runs: its table is made, lowered and checked."""
    schedule = definition(name)

    def prepare() -> None:
        table = schedule.table(p, m, schedule.chunks[0])  # not `build`, which keeps its results
        check_complete(table)
        peak_stash(table)
        for mode in MODES:
            program = lower(table, mode)
            check_order(program)
            if mode == "blocking":
                check_groups(program)

    return prepare


def _config(m: int) -> TrainingConfig:
    """The configuration whose iteration is simulated, of m microbatches."""
    return TrainingConfig(ModelConfig(8, 1024, 16), ParallelConfig(p=4, B=m))


def _simulated(m: int) -> Callable[[], object]:
    """The simulation of an iteration of m microbatches."""
    return partial(simulate, _config(m), load_cluster("selene"))


def of(run: Run, sizes: Sequence[int]) -> dict[str, Value]:
    """The power with which each function's lines grow from the first size to the second, its double.

    It is that of all lines of the function together, or of its line that grows most, if that is more.
    """

    def executed(size: int) -> watched.Lines:
        computation = run(size)
        with watched.executing((*OURS, "<string>")) as lines:
            computation()
        return lines

    run(sizes[0] // 2)()  # fills the caches
    small, large = map(executed, sizes)
    powers: dict[str, Value] = {}
    for name in sorted(large):
        totals = (small[name].total(), large[name].total())
        if totals[1] < FEWEST:
            continue
        often = [(small[name][line], count) for line, count in large[name].items() if count >= OFTEN]
        powers[name] = max(round(log2(many / few)) if few else 2 for few, many in (totals, *often))
    return powers


def _calls_of_iterations() -> dict[str, Quantities]:
    """The calls of two simulated iterations, the second of another batch size, with nothing in the caches before."""
    cluster = load_cluster("selene")
    _empty_caches()
    sizes = {"first simulated iteration": SIZES[0], "simulated iteration with another B": SIZES[1]}
    return {name: {"calls": calls(partial(simulate, _config(m), cluster))} for name, m in sizes.items()}


def _read_clusters() -> None:
    """Read the files of two clusters, with nothing in the caches before, and let a training program run on both."""
    _empty_caches()
    for name in CLUSTERS:
        files_of(name)  # as `load_cluster` asks for them, which is too far from the parser of a file to name it
        with_program(load_cluster(name), PROGRAM)


def _empty_caches() -> None:
    """Empty all caches of functions of the project, so that nothing depends on what has run before."""
    modules = [module for name, module in sys.modules.items() if name.startswith("ptdp_core.")]
    for value in [value for module in modules for value in vars(module).values()]:
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def calls(run: Callable[[], object]) -> dict[str, Value]:
    """What a computation's function calls, and what these call in turn, as a text for each function that calls.

    Deeper calls, which follow from those, and comprehensions are left out.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and _is_simulating(frame):
            outer = list(islice(filter(_is_simulating, watched.outwards(frame.f_back)), DEPTH + 1))
            if 1 <= len(outer) <= DEPTH:
                counts[watched.name(outer[0])][watched.name(frame)] += 1

    with watched.calling(profile):
        run()
    return {
        caller: ", ".join(f"{count} {function}" for function, count in functions.items())
        for caller, functions in counts.items()
    }


def _is_simulating(frame: FrameType) -> bool:
    """Whether a frame is of a function of the simulator or of the layout."""
    return frame.f_code.co_filename.startswith(SIMULATING) and not frame.f_code.co_name.startswith("<")
