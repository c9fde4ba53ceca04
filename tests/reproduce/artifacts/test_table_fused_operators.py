"""Section 5.8: configurations, and what fusing changes."""

from ptdp_core.config import TrainingConfig

RATE = "throughput_per_gpu"


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


def test_what_is_assumed_is_said(record):
    assert any("Not stated in the paper" in note for note in record.notes)
