"""What ran in real time against what was predicted for exactly the same configuration.

A point that ran keeps the simulator's answer beside its own: the metrics `predicted_<name>`, whose origin is
'simulated'. The tolerances were fixed before anything had run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reproduce.experiment.results import argmax, counted, where
from results.records import PointResult

PREFIX = "predicted_"
TIME, BUBBLE, ORDER = "iteration_time", "bubble_fraction", "order_as_scheduled"
# The links between emulated nodes: what they did, by use, and what they were shaped to.
LINK_RATE, ASKED_RATE = "link_rate_", "asked_link_rate"
# Emulated against simulated: relative difference of iteration times; of bubbles, as fractions of compute time.
MEAN, WORST, BUBBLE_WORST = 0.05, 0.10, 0.03


@dataclass(frozen=True)
class Differences:
    """How far a metric is from its prediction: mean and worst size over `count` points, and where the worst is."""

    count: int
    mean: float
    worst: float
    label: str


def predicted(point: PointResult, name: str) -> float | None:
    """What was predicted for a metric of the point, in base units; None if nothing was."""
    metric = point.metrics.get(PREFIX + name)
    return None if metric is None or metric.value is None else float(metric.value)


def time_differences(points: Sequence[PointResult]) -> Differences | None:
    """Relative differences of the iteration times from the predicted ones; None if nothing was predicted."""
    return _differences({place: ours / theirs - 1 for place, ours, theirs in _pairs(points, TIME)})


def bubble_differences(points: Sequence[PointResult]) -> Differences | None:
    """Differences of the bubbles from the predicted ones, as fractions of compute time; None if none was predicted."""
    return _differences({place: ours - theirs for place, ours, theirs in _pairs(points, BUBBLE)})


def _pairs(points: Sequence[PointResult], name: str) -> Iterator[tuple[str, float, float]]:
    """Where, a metric and what was predicted for it: of the points that have both."""
    for point in points:
        ours, theirs = point.metrics.get(name), predicted(point, name)
        if ours is not None and ours.value is not None and theirs is not None:
            yield where(point), float(ours.value), theirs


def _differences(differences: Mapping[str, float]) -> Differences | None:
    if not differences:
        return None
    label, mean = argmax(differences, abs), sum(map(abs, differences.values())) / len(differences)
    return Differences(len(differences), mean, differences[label], label)


def notes(points: Sequence[PointResult], fidelity: str) -> list[str]:
    """How far a run was from its predictions, and whether that is within what was fixed beforehand."""
    lines = []
    if times := time_differences(points):
        within = times.mean <= MEAN and abs(times.worst) <= WORST
        lines.append(
            f"iteration time, {fidelity} against predicted over {counted(times.count)}: mean difference "
            f"{times.mean:.1%}, worst {times.worst:+.1%} ({times.label}); {'within' if within else 'NOT within'} the "
            f"{MEAN:.0%} on average and {WORST:.0%} at worst that were fixed beforehand"
        )
    if bubbles := bubble_differences(points):
        lines.append(
            f"bubble, {fidelity} against predicted: at most {100 * abs(bubbles.worst):.1f} points of compute time "
            f"apart ({bubbles.label})"
        )
    orders = [point.metrics[ORDER].value for point in points if ORDER in point.metrics]
    if orders:
        kept = "equals its schedule's" if all(orders) else "does NOT equal its schedule's at every point"
        lines.append(f"the executed order of every rank {kept} ({counted(len(orders))})")
    achieved, asked = _rates(points, LINK_RATE), _rates(points, ASKED_RATE)
    if achieved and asked:
        lines.append(
            f"links between nodes, measured before each run in bytes of the cluster: {min(achieved):.1f} to "
            f"{max(achieved):.1f} GB/s of the {max(asked):.1f} GB/s that each was shaped to"
        )
    return lines


def _rates(points: Sequence[PointResult], prefix: str) -> list[float]:
    """The metrics whose names begin so, in GB/s."""
    metrics = (metric for point in points for name, metric in point.metrics.items() if name.startswith(prefix))
    return [metric.value / 1e9 for metric in metrics if metric.value is not None]
