"""How many configurations a second the simulator estimates on one core, over the paper's points.

`paper_points.json` holds every simulated configuration of the paper's tables and figures, as `reproduce simulate` reads
them. *Cold* is the first pass of a process, in which every schedule is built, lowered and compiled; *warm* are later
passes, as in a search over configurations, where schedules recur.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.harness.points import Once, attempted, rate, seconds
from benchmarks.harness.setup import Setup
from benchmarks.harness.timing import Samples
from benchmarks.records import Metric, PointResult
from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster, load_cluster, simulate

PAPER_POINTS = Path(__file__).parents[1] / "paper_points.json"
WARM_PASSES = 2  # in each process
NOTES = (
    "One core; a fresh process per cold pass, followed by warm ones. time: per configuration.",
    "cold: every schedule is built, lowered and compiled; warm: schedules recur, as in a search.",
)


def paper_points() -> list[TrainingConfig]:
    """Every simulated configuration of the paper's tables and figures."""
    return [TrainingConfig.from_plain(point) for point in json.loads(PAPER_POINTS.read_text())]


def passes(number: int, at_most: int | None) -> list[float]:
    """The seconds per configuration of `number` passes over the points (the first `at_most`).

    The first pass is cold.
    """
    configurations, cluster = paper_points()[:at_most], load_cluster()
    return [_one_pass(configurations, cluster) / len(configurations) for _ in range(number)]


def points(setup: Setup) -> Iterator[PointResult]:
    """A point for the cold rate and one for the warm rate."""
    timed = Once(partial(_measure, 1 if setup.quick else 3, 10 if setup.quick else None))
    for name in ("cold", "warm"):
        yield attempted(setup, name, "paper's points", {"caches": name}, partial(_metrics, timed, name))


def _one_pass(configurations: list[TrainingConfig], cluster: Cluster) -> float:
    start = time.perf_counter()
    for configuration in configurations:
        simulate(configuration, cluster)
    return time.perf_counter() - start


def _measure(processes: int, at_most: int | None) -> dict[str, Samples]:
    rows = []
    for _ in range(processes):
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            rows.append(fresh.submit(passes, 1 + WARM_PASSES, at_most).result())
    return {"cold": Samples(tuple(row[0] for row in rows)), "warm": Samples(tuple(s for row in rows for s in row[1:]))}


def _metrics(timed: Once[dict[str, Samples]], name: str) -> dict[str, Metric]:
    taken = timed()[name]
    return {"time": seconds(taken), "rate": rate(1, taken, "1/s")}
