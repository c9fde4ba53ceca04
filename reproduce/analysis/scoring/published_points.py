"""Every published value that the simulator can be held against: collected over all artifacts, duplicates known.

The main quantity of each artifact that can be simulated, at the paper's scale. A configuration that the paper plots
twice, in two figures, has one value twice: `unique` counts it once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.records import PaperValue, PointResult
from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import bubble_fraction, flops_per_iteration, model_flops_per_iteration
from reproduce.analysis.scoring.scores import ScoredPair
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Point

# The FLOPs of an iteration that a throughput counts: with the recomputed forward pass (eq. 3), or without.
FLOPS = {"throughput_per_gpu": flops_per_iteration, "model_throughput_per_gpu": model_flops_per_iteration}


def configuration(point: Point) -> TrainingConfig:
    """The training configuration of a simulated point. Raises ValueError if it is none."""
    return TrainingConfig.from_plain(point.parameters)


@dataclass(frozen=True)
class Published:
    """A published value and the point that should reproduce it. `quantity` is the artifact's main one.

    `artifact` is its id, `paper` its place ("Figure 12").
    """

    artifact: str
    paper: str
    point: Point
    quantity: Quantity
    value: PaperValue

    @cached_property
    def config(self) -> TrainingConfig:
        """The point's training configuration."""
        return configuration(self.point)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for two points that ask the same of the simulator: the metric and all parameters, with defaults."""
        parameters = {**self.point.parameters, **self.config.to_plain()}
        return self.quantity.name, *sorted(parameters.items())

    @property
    def is_throughput(self) -> bool:
        """Whether the value is FLOP/s per GPU, which the baselines can be fitted to."""
        return self.quantity.name in FLOPS

    @property
    def label(self) -> str:
        """The point for people: series and label."""
        return f"{self.point.series}, {self.point.label}".strip(", ")

    def is_reference(self, result: PointResult) -> bool:
        """Whether the point is the one its series is normalised by: 1 on both sides, which shows nothing."""
        metric = result.metrics.get(self.quantity.name)
        return self.quantity.unit == "1" and metric is not None and metric.value == self.value.value == 1

    def pair(self, result: PointResult) -> ScoredPair | None:
        """Our result beside the published value; None if there is no result, or nothing to be relative to."""
        metric = result.metrics.get(self.quantity.name)
        if (
            self.is_reference(result)
            or result.status != "ok"
            or metric is None
            or metric.value is None
            or not self.value.value
        ):
            return None
        parallel = self.config.parallel
        bubble = bubble_fraction(parallel.p, parallel.m, parallel.v)
        label = f"{self.paper}: {self.label}"
        return ScoredPair(label, float(metric.value), float(self.value.value), self.config.model.hidden, bubble)


def published_points(artifact: Artifact) -> tuple[Published, ...]:
    """The published values of one artifact's main quantity, in its order; none if it cannot be simulated."""
    if "simulated" not in artifact.fidelities:
        return ()
    return tuple(
        Published(artifact.id, artifact.label, point, artifact.main, point.paper[artifact.main.name])
        for point in artifact.points(artifact.scales[0])
        if artifact.main.name in point.paper
    )


def unique(points: Iterable[Published]) -> tuple[Published, ...]:
    """The points without those that repeat the metric and configuration of an earlier one."""
    by_identity: dict[tuple[Any, ...], Published] = {}
    for published in points:
        by_identity.setdefault(published.identity, published)
    return tuple(by_identity.values())


def disagreements(points: Sequence[Published]) -> list[str]:
    """Where the paper gives two values for one configuration, as lines for people."""
    first = {published.identity: published for published in unique(points)}
    return [
        f"the paper has two values for one configuration: {earlier.quantity.show(earlier.value.value)} in "
        f"{earlier.artifact} ({earlier.label}) and "
        f"{later.quantity.show(later.value.value)} {later.quantity.shown} in {later.artifact}; "
        "the first is scored"
        for later in points
        if (earlier := first[later.identity]).value.value != later.value.value
    ]
