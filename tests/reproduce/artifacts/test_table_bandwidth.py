"""Section 5.9: bytes across the two cuts by hand, and what agreement is worth."""

import pytest

from reproduce.papers.sc21 import table_bandwidth as module


def test_bytes_across_the_cuts_by_hand(record):
    pipeline, data = (point.metrics for point in record.points)
    # 6 replicas of 8 tensor ranks; 512 microbatches, there and back, each rank with an eighth of bsh in fp16.
    assert pipeline["crossings"].value == 48
    assert pipeline["bisection_bytes"].value == 6 * 512 * 2 * (2 * 2048 * 25600)
    # 64 x 8 rings cross twice; 2(d-1)/d of all fp16 gradients, once for each of 2 crossings and 8 tensor ranks.
    assert data["crossings"].value == 1024
    h, stages = 25600, 64
    parameters = 2 * (12 * h * h + 7 * h) / 8 + 2 * 6 * h  # two layers: split, and not split
    ends = 2 * 51200 // 8 * h + 2048 * h + 2 * h  # embedding, its copy, positions, last layer norm
    assert data["bisection_bytes"].value == pytest.approx(8 * 2 * 2 * 5 / 6 * 2 * (stages * parameters + ends))


def test_the_bandwidth_whose_source_quotes_these_numbers_is_no_evidence(record):
    assert any("set with this section's numbers: allreduce_hca_bandwidth" in note for note in record.notes)
    assert {claim.id: claim.verdict for claim in record.claims}["data_bisection"] == "not testable here"


def test_bandwidth_is_bytes_over_time(record):
    for point in record.points:
        m = {name: metric.value for name, metric in point.metrics.items()}
        assert m["bisection_bandwidth"] == pytest.approx(m["bisection_bytes"] / m["bisection_time"])
        assert m["whole_iteration"] == pytest.approx(m["bisection_bytes"] / m["iteration_time"])
        assert 0 < m["bisection_time"] < m["iteration_time"]


def test_no_bandwidth_exceeds_the_hardware(record):
    # 48 pairs of HCAs in both directions, 1024 links: 25 GB/s nominal each.
    pipeline, data = (point.metrics["bisection_bandwidth"].value for point in record.points)
    assert pipeline < 48 * 2 * 25e9
    assert data < 1024 * 25e9


def test_an_interleaved_run_crosses_at_every_boundary_of_the_halves():
    from ptdp_core.config import TrainingConfig
    from ptdp_core.simulator import load_cluster, simulate

    plain = {"layers": 16, "hidden": 1024, "heads": 16, "p": 4, "t": 2, "B": 8}
    plain_run, interleaved = (
        simulate(TrainingConfig.from_plain({**plain, "v": v}), load_cluster("selene")) for v in (1, 2)
    )
    links, sent, _ = module._pipeline(plain_run)
    assert (links, sent) == (2, 2 * 8 * 2 * 2048 * 1024)
    # With v = 2 stages 1-2, 3-4 (back to the first half) and 5-6.
    assert module._pipeline(interleaved)[:2] == (6, 3 * sent)
