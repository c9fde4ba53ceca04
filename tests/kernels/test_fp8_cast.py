"""A matrix rounded to FP8: the reference's scale and numbers, in rows and transposed, and no overflow hidden."""

import pytest
import torch

from kernels.fp8_cast import fp8_cast
from tests.kernels.cases import operators

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (70, 130)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_triton_gives_the_references_scale_and_numbers_in_both_orders(dtype, shape, kind, device):
    """Of numbers that the type has: the interpreter rounds others without a carry. A GPU gets any."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2)) * torch.logspace(-4, 2, shape[1])
    if device == "cpu":
        x = (x / x.abs().max() * torch.finfo(dtype).max).to(dtype).float() / 16
    x = x.to(device, kind)
    with operators("triton", device):
        plain, turned, scale = fp8_cast("triton", x, dtype, rows=True, transposed=True)
        none, only, _ = fp8_cast("triton", x, dtype, rows=False, transposed=True)
    expected, expected_turned, expected_scale = fp8_cast("reference", x, dtype, rows=True, transposed=True)
    assert scale == expected_scale
    assert none is None
    for ours, theirs in ((plain, expected), (turned, expected_turned), (only, expected_turned)):
        assert ours.is_contiguous()
        assert torch.equal(ours.float(), theirs.float())
    assert torch.equal(plain.float().t(), turned.float())


@pytest.mark.parametrize("implementation", ["reference", "triton"])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_an_overflow_is_not_hidden(implementation, value, device):
    if implementation == "triton" and device == "cpu":
        pytest.skip("the interpreter's FP8 has no NaN")
    x = torch.ones(4, 4, device=device)
    x[1, 2] = value
    with operators(implementation, device):
        plain, _, scale = fp8_cast(implementation, x, E4M3, rows=True, transposed=False)
    assert not (plain.float() * scale)[1, 2].isfinite()


def test_zeros_are_zeros():
    with operators("triton", "cpu"):
        plain, _, scale = fp8_cast("triton", torch.zeros(3, 4), E4M3, rows=True, transposed=False)
    assert scale > 0
    assert not plain.float().any()
