"""Judging the three takeaways of Section 3, by simulation."""

from itertools import groupby

from benchmarks.records import Number, PointResult
from reproduce.artifacts.shared.paper_points import (
    BY_B,
    BY_D,
    BY_MODEL,
    BY_P,
    MODEL_PARALLEL,
    TENSOR_VS_PIPELINE,
    gpus_per_node,
)
from reproduce.experiment import quantities as q
from reproduce.experiment.results import Judgement, MissingResultError, Results, holds_if, listed

NEARLY_BEST = 0.01  # how much faster than the smallest model-parallel size a larger one may be


def _series(results: Results, series: str) -> list[PointResult]:
    """The points of a series that fit in memory. Raises `MissingResultError` if one is neither a result nor 'oom'."""
    line = [point for point in results.points if point.series == series]
    for point in line:
        if point.status not in ("ok", "oom"):
            raise MissingResultError(f"point {point.key!r} has no result ({point.status}: {point.reason})")
    if not any(point.status == "ok" for point in line):
        raise MissingResultError(f"series {series!r} has no point that fits in memory")
    return [point for point in line if point.status == "ok"]


def _speed(point: PointResult) -> float:
    """Its throughput. Raises `MissingResultError` for a point that fits only if less memory is used than simulated."""
    metric = point.metrics.get(q.THROUGHPUT.name)
    if metric is None or metric.value is None:
        raise MissingResultError(f"point {point.key!r} has no {q.THROUGHPUT.name}")
    return float(metric.value)


def _by(points: list[PointResult], parameter: str) -> dict[int, list[PointResult]]:
    def key(point: PointResult) -> int:
        return _whole(point, parameter)

    return {value: list(group) for value, group in groupby(sorted(points, key=key), key)}


def _whole(point: PointResult, parameter: str) -> int:
    value = point.parameters[parameter]
    assert isinstance(value, int)
    return value


def _best(points: list[PointResult]) -> PointResult:
    return max(points, key=_speed)


def takeaway_1(results: Results) -> Judgement:
    """Whether t = g with pipelining beyond is the fastest split of the model-parallel GPUs, at every batch size."""
    g = gpus_per_node()
    batches = _by(_series(results, TENSOR_VS_PIPELINE), "B")
    speeds = {B: {_whole(point, "t"): _speed(point) / 1e12 for point in points} for B, points in batches.items()}
    best = {B: max(by_t, key=lambda t: by_t[t]) for B, by_t in speeds.items()}
    text = "; ".join(
        f"B={B}: fastest with t={best[B]}; teraFLOP/s by t: {listed(by_t, '{:.0f}')}" for B, by_t in speeds.items()
    )
    numbers = {f"best_t_at_b{B}": results.number(t, "count") for B, t in best.items()}
    return holds_if(all(t == g for t in best.values()), text, numbers)


def takeaway_2(results: Results) -> Judgement:
    """Whether the smallest model-parallel size that fits is the fastest, or within 1% of it, at every batch size."""
    texts, numbers, fine = [], {}, True
    for B, points in _by(_series(results, MODEL_PARALLEL), "B").items():
        sizes: dict[int, list[PointResult]] = {}
        for point in points:
            sizes.setdefault(_whole(point, "p") * _whole(point, "t"), []).append(point)
        smallest = min(sizes)
        best = {size: _speed(_best(group)) for size, group in sorted(sizes.items())}
        gap = max(best.values()) / best[smallest] - 1
        fine = fine and gap <= NEARLY_BEST
        shown = listed({size: speed / 1e12 for size, speed in best.items()}, "{:.0f}")
        texts.append(f"B={B}: smallest that fits M={smallest}; best teraFLOP/s by M: {shown}")
        numbers[f"smallest_m_at_b{B}"] = results.number(smallest, "count")
        numbers[f"faster_than_smallest_at_b{B}"] = results.number(gap)
    return holds_if(fine, "; ".join(texts), numbers)


def _optima(points: list[PointResult], parameter: str) -> dict[int, int]:
    """The fastest b for each value of a parameter."""
    return {value: _whole(_best(group), "b") for value, group in _by(points, parameter).items()}


def takeaway_3(results: Results) -> Judgement:
    """Whether the best b differs with the model, and with each of p, d and B, all else equal, at either batch size."""
    families = {
        name: {B: _optima(points, parameter) for B, points in _by(_series(results, series), "B").items()}
        for name, series, parameter in (("h", BY_MODEL, "hidden"), ("p", BY_P, "p"), ("d", BY_D, "d"))
    }
    by_batch = _optima(_series(results, BY_B), "B")
    texts = [f"by B {listed(by_batch, '{}')}"]
    numbers = {"different_optima_by_batch_size": Number(len(set(by_batch.values())), "count", results.fidelity)}
    for name, optima in families.items():
        texts += [f"by {name} at B={B} {listed(by_value, '{}')}" for B, by_value in optima.items()]
        most = max(len(set(by_value.values())) for by_value in optima.values())
        numbers[f"different_optima_by_{'model' if name == 'h' else name}"] = results.number(most, "count")
    text = "best b around the 91B model at (t, p, d) = (8, 8, 1): " + "; ".join(texts)
    return holds_if(all(number.value is not None and number.value > 1 for number in numbers.values()), text, numbers)
