"""Figure 6: the formula against the executed schedule, and both against the paper's points."""

from reproduce.experiment.judging import agreement
from reproduce.papers.sc21 import fig_bubble as module


def test_every_point_equals_the_papers_as_it_rounded(record):
    assert len(record.points) == 26
    assert {agreement(module.ARTIFACT, point) for point in record.points} <= {"equal", "equal as rounded"}
    assert {metric.origin for point in record.points for metric in point.metrics.values()} == {"derived"}
    assert [claim.verdict for claim in record.claims] == ["holds"] * 3


def test_the_schedule_is_really_executed(record):
    points = {point.key: point for point in record.points}
    assert points["n32_b128_d4"].metrics["executed_bubble_fraction"].value == 7 / 32
    assert points["n32_b128_d4"].parameters == {"n": 32, "b_prime": 128, "d": 4, "t": 1, "p": 8, "m": 32}
