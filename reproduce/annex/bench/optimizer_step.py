"""Times the optimizer step: gradient norm, clipping and AdamW, replicated and sharded over two replicas (ZeRO-1).

With 16-bit parameters the step also copies its fp32 master weights back. A sharded step also gathers the parameters
that the other replica updated.
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
from ptdp_core.formulas import parameters as parameter_count
from results.records import PointResult

LIMIT_S = 5.0


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield points for fp32 and bf16 parameters, with d = 1, and with d = 2 replicated and sharded."""
    model = model_for(setup)
    for dtype in ("fp32", "bf16"):
        for d, sharded in ((1, False), (2, False), (2, True)):
            parallel = ParallelConfig(d=d, B=d, recompute="none", sharded_optimizer=sharded)
            engine = EngineSettings(dtype=dtype)
            parameters = {**parameters_of(model, parallel), "dtype": dtype, "sharded": sharded}
            label = f"d={d}, sharded" if sharded else f"d={d}"
            measured = Once(partial(run_ranks, measure_here, d, (model, parallel, engine, setup), setup.device))
            metrics = timed(measured.at(0), parameters=(parameter_count(model), "1/s"))
            yield attempted(setup, dtype, label, parameters, metrics)


def measure_here(
    beat: Callable[[], None], model: ModelConfig, parallel: ParallelConfig, engine: EngineSettings, setup: Setup
) -> Samples:
    """Time optimizer steps with the gradients of one batch, by the slowest rank. Every rank calls this."""
    trainer, batch, _ = build(model, parallel, setup.device, engine, "auto")
    trainer.forward_backward(batch)
    timer = slowest_timer(trainer.groups.device)
    samples = measure(lambda: trainer.optimizer.step(1e-6), samples=setup.samples, limit_s=LIMIT_S, timer=timer)
    beat()
    return samples
