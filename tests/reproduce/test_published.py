"""The paper's numbers as the artifacts get them."""

import pytest

from reproduce import published


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


def test_withheld_points_are_no_series():
    withheld = published.artifact("fig_tensor_vs_pipeline")["series"] is None
    assert (published.series("fig_tensor_vs_pipeline", "p", "FLOP/s") == {}) == withheld


def test_an_unknown_artifact():
    with pytest.raises(KeyError):
        published.artifact("fig_nothing")


def test_constants():
    assert published.constants()["sequence_length"] == 2048
