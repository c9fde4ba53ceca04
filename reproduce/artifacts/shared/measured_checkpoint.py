"""Checkpoints for real: saved and loaded by the engine, in the folder of the results (Section 5.10)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.records import Metric
from reproduce.experiment.artifact import Take
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Level, Point, Sweep

if TYPE_CHECKING:
    from benchmarks.harness.launchers import Launcher

SAMPLES = 5
QUANTITIES = (
    Quantity("save_bandwidth", "save", "B/s", "GB/s", 1e9, 2),
    Quantity("load_bandwidth", "load", "B/s", "GB/s", 1e9, 2),
    Quantity("checkpoint_size", "checkpoint", "B", "MB", 1e6, 1),
    Quantity("save_time", "save", "s", "ms", 1e-3, 1),
    Quantity("load_time", "load", "s", "ms", 1e-3, 1),
)


def sweep(layouts: Sequence[Level], **model: Any) -> Sweep:
    """Checkpoints of one small model, by the ranks that save and load them."""
    return Sweep(
        series=(Level("", "ranks", {}),),
        x=layouts,
        B=4,
        description=(
            "Size of a checkpoint, and how fast it is saved and loaded, by the ranks that do it: parameters and "
            "optimizer state of a small GPT, in the folder of the results."
        ),
        quantities=QUANTITIES,
        columns={"p": "p", "t": "t", "d": "d"},
        **model,
    )


def measure(launcher: "Launcher") -> Take:
    """A function that measures saving and loading a checkpoint of a point's model; for `Artifact.measure`."""
    return partial(_measure, launcher)


def _measure(launcher: "Launcher", point: Point) -> Mapping[str, Metric]:
    import tempfile

    from benchmarks.harness.points import rate, seconds
    from benchmarks.harness.setup import Setup
    from benchmarks.suite.checkpoint import measure_here
    from ptdp_core.config import TrainingConfig
    from ptdp_core.interrupts import allowed, held

    config, device = TrainingConfig.from_plain(point.parameters), point.parameters["device"]
    setup = Setup(device, samples=SAMPLES)
    with held(), tempfile.TemporaryDirectory(prefix=".checkpoint-", dir=launcher.folder) as folder, allowed():
        arguments = (config.model, config.parallel, setup, folder)
        timings = launcher(measure_here, config.parallel.n, arguments, device)[0]
    metrics = {"checkpoint_size": Metric(timings.size, "B", "derived")}
    for what, samples in (("save", timings.save), ("load", timings.load)):
        metrics |= {f"{what}_time": seconds(samples), f"{what}_bandwidth": rate(timings.size, samples, "B/s")}
    return metrics
