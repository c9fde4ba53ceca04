"""Scores of predictions, the naive baselines beside them, and which published values there are to predict."""

import random
from dataclasses import replace

import pytest

from benchmarks.records import Metric, PaperValue, PointResult
from reproduce.analysis.scoring.published_points import Published, disagreements, published_points, unique
from reproduce.analysis.scoring.scores import (
    ScoredPair,
    baselines,
    bubble_error,
    constant_error,
    line_error,
    score,
    spearman,
)
from reproduce.experiment import catalog
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Point


def pair(ours: float, paper: float, hidden: int = 1, bubble: float = 0.0, label: str = "") -> ScoredPair:
    return ScoredPair(label, ours, paper, hidden, bubble)


# ---------------------------------------------------------------------------------------------------------- scores


def test_score():
    result = score([pair(1.1, 1.0, label="a"), pair(1.6, 2.0, label="b"), pair(4.0, 4.0, label="c")])
    assert result.n == 3
    assert result.mean == pytest.approx((0.1 + 0.2 + 0.0) / 3)
    assert result.bias == pytest.approx((0.1 - 0.2 + 0.0) / 3)
    assert (result.worst, result.worst_label) == (pytest.approx(-0.2), "b")
    assert result.rank == 1.0


@pytest.mark.parametrize("worst", range(3))
def test_the_worst_error_is_found_wherever_it_stands(worst: int):
    pairs = [pair(1.1 if place != worst else 0.5, 1.0, label=str(place)) for place in range(3)]
    assert score(pairs).worst_label == str(worst)
    assert score(pairs).worst == pytest.approx(-0.5)


def test_nothing_has_no_score():
    with pytest.raises(ValueError, match="needs at least one"):
        score([])


@pytest.mark.parametrize(
    ("xs", "ys", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [9, 4, 1], -1.0),
        ([1, 2, 3, 4], [2, 1, 4, 3], 0.6),  # 1 - 6*4/(4*15)
        ([1, 2], [1, 2], None),
        ([1, 2, 3], [5, 5, 5], None),
    ],
)
def test_spearman(xs, ys, expected):
    correlation = spearman(xs, ys)
    assert correlation == expected if expected is None else correlation == pytest.approx(expected)


def test_baselines_find_what_they_are_made_for():
    constant = [pair(1, 7.0, h) for h in (1, 2, 3)]
    line = [pair(1, 3.0 + 2 * h, h) for h in (1, 2, 4)]
    bubble = [pair(1, 9.0 / (1 + x), bubble=x) for x in (0.0, 0.5, 2.0)]
    assert constant_error(constant) == pytest.approx(0)
    assert line_error(line) == pytest.approx(0)
    assert bubble_error(bubble) == pytest.approx(0)
    assert line_error(bubble) == pytest.approx(constant_error(bubble))  # one h: no slope to fit
    assert min(constant_error(line), bubble_error(line), constant_error(bubble)) > 0.05


def test_baselines_are_the_best_of_their_kind():
    """No other constant, factor or line does better: the baselines are not made easy to beat."""
    pick = random.Random(1)
    pairs = [pair(1, pick.uniform(50, 200), pick.choice([1, 2, 4, 8]), pick.uniform(0, 1)) for _ in range(12)]

    def mean(predictions: list[float]) -> float:
        return sum(abs(p / q.paper - 1) for p, q in zip(predictions, pairs, strict=True)) / len(pairs)

    fits = baselines(pairs)
    for _ in range(3000):
        a, slope = pick.uniform(0, 250), pick.uniform(-20, 20)
        assert mean([a] * len(pairs)) >= fits["constant"] - 1e-12
        assert mean([a / (1 + pair_.bubble) for pair_ in pairs]) >= fits["constant_with_bubble"] - 1e-12
        assert mean([a + slope * pair_.hidden for pair_ in pairs]) >= fits["line_in_h"] - 1e-12


# ---------------------------------------------------------------------------------------------- published values


def test_a_configuration_in_two_figures_counts_once():
    twelve, eighteen = (published_points(catalog.load(id)) for id in ("fig_interleaved", "fig_scatter_gather"))
    counted = unique((*twelve, *eighteen))
    assert len(twelve) == len(eighteen) == 10
    assert [pair_.artifact for pair_ in counted] == ["fig_interleaved"] * 10 + ["fig_scatter_gather"] * 5
    assert disagreements((*twelve, *eighteen)) == []


def test_points_that_differ_in_any_parameter_are_not_the_same():
    """Figure 8 asks the same of the simulator for both batch sizes, and shows different numbers."""
    points = published_points(catalog.load("fig_microbatch_estimate"))
    assert len(unique(points)) == len(points) == 10


def test_defaults_do_not_make_a_point_another():
    pair_ = published_points(catalog.load("fig_interleaved"))[0]
    told = replace(pair_, point=replace(pair_.point, parameters={**pair_.point.parameters, "recompute": "full"}))
    other = replace(pair_, point=replace(pair_.point, parameters={**pair_.point.parameters, "recompute": "none"}))
    assert len(unique([pair_, told, other])) == 2


def test_two_published_values_for_one_configuration_are_reported():
    pair_ = published_points(catalog.load("fig_interleaved"))[0]
    other = replace(pair_, artifact="fig_other", value=replace(pair_.value, value=2 * pair_.value.value))
    (line,) = disagreements([pair_, other])
    assert "fig_interleaved" in line
    assert "fig_other" in line


def result(value: float | None, status: str = "ok") -> PointResult:
    metrics = {} if value is None else {"normalised": Metric(value, "1", "simulated")}
    return PointResult("k", "", "l", {}, status, None if status == "ok" else "why", "0" * 64, metrics)


@pytest.mark.parametrize(
    ("value", "paper", "expected"),
    [
        (result(1.2), 1.0, 1.2),
        (result(1.0), 1.0, None),  # the point that the series is normalised by
        (result(None, "oom"), 1.5, None),
        (result(1.2), 0.0, None),
    ],
)
def test_pairs(value, paper, expected):
    parameters = {"layers": 2, "hidden": 64, "heads": 2, "B": 4, "p": 2}
    quantity = Quantity("normalised", "throughput", "1", "")
    published = Published(
        "fig_x", "Figure 0", Point("k", "", "l", parameters), quantity, PaperValue(paper, "1", "plot")
    )
    paired = published.pair(value)
    assert (paired and paired.ours) == expected
    if paired:
        assert (paired.hidden, paired.bubble) == (64, 1 / 4)
