"""Numbers with their units."""

import pytest

from results.records.units import with_unit


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (14e9, "B/s", "14 GB/s"),
        (15e-6, "s", "15 us"),
        (0.5e-3, "s", "500 us"),
        (1e-9 * (1 - 1e-12), "s", "1 ns"),
        (-0.00151, "s", "-1.51 ms"),
        (0, "s", "0 s"),
        (1000, "1/s", "1 k/s"),
        (0.78, "1", "0.78"),
        (8, "count", "8"),
        (1_234_567, "count", "1234567"),
        (2.5, "count", "2.5"),
        (34, "d", "34 d"),
        (120.0, "FLOP/B", "120 FLOP/B"),
    ],
)
def test_numbers_have_a_prefix_and_their_unit(value, unit, text):
    assert with_unit(value, unit) == text


def test_digits_are_significant_ones():
    assert with_unit(1.234567e14, "FLOP/s", digits=5) == "123.46 TFLOP/s"
    assert with_unit(0.123456, "1", digits=5) == "0.12346"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5e-3, "s", "1.50 ms"),
        (12.34e-6, "s", "12.3 us"),
        (9.7e-3, "s", "9.70 ms"),
        (99.96e-3, "s", "100 ms"),
        (999.96e-6, "s", "1.00 ms"),
        (0.0, "s", "0.00 s"),
        (2.5e11, "FLOP/s", "250 GFLOP/s"),
        (3.84e8, "1/s", "384 M/s"),
        (0.9512, "1", "0.951"),
    ],
)
def test_columns_keep_their_zeros(value, unit, text):
    assert with_unit(value, unit, digits=3, zeros=True) == text
