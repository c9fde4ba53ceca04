"""Figure 6: the formula against the executed schedule, and both against the paper's points."""

from dataclasses import replace

import pytest

from reproduce.artifacts import fig_bubble as module
from reproduce.experiment.claims import agreement
from reproduce.running import runner
from tests.reproduce.conftest import changed


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    artifact = replace(module.ARTIFACT, draw=None)
    return runner.run(runner.plan(artifact, tmp_path_factory.mktemp("bubble")), ["reproduce", "fig_bubble"]).record


def test_every_point_equals_the_papers_as_it_rounded(record):
    assert len(record.points) == 26
    assert {agreement(module.ARTIFACT, point) for point in record.points} <= {"equal", "equal as rounded"}
    assert {metric.origin for point in record.points for metric in point.metrics.values()} == {"derived"}
    assert [claim.verdict for claim in record.claims] == ["holds"] * 3


def test_the_schedule_is_really_executed(record):
    points = {point.key: point for point in record.points}
    assert points["n32_b128_d4"].metrics["executed_bubble_fraction"].value == 7 / 32
    assert points["n32_b128_d4"].parameters == {"n": 32, "b_prime": 128, "d": 4, "t": 1, "p": 8, "m": 32}


def test_formula_is_the_schedule_can_fail(record):
    results = changed(record, "n32_b32_d4", "executed_bubble_fraction", 0.9)
    assert module.formula_is_the_schedule(results).verdict == "contradicted"


def test_larger_d_smaller_bubble_can_fail(record):
    results = changed(record, "n32_b32_d4", "executed_bubble_fraction", 0.96)
    judgement = module.larger_d_smaller_bubble(results)
    assert judgement.verdict == "contradicted"
    assert "n=32, b'=32" in judgement.explanation


def test_larger_batch_smaller_bubble_can_fail(record):
    results = changed(record, "n32_b128_d16", "executed_bubble_fraction", 0.6)
    assert module.larger_batch_smaller_bubble(results).verdict == "contradicted"
