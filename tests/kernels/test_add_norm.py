"""The residual connection with the norm behind it against float64, and what it moves."""

import pytest
import torch
from torch.nn import functional

from tests.kernels.cases import each_dtype, operators, random

FORMS = [(bias, residual, shift) for residual in (True, False) for shift in (True, False) for bias in (residual, False)]


def exact(x, bias, residual, weight, shift):
    y = x if residual is None else residual + (x if bias is None else x + bias)
    h = weight.shape
    return y, functional.rms_norm(y, h, weight, 1e-5) if shift is None else functional.layer_norm(
        y, h, weight, shift, 1e-5
    )


def results(function, inputs, grads):
    leaves = [None if x is None else x.detach().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    gradients = torch.autograd.grad(outputs, [x for x in leaves if x is not None], grads)
    return [*(y.detach() for y in outputs), *gradients]


@each_dtype
@pytest.mark.parametrize("implementation", ["reference", "triton"])
@pytest.mark.parametrize(("has_bias", "has_residual", "has_shift"), sorted(set(FORMS)))
@pytest.mark.parametrize("shape", [(1, 1), (3, 2, 17), (37, 64)])
def test_agrees_with_float64(implementation, dtype, device, has_bias, has_residual, has_shift, shape):
    """Within rounding at each step: 2^-6 in bfloat16, which Triton's interpreter truncates to, 1e-5 in float32."""
    make = random(5, dtype, device)
    (*_, h), vector = shape, lambda wanted: make(h) if wanted else None
    inputs = make(*shape), vector(has_bias), make(*shape) if has_residual else None, make(h), vector(has_shift)
    grads = make(*shape, layout="transposed"), make(*shape)
    wanted = results(exact, [None if x is None else x.double() for x in inputs], [g.double() for g in grads])
    with operators(implementation, device, small_tiles=True) as kernels:
        ours = results(lambda *arguments: kernels.add_norm(*arguments, 1e-5), inputs, grads)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5}.get(dtype, 2**-6)
    scale = 300.0 if h == 1 and has_shift else 1.0  # one column over sqrt(eps): its error is magnified as its gradient
    for x, y in zip(ours, wanted, strict=True):
        assert x.dtype == dtype
        size = max(1.0, y.abs().max().item())
        torch.testing.assert_close(x.double(), y, rtol=0, atol=8 * scale * tolerance * size)


@pytest.mark.parametrize("implementation", ["reference", "triton"])
def test_without_a_residual_the_sum_is_the_input_and_is_kept_once(implementation, device):
    x, weight = torch.randn(3, 8, device=device, requires_grad=True), torch.ones(8, device=device, requires_grad=True)
    with operators(implementation, device) as kernels:
        y, normed = kernels.add_norm(x, None, None, weight, None, 1e-5)
        (gradient,) = torch.autograd.grad(normed.sum(), x)  # the sum's gradient is none, not zeros
    assert y.data_ptr() == x.data_ptr()
    assert gradient.shape == x.shape


def test_rows_too_long_for_a_program_are_pytorch_s(device):
    x, weight = torch.randn(2, 8193, device=device), torch.ones(8193, device=device)
    with operators("triton", device) as kernels:
        _, normed = kernels.add_norm(x, None, x, weight, None, 1e-5)
    torch.testing.assert_close(normed, functional.rms_norm(2 * x, (8193,), weight, 1e-5))


@pytest.mark.parametrize("h", [64, 300, 1100])  # 1100 in blocks of 1024 and of 128, of which a part is beyond
def test_a_program_may_walk_down_many_rows(h, device, monkeypatch):
    make = random(6, torch.float32, device)
    inputs, grads = (make(37, h), make(h), make(37, h), make(h), make(h)), (make(37, h), make(37, h))
    wanted = results(exact, [x.double() for x in inputs], [g.double() for g in grads])
    with operators("triton", device) as kernels:
        monkeypatch.setattr("kernels.add_norm_triton.WARPS", 2)
        ours = results(lambda *arguments: kernels.add_norm(*arguments, 1e-5), inputs, grads)
        again = results(lambda *arguments: kernels.add_norm(*arguments, 1e-5), inputs, grads)
    for x, y, repeated in zip(ours, wanted, again, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=0, atol=1e-5 * max(1.0, y.abs().max().item()))
        assert torch.equal(x, repeated)
