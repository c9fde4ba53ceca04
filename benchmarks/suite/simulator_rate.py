"""How many configurations a second the simulator answers on one core.

There are two sets of configurations: the paper's points, which are all simulated configurations of its tables and
figures (`paper_points.json`, as `reproduce simulate` reads them), and random ones, no two with the same schedule. The
first pass of a process is *cold*: every schedule is built, lowered and compiled. Later passes are *warm*, as in a
search over configurations, where schedules recur.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random

from benchmarks.harness.points import Once, attempted, rate, seconds
from benchmarks.harness.setup import Setup
from benchmarks.harness.timing import Samples
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import Cluster, load_cluster, simulate
from results.records import Metric, PointResult

PAPER_POINTS = Path(__file__).parents[1] / "paper_points.json"
RANDOM, SEED = 300, 2021
WARM_PASSES = 2  # in each process
NOTES = (
    "One core; a fresh process per cold pass, followed by warm ones. time: per configuration.",
    "cold: every schedule is built, lowered and compiled; warm: schedules recur, as in a search.",
    f"random: {RANDOM} seeded configurations, p a power of 2 up to 64, m up to 512, v up to 4, no (p, m, v) twice.",
)


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


def passes(configurations: str, number: int, at_most: int | None) -> list[float]:
    """Time `number` passes over a set, or over its first `at_most`: seconds per configuration; the first is cold."""
    simulated, cluster = SETS[configurations]()[:at_most], load_cluster()
    return [_one_pass(simulated, cluster) / len(simulated) for _ in range(number)]


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield the cold and the warm rate over each set."""
    for configurations in SETS:
        timed = Once(partial(_measure, configurations, 1 if setup.quick else 3, 10 if setup.quick else None))
        for name in ("cold", "warm"):
            parameters = {"caches": name, "configurations": configurations}
            yield attempted(setup, name, configurations, parameters, partial(_metrics, timed, name))


def _one_pass(configurations: list[TrainingConfig], cluster: Cluster) -> float:
    start = time.perf_counter()
    for configuration in configurations:
        simulate(configuration, cluster)
    return time.perf_counter() - start


def _measure(configurations: str, processes: int, at_most: int | None) -> dict[str, Samples]:
    """Cold and warm samples of a set; only a fresh process has a cold pass, so each is started for one."""
    rows = []
    for _ in range(processes):
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            rows.append(fresh.submit(passes, configurations, 1 + WARM_PASSES, at_most).result())
    return {"cold": Samples(tuple(row[0] for row in rows)), "warm": Samples(tuple(s for row in rows for s in row[1:]))}


def _metrics(timed: Once[dict[str, Samples]], name: str) -> dict[str, Metric]:
    samples = timed()[name]
    return {"time": seconds(samples), "rate": rate(1, samples, "1/s")}
