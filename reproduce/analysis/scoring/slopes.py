"""Slopes and intercepts: which part of an iteration's error grows with the batch, and which is there at any batch size.

Where the paper publishes several batch sizes of one configuration, its iteration times lie on a line over the number
of microbatches m: the slope is what a microbatch costs (layers, tensor parallelism, logits), the intercept what an
iteration costs anyway (pipeline fill, gradient all-reduce, optimizer). The line through our times shows which is off.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import linear_regression
from typing import TYPE_CHECKING, Any

from reproduce.analysis.scoring.accuracy import Predicted
from reproduce.analysis.scoring.published_points import FLOPS, Published
from reproduce.experiment import quantities as q
from reproduce.output.tables import text_table

if TYPE_CHECKING:
    from pandas import DataFrame

SIZES = ("p", "t", "d", "v", "b")
WITHOUT = {"recompute": ("none", ", no recomputation"), "scatter_gather": (False, ", no scatter/gather")}


@dataclass(frozen=True)
class Line:
    """A straight line of seconds over m: `slope` in s for each microbatch, `intercept` in s."""

    slope: float
    intercept: float


@dataclass(frozen=True)
class Slopes:
    """A configuration at several numbers of microbatches: the lines through our times and through the published."""

    artifact: str
    paper: str
    configuration: Mapping[str, Any]
    microbatches: tuple[int, ...]
    ours: Line
    published: Line


def line(points: Sequence[tuple[float, float]]) -> Line:
    """The least-squares line through points (m, seconds) with at least two different m."""
    return Line(*linear_regression(*zip(*points, strict=True)))


def seconds(published: Published, value: float) -> float:
    """The time of an iteration with a throughput, in FLOP/s per GPU or sequences/s."""
    config = published.config
    if published.quantity.name == q.SEQUENCES.name:
        return config.parallel.B / value
    flops = FLOPS[published.quantity.name](config.model, config.parallel.B)
    return flops / (config.parallel.n * value)


def slopes(predicted: Iterable[Predicted]) -> list[Slopes]:
    """The lines of every configuration that an artifact publishes at two or more batch sizes, in its order."""
    groups: dict[tuple[Any, ...], list[Predicted]] = {}
    for each in predicted:
        if each.pair is not None and each.published.quantity.name in (*FLOPS, q.SEQUENCES.name):
            groups.setdefault(_configuration(each), []).append(each)
    return [_slopes(points) for points in groups.values() if len(set(map(_microbatches, points))) > 1]


def _configuration(predicted: Predicted) -> tuple[Any, ...]:
    """The artifact and everything but the batch size."""
    plain = predicted.published.config.to_plain()
    return predicted.published.artifact, *sorted((name, value) for name, value in plain.items() if name != "B")


def _microbatches(predicted: Predicted) -> int:
    return predicted.published.config.parallel.m


def _slopes(predicted: Sequence[Predicted]) -> Slopes:
    published, plain = predicted[0].published, predicted[0].published.config.to_plain()
    ours, papers = [], []
    for each in predicted:
        assert each.pair is not None
        ours.append((_microbatches(each), seconds(each.published, each.pair.ours)))
        papers.append((_microbatches(each), seconds(each.published, each.pair.paper)))
    del plain["B"]
    microbatches = tuple(sorted({m for m, _ in ours}))
    return Slopes(published.artifact, published.paper, plain, microbatches, line(ours), line(papers))


def document(lines: Sequence[Slopes], cluster: str) -> dict[str, Any]:
    """What `reproduce accuracy --slopes --json` prints."""
    configurations = [{**asdict(each), "microbatches": list(each.microbatches)} for each in lines]
    return {"origin": "simulated", "cluster": cluster, "configurations": configurations}


def table(lines: Sequence[Slopes]) -> "DataFrame":
    """One row per configuration: what a microbatch takes and what an iteration takes besides, ours and the paper's."""
    headings = ("of", *SIZES, "m", "ms per m", "paper", "error", "rest (s)", "paper's", "differs")
    rows = []
    for each in lines:
        ours, paper = each.ours, each.published
        rows.append(
            (
                each.paper
                + "".join(text for name, (value, text) in WITHOUT.items() if each.configuration[name] == value),
                *(str(each.configuration[name]) for name in SIZES),
                f"{each.microbatches[0]} to {each.microbatches[-1]}",
                f"{1e3 * ours.slope:.1f}",
                f"{1e3 * paper.slope:.1f}",
                f"{ours.slope / paper.slope - 1:+.1%}",
                f"{ours.intercept:.3f}",
                f"{paper.intercept:.3f}",
                f"{ours.intercept - paper.intercept:+.3f}",
            )
        )
    return text_table(headings, rows)
