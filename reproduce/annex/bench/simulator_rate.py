"""How many configurations a second the simulator answers on one core.

There are two sets of configurations: the paper's points, which are all simulated configurations of its tables and
figures (`paper_points.json`, as `reproduce simulate` reads them), and random ones, no two with the same schedule. The
first pass of a process is *cold*: every schedule is built, lowered and compiled. Later passes are *warm*, as in a
search over configurations, where schedules recur.

Where Calculon can be imported (Isaev et al., SC 2023; it computes an iteration from closed formulas), it answers the
random configurations, too: in the same process, after each of our passes.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from random import Random

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, Parameter, attempted, timed
from benchmarks.harness.timing import Samples
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.native import why_in_python
from reproduce.annex.bench.simulator_rate_peer import calculon_time
from results import ROOT
from results.records import PointResult

PAPER_POINTS = ROOT / "benchmarks" / "paper_points.json"
RANDOM, SEED = 300, 2021
WARM_PASSES, PROCESSES = 2, 5  # passes in each process, one after the other
CALCULON = "calculon"


def paper_points() -> list[TrainingConfig]:
    """Every simulated configuration of the paper's tables and figures."""
    return [TrainingConfig.from_plain(point) for point in json.loads(PAPER_POINTS.read_text())]


def random_points(number: int = RANDOM, seed: int = SEED) -> list[TrainingConfig]:
    """Random configurations with 1F1B or interleaved 1F1B, no two with the same (p, m, v)."""
    draw = Random(seed)
    configurations: dict[tuple[int, int, int], TrainingConfig] = {}
    while len(configurations) < number:
        v = draw.randint(1, 4)
        p = 2 ** draw.randint(0 if v == 1 else 1, 6)
        m = draw.randint(1, 512) if v == 1 else p * draw.randint(1, 512 // p)
        t, d, b = 2 ** draw.randint(0, 3), 2 ** draw.randint(0, 5), 2 ** draw.randint(0, 2)
        heads = 16 * draw.randint(1, 8)
        model = ModelConfig(layers=p * v * draw.randint(1, 4), hidden=128 * heads, heads=heads)
        parallel = ParallelConfig(p=p, t=t, d=d, v=v, b=b, B=m * d * b)
        configurations.setdefault((p, m, v), TrainingConfig(model, parallel))
    return list(configurations.values())


SETS = {"paper's points": paper_points, "random": random_points}


def passes(configurations: str, at_most: int | None, with_calculon: bool) -> dict[str, list[float]]:
    """Time passes over a set, or over its first `at_most`, ours and Calculon's in turn: seconds per configuration."""
    simulated, cluster = SETS[configurations]()[:at_most], load_cluster()
    times: dict[str, list[float]] = {name: [] for name in ("cold", "warm", *([CALCULON] if with_calculon else []))}
    if with_calculon:
        calculon_time(simulated[0])  # imports it, which is not part of a pass
    for name in ("cold", *["warm"] * WARM_PASSES):
        times[name].append(_one_pass(simulated, lambda configuration: simulate(configuration, cluster)))
        if with_calculon:
            times[CALCULON].append(_one_pass(simulated, calculon_time))
    return times


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield the cold and the warm rate over each set."""
    for configurations in SETS:
        peer = configurations == "random" and find_spec(CALCULON) is not None
        processes, at_most = (1, 10) if setup.quick else (PROCESSES, None)
        measured = Once(partial(_measure, configurations, processes, at_most, peer))
        for name in ("cold", "warm", *([CALCULON] if peer else [])):
            parameters: dict[str, Parameter] = {"caches": name, "configurations": configurations}
            parameters["compiled"] = not why_in_python()
            yield attempted(setup, name, configurations, parameters, timed(measured.at(name), rate=(1, "1/s")))


def _one_pass(configurations: Sequence[TrainingConfig], answer: Callable[[TrainingConfig], object]) -> float:
    start = time.perf_counter()
    for configuration in configurations:
        answer(configuration)
    return (time.perf_counter() - start) / len(configurations)


def _measure(configurations: str, processes: int, at_most: int | None, with_calculon: bool) -> dict[str, Samples]:
    """The samples of a set, by whose they are; only a fresh process has a cold pass, so each is started for one."""
    rows = []
    for _ in range(processes):
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            rows.append(fresh.submit(passes, configurations, at_most, with_calculon).result())
    return {name: Samples(tuple(time for row in rows for time in row[name])) for name in rows[0]}
