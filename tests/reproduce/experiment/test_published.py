"""The paper's numbers as the artifacts get them."""

import pytest

from reproduce.experiment import published


def test_series_have_values_units_and_rounding():
    found = published.series("fig_interleaved", "batch", "FLOP/s", 1e12)
    value = found["Interleaved"][60]
    assert (value.value, value.unit, value.how, value.quantum, value.origin) == (
        146e12,
        "FLOP/s",
        "plot",
        1e12,
        "paper",
    )


def test_pairs_of_parallel_sizes_are_tuples():
    found = published.series("fig_tensor_vs_pipeline", "pair", "FLOP/s", 1e12)
    assert found["Batch size = 128"][2, 32].value == 107e12


def test_an_unknown_artifact():
    with pytest.raises(KeyError):
        published.artifact("fig_nothing")


def test_constants():
    assert published.constants()["sequence_length"] == 2048
