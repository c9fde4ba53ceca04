"""Saving and loading a checkpoint of parameters and optimizer state, as the engine writes it (Section 5.10).

Files lie in the system's folder for temporary files, and pass through the operating system's cache: on a machine
with much memory this is no measure of its disk.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, rate, seconds
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.timing import Samples, measure
from benchmarks.harness.training import build, model_for, parameters_of
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.checkpoint.checkpoints import Checkpoints
from results.records import Metric, PointResult

SAMPLES, WARM_UP, LIMIT_S = 5, 1, 20.0


class CheckpointTimes(NamedTuple):
    """Samples of saving and of loading, and the bytes of the files."""

    save: Samples
    load: Samples
    size: int


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point for saving and one for loading, each by one rank and by two pipeline stages."""
    model = model_for(setup)
    for p in (1, 2):
        parallel = ParallelConfig(p=p, B=1, recompute="none")
        timed = Once(partial(_timed, model, parallel, setup))
        for operation in ("save", "load"):
            metrics = partial(_metrics, timed, operation)
            parameters = {**parameters_of(model, parallel), "what": operation}
            yield attempted(setup, f"p={p}", operation, parameters, metrics)


def measure_here(
    beat: Callable[[], None], model: ModelConfig, parallel: ParallelConfig, setup: Setup, folder: str
) -> CheckpointTimes:
    """Time saving the same checkpoint repeatedly, then loading it as often. Every rank calls this."""
    trainer, batch, _ = build(model, parallel, setup.device)
    trainer.step(batch)
    checkpoints, timer = Checkpoints(folder, trainer), slowest_timer(trainer.groups.device)
    samples = min(SAMPLES, setup.samples)
    time = partial(measure, samples=samples, warm_up=WARM_UP, limit_s=LIMIT_S, timer=timer)
    save = time(lambda: checkpoints.save(parallel.B))
    beat()
    load = time(lambda: checkpoints.load(folder))
    return CheckpointTimes(save, load, sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()))


def _timed(model: ModelConfig, parallel: ParallelConfig, setup: Setup) -> CheckpointTimes:
    """Start the ranks, and return the samples of `measure_here` in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        times: CheckpointTimes = run_ranks(measure_here, parallel.p, (model, parallel, setup, folder), setup.device)[0]
    return times


def _metrics(timed: Once[CheckpointTimes], operation: str) -> dict[str, Metric]:
    samples: Samples = getattr(timed(), operation)
    size = Metric(timed().size, "B", "derived")
    return {"time": seconds(samples), "bandwidth": rate(timed().size, samples, "B/s"), "size": size}
