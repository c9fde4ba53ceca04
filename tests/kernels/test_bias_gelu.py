"""Bias + GeLU against float64."""

import torch
from hypothesis import strategies as st

from tests.kernels.cases import any_input, compare, each_implementation, operators, random, triton_slow

leading = st.lists(st.integers(1, 5), max_size=3)


def exact(x, bias):
    return torch.nn.functional.gelu(x + bias, approximate="tanh")


@any_input(leading=leading, h=st.integers(1, 200))
def test_agrees_with_float64(implementation, dtype, device, leading, h, layout, seed, small):
    make = random(seed, dtype, device)
    x, bias, grad = make(*leading, h, layout=layout), make(h), make(*leading, h, layout=layout)
    with operators(implementation, device, small) as kernels:
        largest = 1.0 + (x.abs().max() + bias.abs().max()).item()  # of what the reference rounds between its steps
        slope = largest * grad.double().abs()
        sizes = [largest, slope.max(), slope.reshape(-1, h).sum(0)]
        compare(kernels.bias_gelu, exact, [x, bias], grad, sizes)


@each_implementation
def test_far_out_it_is_the_identity_or_zero(implementation, device):
    x = torch.tensor([-1e4, -50.0, 50.0, 1e4], device=device, dtype=torch.float16, requires_grad=True)
    bias = torch.zeros(4, device=device, dtype=torch.float16)
    with operators(implementation, device) as kernels:
        y = kernels.bias_gelu(x, bias)
        y.sum().backward()
    assert y.tolist() == [0.0, 0.0, 50.0, 1e4]
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 1.0]


@triton_slow
def test_the_gradient_of_the_bias_is_not_summed_in_half_precision(implementation, device):
    """In bfloat16 a running sum of ones stops at 256."""
    x = torch.full((2000, 3), 30.0, device=device, dtype=torch.bfloat16)
    bias = torch.zeros(3, device=device, dtype=torch.bfloat16, requires_grad=True)
    with operators(implementation, device) as kernels:
        kernels.bias_gelu(x, bias).backward(torch.ones_like(x))
    assert bias.grad.tolist() == [2000.0] * 3
