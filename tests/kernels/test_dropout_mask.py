"""The computed dropout mask: one function in two languages, and random enough."""

from itertools import pairwise

import pytest
import torch

from kernels.dropout_mask import drop_threshold, keep_mask, mask_keys
from tests.kernels.cases import operators


def mask(seed, rows, columns, p):
    return keep_mask(mask_keys(seed, rows, columns), p)


SEEDS = [0, 1, 2**32, 2**62 + 3, 8210123456789012345]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (3, 1500), (300, 2)])
def test_triton_computes_the_same_mask(seed, shape, device):
    number = torch.tensor([seed], device=device)
    with operators("triton", device):
        from kernels.dropout_triton import dropout

        kept = dropout(torch.ones(shape, device=device), number, 0.3) != 0
    assert torch.equal(kept, mask(number, *shape, 0.3))


def test_the_mask_of_a_row_depends_on_its_number_only():
    seed = torch.tensor([42])
    assert torch.equal(mask(seed, 3, 50, 0.5), mask(seed, 9, 80, 0.5)[:3, :50])


def test_the_threshold_is_the_probability_in_steps_of_2_to_the_minus_24():
    assert drop_threshold(0.0) == 0
    assert drop_threshold(0.5) == 2**23
    assert abs(drop_threshold(0.1) / 2**24 - 0.1) <= 2**-25


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_elements_are_independent(p):
    """Shares, rows, columns, pairs at many distances, and pairs of neighbouring seeds, all within 5 sigma."""
    rows, columns = 256, 1024
    masks = [mask(torch.tensor([seed]), rows, columns, p).double() - (1 - p) for seed in SEEDS]
    variance = p * (1 - p)

    def sigmas(products):
        return (products.sum() / (variance * products.numel() ** 0.5)).abs().item()

    for kept in masks:
        assert kept.sum().abs() <= 5 * (variance * kept.numel()) ** 0.5
        assert kept.sum(0).abs().max() <= 6 * (variance * rows) ** 0.5
        assert kept.sum(1).abs().max() <= 6 * (variance * columns) ** 0.5
        for distance in (1, 2, 3, 4, 8, 12, 16, 64, 128):
            assert sigmas(kept[:, distance:] * kept[:, :-distance]) <= 5
            assert sigmas(kept[distance:] * kept[:-distance]) <= 5
            assert sigmas(kept[distance:, distance:] * kept[:-distance, :-distance]) <= 5
    for first, second in pairwise(masks):
        assert sigmas(first * second) <= 5
