"""Times one batch through a pipeline of two ranks, forward and backward, by schedule and exchange mode (Section 2.2).

Every schedule runs the same model on the same microbatches, so that only the order of the passes and the waiting
between them differ. There is no optimizer step.
"""

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, timed
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.timing import Samples, measure
from benchmarks.harness.training import build, model_for, parameters_of
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.schedules import MODES, definition, names
from results.records import PointResult

P, M = 2, 8
LIMIT_S = 5.0


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point for every schedule in both exchange modes, with the fewest chunks per rank that it allows."""
    model = model_for(setup)
    for exchange in MODES:
        for schedule in names():
            v, _ = definition(schedule).chunks
            parallel = ParallelConfig(p=P, v=v, b=1, B=M, schedule=schedule, recompute="none")
            parameters = {**parameters_of(model, parallel), "exchange": exchange}
            measured = Once(partial(run_ranks, measure_here, P, (model, parallel, exchange, setup), setup.device))
            metrics = timed(measured.at(0), tokens=(M * model.seq, "tokens/s"))
            yield attempted(setup, exchange, schedule, parameters, metrics)


def measure_here(
    beat: Callable[[], None], model: ModelConfig, parallel: ParallelConfig, exchange: str, setup: Setup
) -> Samples:
    """Time a batch by the slowest rank. Every rank calls this."""
    engine = EngineSettings(exchange=exchange, dtype=setup.dtype)
    trainer, batch, _ = build(model, parallel, setup.device, engine, "auto")

    def once() -> None:
        trainer.buffer.zero()
        trainer.executor.run(batch)

    samples = measure(once, samples=setup.samples, limit_s=LIMIT_S, timer=slowest_timer(trainer.groups.device))
    beat()
    return samples
