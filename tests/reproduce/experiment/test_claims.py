"""Verdicts, and the comparison with the paper's numbers."""

from dataclasses import replace

import pytest

from reproduce.experiment.claims import Claim, Judgement, OnPapersPoints, holds_if
from reproduce.experiment.judging import accuracy, agreement, judge
from reproduce.experiment.results import Results, argmax, falls, rises
from results.records import Metric, PaperValue
from tests.points import made


def point(value, paper=None, quantum=None, status="ok"):
    metrics = {"square": Metric(value, "s", "derived")} if status == "ok" else {}
    published = {"square": PaperValue(paper, "s", "plot", quantum)} if paper is not None else {}
    return made("k", metrics, status, series="s", label="x=1", paper=published)


def claim(fidelity):
    return Claim("c", "Sentence.", "Section 1", fidelity, "none", lambda results: Judgement("holds", "because"))


@pytest.mark.parametrize(
    ("needed", "have", "verdict"),
    [
        ("simulated", "simulated", "holds"),
        ("derived", "simulated", "holds"),
        ("simulated", "measured", "holds"),
        ("measured", "simulated", "not testable here"),
        ("simulated", "derived", "not testable here"),
    ],
)
def test_a_claim_needs_its_fidelity(needed, have, verdict):
    assert judge(claim(needed), Results((), have)).verdict == verdict


def test_a_claim_that_misses_a_point_is_inconclusive(small):
    judged = judge(small.claims[0], Results((), "derived"))
    assert judged.verdict == "inconclusive"
    assert "'x5'" in judged.explanation


@pytest.mark.parametrize(
    ("ours", "paper", "quantum", "expected"),
    [
        (2.0, 2.0, None, "equal"),
        (2.4, 2.0, 1.0, "equal as rounded"),
        (0.125, 0.13, 0.01, "equal as rounded"),  # exactly half a step
        (0.0, 0.0, 0.01, "equal"),
        (2.15, 2.0, None, "within 10%"),
        (11.0, 10.0, None, "within 10%"),  # exactly the tolerance
        (1.7, 2.0, 0.1, "off by more than 10%"),
        (2.0, None, None, "paper gives none"),
    ],
)
def test_agreement(small, ours, paper, quantum, expected):
    assert agreement(small, point(ours, paper, quantum)) == expected


def test_agreement_of_a_point_without_result(small):
    assert agreement(small, point(0, 1, status="oom")) == "oom"


def test_accuracy(small):
    points = [point(1.1, 1.0), point(1.8, 2.0), replace(point(6, 5), label="x=3"), point(1, 0), point(1)]
    score = accuracy(small, [*points, point(0, 1, status="failed")])
    assert (score.count, score.equal) == (3, 0)
    assert score.mean == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert score.worst_signed == pytest.approx(0.2)
    assert str(score).startswith("difference from the paper over 3 points: mean 13.3%, worst +20.0% (s, x=3)")
    assert accuracy(small, [point(1)]) is None
    assert str(accuracy(small, [point(0, 0), point(3.9, 4, 1)])).startswith("all 2 points equal the paper's, as it")


@pytest.mark.parametrize("worst", range(3))
def test_the_worst_point_is_found_wherever_it_stands(small, worst):
    points = [replace(point(1.1 if place != worst else 0.5, 1.0), label=f"x={place}") for place in range(3)]
    score = accuracy(small, points)
    assert (score.worst, score.worst_signed) == pytest.approx((0.5, -0.5))
    assert score.worst_label.endswith(f"x={worst}")


def test_strict_order():
    assert falls({1: 3, 2: 2}, {1: 1, 2: 0})
    assert not falls({1: 3, 2: 3, 3: 1})
    assert not falls({1: 3, 2: 2}, {1: 1, 2: 1})
    assert rises({1: 1, 2: 2})
    assert not rises({1: 1, 2: 1})


def test_argmax():
    assert argmax({"a": 1.0, "b": 3.0, "c": -4.0}) == "b"
    assert argmax({"a": 1.0, "b": 3.0, "c": -4.0}, abs) == "c"


def plotted(*values, quantum=1.0, how="plot"):
    """Points of one line as the paper has them."""
    return tuple(
        replace(
            point(1.0, value, quantum),
            key=f"k{x}",
            label=f"x={x}",
            paper={"square": PaperValue(value, "s", how, quantum)},
        )
        for x, value in enumerate(values)
    )


@pytest.mark.parametrize(
    ("values", "how", "verdict"),
    [
        ((50.0, 55.4), "plot", "inconclusive"),  # 10.8%, or 54.9/50.5: 8.7%
        ((50.0, 56.0), "plot", "paper inconsistent"),  # 55.5/50.5: 9.9%
        ((50.0, 54.0), "plot", "inconclusive"),  # 8.0%, or 54.5/49.5: 10.1%
        ((50.0, 53.5), "plot", "holds"),  # 54.0/49.5: 9.1%
        ((50.0, 55.4), "table", "inconclusive"),  # rounding may be why
        ((50.0, 56.0), "table", "paper inconsistent"),  # and here not
        ((50.0, 54.0), "table", "holds"),  # what is printed agrees
    ],
)
def test_the_paper_s_points_are_as_sure_as_they_were_read(values, how, verdict):
    """M6: at most 9.8%, of points plotted to 1."""

    def gain(results):
        first, last = (results.value(key, "square") for key in ("k0", "k1"))
        return holds_if(last / first - 1 <= 0.098, "because")

    judged = judge(
        Claim("c", "S.", "Section 1", "derived", None, OnPapersPoints(gain)),
        Results(plotted(*values, how=how), "simulated"),
    )
    assert (judged.verdict, judged.by) == (verdict, "paper")
    assert ("of a step " in judged.explanation) == (verdict == "inconclusive")


@pytest.mark.parametrize(("samples", "verdict"), [((1.0, 1.1, 1.2), "inconclusive"), ((1.09, 1.1, 1.11), "holds")])
def test_what_is_measured_is_as_sure_as_its_samples_agree(samples, verdict):
    measured = replace(point(1.1), metrics={"square": Metric(1.1, "s", "measured", samples)})
    above = Claim("c", "S.", "Section 1", "simulated", None, lambda r: holds_if(r.value("k", "square") > 1.05, "why"))
    judged = judge(above, Results((measured,), "measured"))
    assert (judged.verdict, judged.by) == (verdict, "measured")
