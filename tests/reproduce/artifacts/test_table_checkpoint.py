"""Section 5.10: bytes and times by hand."""

import pytest


def test_the_largest_by_hand(record):
    h, layers = 25600, 128
    size = 14 * (12 * layers * h**2 + 13 * layers * h + (51200 + 2048) * h)
    last = record.points[-1].metrics
    assert last["checkpoint_size"].value == size
    assert last["load_time"].value == pytest.approx(size / 1e12)
    assert last["load_time_every_replica"].value == pytest.approx(6 * size / 1e12)
    assert last["save_time"].value == pytest.approx(size / 273e9)
    assert len(record.points) == 10
    assert [p.key for p in record.points if p.paper] == [record.points[-1].key]


def test_the_file_system_is_not_testable_here(record):
    verdicts = {claim.id: claim.verdict for claim in record.claims}
    assert verdicts["load_bandwidth"] == verdicts["save_bandwidth"] == "not testable here"
