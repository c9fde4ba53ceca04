"""What the tests of traces run in ranks: a training step of the engine under torch.profiler."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from benchmarks.harness.training import build
from ptdp_core.config import TrainingConfig
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.schedules import TimelineEvent

STEPS = 3  # one that warms up, one that is dropped, one that is kept


def traced_step(
    beat: Callable[[], None], plain: dict[str, Any], exchange: str, folder: str
) -> list[TimelineEvent[float]]:
    """Train under the profiler, write the last step's trace as FOLDER/rankN.json, return its timeline by the engine."""
    config = TrainingConfig.from_plain(plain)
    trainer, batch, _ = build(config.model, config.parallel, "cpu", EngineSettings(exchange=exchange))
    trainer.executor.record = True
    path = Path(folder) / f"rank{dist.get_rank()}.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=STEPS - 1, active=1),
        on_trace_ready=lambda profiled: profiled.export_chrome_trace(str(path)),
    ) as profiled:
        for _ in range(STEPS):
            dist.barrier()
            result = trainer.step(batch)
            profiled.step()
            beat()
    return result.run.timeline
