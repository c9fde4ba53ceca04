"""Bias + dropout + residual add against float64."""

import torch
from hypothesis import strategies as st

from tests.kernels.cases import (
    any_input,
    compare,
    each_implementation,
    kept,
    operators,
    random,
    seeded,
    triton_slow,
)

leading = st.lists(st.integers(1, 5), max_size=3)


@any_input(leading=leading, h=st.integers(1, 200), p=st.sampled_from([0.0, 0.1, 0.5]))
def test_agrees_with_float64(implementation, dtype, device, leading, h, p, layout, seed, small):
    make = random(seed, dtype, device)
    x, residual, grad = (make(*leading, h, layout=layout) for _ in range(3))
    bias = make(h)
    with operators(implementation, device, small) as kernels:
        keep = kept(kernels, x, p, seed)
        size = sum(t.abs().max().item() for t in (x, bias, residual)) / (1 - p)
        slope = grad.double().abs() / (1 - p)
        compare(
            seeded(seed, lambda *tensors: kernels.bias_dropout_add(*tensors, p, True)),
            lambda x, bias, residual: residual + (x + bias) * keep / (1 - p),
            [x, bias, residual],
            grad,
            [size, slope.max(), slope.reshape(-1, h).sum(0), slope.max()],
        )


@each_implementation
def test_a_row_drops_what_dropout_drops(implementation, device):
    """It is dropout, from the same generator, of x + bias."""
    x, residual = torch.randn(9, 30, device=device), torch.randn(9, 30, device=device)
    bias = torch.randn(30, device=device)
    with operators(implementation, device) as kernels:
        torch.manual_seed(3)
        y = kernels.bias_dropout_add(x, bias, residual, 0.3, True)
        torch.manual_seed(3)
        wanted = residual + kernels.dropout(x + bias, 0.3)
    torch.testing.assert_close(y, wanted)


@triton_slow
def test_the_gradient_of_the_bias_is_not_summed_in_half_precision(implementation, device):
    x = torch.zeros(2000, 3, device=device, dtype=torch.bfloat16)
    bias = torch.zeros(3, device=device, dtype=torch.bfloat16, requires_grad=True)
    with operators(implementation, device) as kernels:
        kernels.bias_dropout_add(x, bias, x, 0.0, True).backward(torch.ones_like(x))
        assert bias.grad.tolist() == [2000.0] * 3
        bias.grad = None
        y = kernels.bias_dropout_add(x + 1, bias, x, 0.5, True)
        y.backward(torch.ones_like(x))
    torch.testing.assert_close(bias.grad.double(), y.double().sum(0), rtol=2**-7, atol=0)


@each_implementation
def test_without_training_no_number_is_drawn(implementation, device):
    x, bias = torch.randn(4, 5, device=device), torch.randn(5, device=device)
    with operators(implementation, device) as kernels:
        state = torch.get_rng_state()
        torch.testing.assert_close(kernels.bias_dropout_add(x, bias, x, 0.5, False), x + bias + x)
        assert torch.equal(torch.get_rng_state(), state)
