"""The edges of claims that are data follow from their bounds: all that a claim compares is laid out to be x."""

from collections.abc import Iterator, Mapping, Sequence

from reproduce.experiment.declared import PUBLISHED, Bounded
from results.records import Metric, PaperValue, PointResult
from tests.reproduce.tolerances.edges import CONTRADICTED, INCONSISTENT, Blank, Edge, altered

DISTANCE = "mean distance from 1 of"


def edges_of_bounds(judge: Bounded, fidelity: str) -> Iterator[Edge]:
    """An edge for each bound, of a claim of that fidelity."""

    def is_one(blank: Blank, asked: Mapping[str, object]) -> bool:
        return all(getattr(blank.seen, name, None) == value for name, value in asked.items())

    def lay(points: Sequence[Blank], x: float, as_papers: bool) -> tuple[PointResult, ...]:
        value, laid = 1 + x if judge.which == DISTANCE else x, []
        for blank in points:
            printed = blank.result.paper.get(judge.metric)
            published = None if printed is None else float(printed.value)
            mine = is_one(blank, judge.of)
            compared = value * published if judge.over == PUBLISHED and published else value
            number = compared if mine else 1.0
            if judge.of_paper and judge.over != PUBLISHED:
                paper = {judge.metric: PaperValue(number, "1", "text")} if published is not None else {}
                laid.append(altered(blank.result, paper=paper))
            else:
                laid.append(altered(blank.result, metrics={judge.metric: Metric(number, "1", "derived")}))
        return tuple(laid)

    outside = INCONSISTENT if judge.of_paper else "inconclusive" if judge.predicts(fidelity) else CONTRADICTED
    for words, bound, holds in (("at least", judge.at_least, "above"), ("at most", judge.at_most, "below")):
        if bound is not None:
            step = 1e-6 * max(abs(bound), 1)
            yield Edge(f"{words} {bound:g}", bound, holds, lay, step=step, outside=outside)
