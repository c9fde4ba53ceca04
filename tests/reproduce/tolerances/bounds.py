"""The edges of claims that are data follow from their bounds: all that a claim compares is laid out to be x."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from reproduce.experiment.bounded import PUBLISHED, Bounded, is_one
from results.records import Metric, PaperValue, PointResult
from tests.reproduce.tolerances.edges import CONTRADICTED, INCONSISTENT, Blank, Edge, altered

DISTANCE = "mean distance from 1 of"


def edges_of_bounds(judge: Bounded, points: Sequence[Blank]) -> Iterator[Edge]:
    """An edge for each bound, on these points."""
    first, *others = judge.metrics

    def lay(points: Sequence[Blank], x: float, as_papers: bool) -> tuple[PointResult, ...]:
        value, laid = 1 + x if judge.which == DISTANCE else x, []
        for blank in points:
            printed = [blank.result.paper.get(metric) for metric in judge.metrics]
            published = sum(float(each.value) for each in printed) if all(printed) else None
            compared = value * published if judge.over == PUBLISHED and published else value
            number = compared if is_one(blank.result, judge.of) else 0.0 if judge.less is not None else 1.0
            numbers = {first: number, **dict.fromkeys(others, 0.0)}
            if judge.of_paper and judge.over != PUBLISHED:
                paper = {name: PaperValue(each, "1", "text") for name, each in numbers.items()}
                laid.append(altered(blank.result, paper=paper if published is not None else {}))
            else:
                metrics = {name: Metric(each, "1", "derived") for name, each in numbers.items()}
                laid.append(altered(blank.result, metrics=metrics))
        return tuple(laid)

    outside = INCONSISTENT if judge.of_paper else CONTRADICTED
    inside = "inconclusive" if judge.hit else "holds"
    beyond = "inconclusive" if judge.miss or judge.inexact else outside
    lower = "inconclusive" if judge.short else beyond
    half = _least_half_digit(judge, points) if judge.to_the_digits else 0.0
    width = max(judge.bounds.values()) - min(judge.bounds.values()) or inf
    for name, bound in judge.bounds.items():
        least = name in ("at_least", "above")
        step = min(1e-6 * max(abs(bound), 1), width / 4)
        place = bound - half if least else bound + half
        side = "above" if least else "below"
        yield Edge(judge.said(name), place, side, lay, step=step, inside=inside, outside=lower if least else beyond)
        if judge.inexact and not judge.miss:  # the same place, wider by what its inputs' rounding moves
            more = judge.inexact / _most_printed(judge, points)
            wider = place - more if least else place + more
            yield Edge("more is inconclusive", wider, side, lay, step=step, inside="inconclusive", outside=outside)
        if judge.short and least:
            wider = place / (1 + judge.short)
            yield Edge("below is inconclusive", wider, side, lay, step=step, inside="inconclusive", outside=outside)


def _most_printed(judge: Bounded, points: Sequence[Blank]) -> float:
    """The largest value that the paper prints of what is judged."""
    (metric,) = judge.metrics
    papers = [blank.result.paper for blank in points if is_one(blank.result, judge.of)]
    return max(float(paper[metric].value) for paper in papers if metric in paper)


def _least_half_digit(judge: Bounded, points: Sequence[Blank]) -> float:
    """Half a unit of the last digit over the value, where a paper prints its values most exactly."""
    halves = []
    for blank in points:
        paper: Mapping[str, PaperValue] = blank.result.paper
        if is_one(blank.result, judge.of) and all(metric in paper for metric in judge.metrics):
            values = [paper[metric] for metric in judge.metrics]
            half = sum(v.quantum or 0.0 for v in values) / 2 / abs(sum(float(v.value) for v in values))
            inputs = [paper[metric] for metric in judge.inputs]
            halves.append(half + sum((v.quantum or 0.0) / 2 / abs(float(v.value)) for v in inputs))
    return min(halves)
