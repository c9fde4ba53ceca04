"""Layer normalisation is PyTorch's; its arguments are checked as those of the other operators."""

import torch

from kernels.layer_norm import formula
from tests.kernels.cases import each_dtype, each_implementation, epsilon, operators


@each_dtype
@each_implementation
def test_agrees_with_the_formula(implementation, dtype, device):
    x = torch.randn(3, 2, 17, device=device).to(dtype).requires_grad_()
    weight, bias = torch.randn(2, 17, device=device).to(dtype).unbind()
    with operators(implementation, device) as kernels:
        y = kernels.layer_norm(x, weight, bias, 1e-5)
        y.sum().backward()
    exact = formula(x.double(), weight.double(), bias.double(), 1e-5)
    torch.testing.assert_close(y.double(), exact, rtol=4 * epsilon(dtype), atol=8 * epsilon(dtype))
    assert x.grad.shape == x.shape
