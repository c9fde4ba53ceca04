"""How far what ran is from what was predicted for it."""

import pytest

from reproduce.experiment.predictions import notes, time_differences
from results.records import Metric
from tests.points import made


def point(x, seconds, predicted=None):
    metrics = {"iteration_time": Metric(seconds, "s", "emulated")}
    if predicted is not None:
        metrics["predicted_iteration_time"] = Metric(predicted, "s", "simulated")
    return made(f"x{x}", metrics, series="s", label=f"x={x}", x=x)


def test_differences_are_relative_to_the_prediction_and_the_worst_keeps_its_sign():
    points = [point(1, 2.04, 2.0), point(2, 1.84, 2.0), point(3, 9.0)]
    differences = time_differences(points)
    assert (differences.count, differences.label) == (2, "s, x=2")
    assert (differences.mean, differences.worst) == pytest.approx((0.05, -0.08))
    (line,) = notes(points, "emulated")
    assert "over 2 points: mean difference 5.0%, worst -8.0% (s, x=2)" in line
    assert notes([point(3, 9.0)], "emulated") == []
