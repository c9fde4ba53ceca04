"""Section 5.8: configurations, and the claims on results made to hold and not to."""

from dataclasses import replace

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.artifacts import table_fused_operators as module
from reproduce.experiment.results import Results
from reproduce.running import runner

RATE = "throughput_per_gpu"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    plan = runner.plan(module.ARTIFACT, tmp_path_factory.mktemp("fused"))
    return runner.run(plan, ["reproduce", module.ARTIFACT.id]).record


def with_rates(record, rates):
    points = tuple(
        replace(p, metrics={**p.metrics, RATE: replace(p.metrics[RATE], value=rates[p.key])}) for p in record.points
    )
    return Results(points, "simulated")


def test_the_points(record):
    assert [(p.key, p.paper[RATE].value / 1e12) for p in record.points] == [
        ("gpt3_175b_unfused", 113),
        ("gpt3_175b_fused", 135),
        ("530b_unfused", 133),
        ("530b_fused", 148),
    ]
    configs = [TrainingConfig.from_plain(p.parameters) for p in record.points]
    assert [(c.model.layers, c.model.hidden, c.parallel.n, c.parallel.m) for c in configs[::2]] == [
        (96, 12288, 96, 60),
        (105, 20480, 280, 280),
    ]
    assert [c.parallel.fused for c in configs] == [False, True] * 2


def test_fusing_saves_bytes_and_nothing_else(record):
    unfused, fused = record.points[:2]
    for name in ("pipeline_traffic", "tensor_traffic", "peak_memory"):
        assert unfused.metrics[name] == fused.metrics[name]
    assert unfused.metrics["iteration_time"].value > fused.metrics["iteration_time"].value


def test_the_claims(record):
    papers = {p.key: p.paper[RATE].value for p in record.points}
    first, second = module.ARTIFACT.claims
    results = with_rates(record, papers)
    assert first.judge(results).verdict == second.judge(results).verdict == "holds"
    same = {**papers, "gpt3_175b_unfused": papers["gpt3_175b_fused"]}
    assert first.judge(with_rates(record, same)).verdict == "contradicted"
    assert second.judge(with_rates(record, same)).verdict == "holds"
    slow = {**papers, "530b_unfused": 0.8 * papers["530b_fused"]}
    assert second.judge(with_rates(record, slow)).verdict == "contradicted"


def test_what_is_assumed_is_said(record):
    assert any("Not stated in the paper" in note for note in record.notes)
