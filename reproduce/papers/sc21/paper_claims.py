"""The takeaways; and, from `shared`, the claims of the paper that belong to no one figure or table."""

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import Judgement, consistent_if, holds_if
from reproduce.experiment.results import MissingResultError, Results, argmax, listed
from reproduce.papers.shared import paper_configurations, paper_formulas, paper_points
from reproduce.papers.shared.whole_paper import ARTIFACT

__all__ = ["ARTIFACT", "paper_configurations", "paper_formulas"]  # the latter two add their claims to it

Speeds = list[tuple[Mapping[str, Any], float]]  # of points: their parameters and throughput


def _speeds(results: Results, series: str) -> Speeds:
    """The points of a series that fit in memory. Raises `MissingResultError` if one failed, or if none fits."""
    speeds = [(p.parameters, results.value(p.key, q.THROUGHPUT)) for p in results.of(series) if p.status != "oom"]
    if not speeds:
        raise MissingResultError(f"series {series!r} has no point that fits in memory")
    return speeds


def _by(parameter: str, speeds: Speeds) -> dict[int, Speeds]:
    """The points by the values of a parameter, in order."""
    values = sorted({parameters[parameter] for parameters, _ in speeds})
    return {value: [point for point in speeds if point[0][parameter] == value] for value in values}


@ARTIFACT.judge
def takeaway_1(results: Results) -> Judgement:
    batches = _by("B", _speeds(results, paper_points.TENSOR_VS_PIPELINE))
    speeds = {B: {parameters["t"]: speed for parameters, speed in points} for B, points in batches.items()}
    best = {B: argmax(by_t) for B, by_t in speeds.items()}
    text = "; ".join(
        f"B={B}: fastest with t={best[B]}; teraFLOP/s by t: {listed(by_t, '{:.0f}', 1e12)}"
        for B, by_t in speeds.items()
    )
    return holds_if(set(best.values()) == {published.gpus_per_node()}, text, results.numbers("count", best_t_at_b=best))


@ARTIFACT.judge
def takeaway_2(results: Results) -> Judgement:
    texts, numbers, holds = [], results.numbers(), True
    for B, points in _by("B", _speeds(results, paper_points.MODEL_PARALLEL)).items():
        best: dict[int, float] = {}
        for parameters, speed in points:
            size = parameters["p"] * parameters["t"]
            best[size] = max(speed, best.get(size, 0.0))
        best, smallest = dict(sorted(best.items())), min(best)
        gap = max(best.values()) / best[smallest] - 1
        holds = holds and gap <= 0
        shown = listed(best, "{:.0f}", 1e12)
        texts.append(f"B={B}: smallest that fits M={smallest}; best teraFLOP/s by M: {shown}")
        numbers |= results.numbers("count", smallest_m_at_b={B: smallest})
        numbers |= results.numbers(faster_than_smallest_at_b={B: gap})
    return holds_if(holds, "; ".join(texts), numbers)


@ARTIFACT.judge
def takeaway_2_in_the_paper(results: Results) -> Judgement:
    best: dict[int, dict[int, float]] = {}
    for id in ("fig_pipeline_vs_data", "fig_tensor_vs_data"):
        for row in published.rows(id):
            size, line = row.get("p", 1) * row.get("t", 1), best.setdefault(row["B"], {})
            line[size] = max(row[q.THROUGHPUT.name], line.get(size, 0.0))
    step = published.artifact("fig_pipeline_vs_data")["values"][q.THROUGHPUT.name]["quantum"]
    slower = [B for B, line in best.items() if max(line.values()) > line[min(line)] + step]
    text = "the paper's points, best teraFLOP/s by M: " + "; ".join(
        f"B={B}: {listed(dict(sorted(line.items())), '{:.0f}')}" for B, line in sorted(best.items())
    )
    return replace(consistent_if(not slower, text), by="paper")


def _best_b(parameter: str, speeds: Speeds) -> dict[int, int]:
    """The fastest b for each value of a parameter."""
    return {value: max(points, key=itemgetter(1))[0]["b"] for value, points in _by(parameter, speeds).items()}


@ARTIFACT.judge
def takeaway_3(results: Results) -> Judgement:
    by_batch = _best_b("B", _speeds(results, paper_points.BY_B))
    texts = [f"by B {listed(by_batch, '{:.0f}')}"]
    different = {"batch_size": len(set(by_batch.values()))}
    families = (
        ("model", "h", "hidden", paper_points.BY_MODEL),
        ("p", "p", "p", paper_points.BY_P),
        ("d", "d", "d", paper_points.BY_D),
    )
    for name, letter, parameter, series in families:
        batches = _by("B", _speeds(results, series))
        best = {B: _best_b(parameter, points) for B, points in batches.items()}
        texts += [f"by {letter} at B={B} {listed(by_value, '{:.0f}')}" for B, by_value in best.items()]
        different[name] = max(len(set(by_value.values())) for by_value in best.values())
    text = "best b around the 91B model at (t, p, d) = (8, 8, 1): " + "; ".join(texts)
    return holds_if(min(different.values()) > 1, text, results.numbers("count", different_optima_by=different))
