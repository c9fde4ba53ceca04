"""Scores of predictions, the naive baselines beside them, and which published values there are to predict."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pandas import DataFrame, Series, isna

from reproduce.annex.accuracy.published_points import beside, disagreements, published_points
from reproduce.annex.accuracy.scores import baselines, compared, score, spearman
from reproduce.experiment import catalog
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Point
from results.records import Metric, PaperValue
from tests.points import made


def pairs(*rows):
    """Predictions of a label, our value, the paper's; h and the bubble."""
    return compared(DataFrame(rows, columns=["label", "ours", "paper", "hidden", "bubble"][: len(rows[0])]))


# ---------------------------------------------------------------------------------------------------------- scores


def test_score():
    result = score(pairs(("a", 1.1, 1.0), ("b", 1.6, 2.0), ("c", 4.0, 4.0)))
    assert result.n == 3
    assert result.mean == pytest.approx((0.1 + 0.2 + 0.0) / 3)
    assert result.bias == pytest.approx((0.1 - 0.2 + 0.0) / 3)
    assert (result.worst, result.worst_point) == (pytest.approx(-0.2), "b")
    assert result.rank == 1.0


@pytest.mark.parametrize("worst", range(3))
def test_the_worst_error_is_found_wherever_it_stands(worst):
    result = score(pairs(*((str(place), 1.1 if place != worst else 0.5, 1.0) for place in range(3))))
    assert result.worst_point == str(worst)
    assert result.worst == pytest.approx(-0.5)


def test_nothing_has_no_score():
    with pytest.raises(ValueError, match="needs at least one"):
        score(pairs(("a", 1.0, 1.0))[:0])


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
    correlation = spearman(Series(xs), Series(ys))
    assert correlation == expected if expected is None else correlation == pytest.approx(expected)


def test_baselines_find_what_they_are_made_for():
    constant = baselines(pairs(*(("", 1, 7.0, h, 0.0) for h in (1, 2, 3))))
    line = baselines(pairs(*(("", 1, 3.0 + 2 * h, h, 0.0) for h in (1, 2, 4))))
    bubble = baselines(pairs(*(("", 1, 9.0 / (1 + x), 1, x) for x in (0.0, 0.5, 2.0))))
    assert constant["constant"] == pytest.approx(0)
    assert line["line_in_h"] == pytest.approx(0)
    assert bubble["constant_with_bubble"] == pytest.approx(0)
    assert bubble["line_in_h"] == pytest.approx(bubble["constant"])  # one h: no slope to fit
    assert min(line["constant"], line["constant_with_bubble"], bubble["constant"]) > 0.05


def test_baselines_are_the_best_of_their_kind():
    """No other constant, factor or line does better: the baselines are not made easy to beat."""
    pick = random.Random(1)
    rows = [("", 1, pick.uniform(50, 200), pick.choice([1, 2, 4, 8]), pick.uniform(0, 1)) for _ in range(12)]

    def mean(predict):
        return sum(abs(predict(h, bubble) / paper - 1) for _, _, paper, h, bubble in rows) / len(rows)

    fits = baselines(pairs(*rows))
    for _ in range(3000):
        a, slope = pick.uniform(0, 250), pick.uniform(-20, 20)
        assert mean(lambda h, bubble: a) >= fits["constant"] - 1e-12  # noqa: B023
        assert mean(lambda h, bubble: a / (1 + bubble)) >= fits["constant_with_bubble"] - 1e-12  # noqa: B023
        assert mean(lambda h, bubble: a + slope * h) >= fits["line_in_h"] - 1e-12  # noqa: B023


# ---------------------------------------------------------------------------------------------- published values


def values(*points, metric="throughput_per_gpu", unit="FLOP/s"):
    """The published values of an artifact of these points."""
    quantity = Quantity(metric, "throughput", unit, "")
    artifact = SimpleNamespace(
        id="fig_x", label="Figure 0", main=quantity, fidelities=("simulated",), scales=("paper",)
    )
    artifact.points = lambda scale: points
    return published_points([artifact])


def test_a_configuration_in_two_figures_counts_once():
    table = published_points(map(catalog.load, ("fig_interleaved", "fig_scatter_gather")))
    assert dict(table.artifact.value_counts()) == {"fig_interleaved": 10, "fig_scatter_gather": 10}
    assert list(table.artifact[table.counted]) == ["fig_interleaved"] * 10 + ["fig_scatter_gather"] * 5
    assert disagreements(table) == []


def test_points_that_differ_in_any_parameter_are_not_the_same():
    """Figure 8 asks the same of the simulator for both batch sizes, and shows different numbers."""
    table = published_points([catalog.load("fig_microbatch_estimate")])
    assert list(table.counted) == [True] * 10


def test_defaults_do_not_make_a_point_another():
    (point, *_) = catalog.load("fig_interleaved").points("paper")
    told, other = (replace(point, parameters={**point.parameters, "recompute": each}) for each in ("full", "none"))
    assert list(values(point, told, other).counted) == [True, False, True]


def test_two_published_values_for_one_configuration_are_reported():
    (point, *_) = catalog.load("fig_interleaved").points("paper")
    ((metric, value),) = point.paper.items()
    other = replace(point, label="again", paper={metric: replace(value, value=2 * value.value)})
    (line,) = disagreements(values(point, other))
    assert line.count("fig_x") == 2
    assert point.label in line


def result(value, status="ok"):
    return made("k", {} if value is None else {"normalised": Metric(value, "1", "simulated")}, status)


@pytest.mark.parametrize(
    ("value", "paper", "expected", "reference"),
    [
        (result(1.2), 1.0, 1.2, False),
        (result(1.0), 1.0, None, True),  # the point that the series is normalised by
        (result(1.2), 1.2, 1.2, False),
        (result(None, "oom"), 1.5, None, False),
        (result(1.2), 0.0, None, False),
    ],
)
def test_pairs(value, paper, expected, reference):
    parameters = {"layers": 2, "hidden": 64, "heads": 2, "B": 4, "p": 2}
    point = Point("k", "", "l", parameters, {"normalised": PaperValue(paper, "1", "plot")})
    (row,) = beside(values(point, metric="normalised", unit="1"), [value]).itertuples()
    assert (None if isna(row.ours) else row.ours) == expected
    assert row.reference == reference
    assert (row.hidden, row.bubble) == (64, 1 / 4)
