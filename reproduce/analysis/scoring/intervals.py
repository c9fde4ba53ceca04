"""The margins of simulated numbers, from the simulator's errors on values that did not set its parameters.

A margin is the quantile of |log(simulated/measured)|: of n errors the one of rank ceil(0.9 (n + 1)), so that another
error of the same kind is smaller with a probability of at least 90%; of fewer than nine errors the largest. It is
tested by leaving out: the errors of each artifact (of memory: each study) against the quantile of all others.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from math import ceil, exp, log
from typing import Any

from ptdp_core.simulator import load_cluster
from reproduce.analysis.scoring import refit
from reproduce.analysis.scoring.ledger import first_rank_bytes, studies
from reproduce.analysis.scoring.published_points import Published, unique
from reproduce.experiment.margins import RATES

COVERAGE = 0.9
Errors = Mapping[str, Sequence[float]]  # |log(simulated/measured)| by the artifact or study that they are left out with


def half_width(errors: Sequence[float]) -> tuple[float, float]:
    """The margin as a logarithm, and its nominal coverage."""
    n = len(errors)
    rank = min(n, ceil(COVERAGE * (n + 1)))
    return sorted(errors)[rank - 1], min(COVERAGE, rank / (n + 1))


def tested(groups: Errors) -> float | None:
    """The share of errors inside the margin made from the other groups; None for a single group."""
    if len(groups) < 2:
        return None
    inside = 0
    for name, errors in groups.items():
        width, _ = half_width([error for other, rest in groups.items() if other != name for error in rest])
        inside += sum(error <= width for error in errors)
    return inside / sum(map(len, groups.values()))


def margins(published: Iterable[Published], refitted: Mapping[str, Any]) -> dict[str, Any]:
    """The margins of a refit's cluster as plain data: what `reproduce.experiment.margins` reads."""
    left_out = refit.left_out(refitted)
    chosen = [
        one for one in unique(published) if one.quantity.name in RATES and (one.artifact, one.point.key) in left_out
    ]
    logs = {(one.artifact, one.point.key): log(1 + left_out[one.artifact, one.point.key]) for one in chosen}
    plain = [one for one in chosen if one.config.parallel.data_parallel != "zero3"]
    zero3 = [one for one in chosen if one.config.parallel.data_parallel == "zero3"]
    return {
        "about": "Factors inside which the simulator is sure: reproduce accuracy --refit; explained in docs/margins.md",
        "cluster": refitted["cluster"],
        "digest": refitted["digest"],
        "margins": {
            "throughput": _margin(_values(plain, logs), "throughputs of the paper, each artifact left out of the fit"),
            "ratio": _margin(_ratios(plain, logs), "ratios of two of them: neighbours in a series, series at one x"),
            "zero3": _margin(_values(zero3, logs), "throughputs of Table 2 with ZeRO-3, the table left out of the fit"),
            "memory": _margin(memory_errors(), "memory of the first rank in BigScience's trials, never fitted"),
        },
    }


def _margin(groups: Errors, source: str) -> dict[str, Any]:
    width, coverage = half_width([error for errors in groups.values() for error in errors])
    count = sum(map(len, groups.values()))
    return {"factor": exp(width), "coverage": coverage, "n": count, "tested": tested(groups), "source": source}


Logs = Mapping[tuple[str, str], float]


def _values(points: Iterable[Published], logs: Logs) -> dict[str, list[float]]:
    groups = defaultdict(list)
    for one in points:
        groups[one.artifact].append(abs(logs[one.artifact, one.point.key]))
    return dict(groups)


def _ratios(points: Sequence[Published], logs: Logs) -> dict[str, list[float]]:
    """Errors of the ratios that figures show and claims compare: of neighbours in a series, of series at one x."""
    groups = defaultdict(list)
    for id in dict.fromkeys(one.artifact for one in points):
        own = [one for one in points if one.artifact == id]
        series = dict.fromkeys(one.point.series for one in own)
        pairs = [pair for name in series for pair in pairwise(one for one in own if one.point.series == name)]
        pairs += [
            (one, other)
            for one, other in combinations(own, 2)
            if one.point.label == other.point.label and one.point.series != other.point.series
        ]
        for one, other in pairs:
            groups[id].append(abs(logs[id, one.point.key] - logs[id, other.point.key]))
    return dict(groups)


def memory_errors() -> dict[str, list[float]]:
    """The errors of a GPU's memory by study, of those that publish it."""
    groups = defaultdict(list)
    for study in studies():
        for point in study.points:
            if point.first_rank_bytes is not None:
                ours = first_rank_bytes(point.config, load_cluster(study.cluster), study.software)
                groups[study.id].append(abs(log(ours / point.first_rank_bytes)))
    return dict(groups)
