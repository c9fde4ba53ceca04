"""Figure 7: both counts of FLOPs over one time."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.papers.sc21 import fig_microbatch_single_gpu as module

MAIN = "model_throughput_per_gpu"


def test_the_points_are_the_papers():
    for point, (b, y) in zip(module.ARTIFACT.points(), ((1, 68), (2, 78), (4, 86), (8, 89), (16, 91)), strict=True):
        config = TrainingConfig.from_plain(point.parameters)
        assert (config.model.layers, config.model.hidden, config.model.heads) == (4, 4096, 128)
        assert (config.parallel.n, config.parallel.b, config.parallel.B) == (1, b, b)
        assert point.paper[MAIN].value == y * 1e12


def test_both_counts_are_of_one_time(record):
    # F of eq. (3) is 4 passes of 4 layers, without recomputation 3, and the logits both times.
    layer = lambda b: 24 * b * 2048 * 4096**2 + 4 * b * 2048**2 * 4096  # noqa: E731
    for point in record.points:
        b, metrics = point.parameters["b"], point.metrics
        logits = 6 * b * 2048 * 4096 * 51200
        time = metrics["iteration_time"].value
        assert metrics[MAIN].value == pytest.approx((3 * 4 * layer(b) + logits) / time)
        assert metrics["throughput_per_gpu"].value == pytest.approx((4 * 4 * layer(b) + logits) / time)


def test_every_size_fits_and_the_largest_would_not_without_recomputation(record):
    assert {point.status for point in record.points} == {"ok"}
    # 4 layers of 34sbh + 5abs^2 bytes, by hand.
    by_hand = 4 * (34 * 2048 * 16 * 4096 + 5 * 16 * 128 * 2048**2)
    last = record.points[-1].metrics
    assert last["activations_without_recomputation"].value == by_hand
    assert by_hand > 85.2e9 > last["peak_memory"].value


def test_the_notes_give_both_readings(record):
    papers = [p.paper[MAIN].value for p in record.points]
    both = [
        sum(p.metrics[name].value / paper for p, paper in zip(record.points, papers, strict=True)) / 5 - 1
        for name in (MAIN, "throughput_per_gpu")
    ]
    (note,) = (note for note in record.notes if note.startswith("Mean difference"))
    assert f"{both[0]:+.1%} as assumed, {both[1]:+.1%} if" in note
    assert any(note.startswith("Not stated in the paper") for note in record.notes)
