"""The weighted sum of rows by their places against a sum in float64 by hand, and its gradients."""

import pytest
import torch

from tests.kernels.cases import compare, each_dtype, operators, random

each = pytest.mark.parametrize("implementation", ["reference", "triton"])
shapes = pytest.mark.parametrize(("n", "k", "h"), [(1, 1, 1), (5, 2, 24), (3, 6, 17), (2, 2, 2500)])


def places_of(n, k, device):
    return torch.randperm(n * k, generator=torch.Generator().manual_seed(3)).view(n, k).to(device)


@each_dtype
@each
@shapes
def test_agrees_with_float64(implementation, dtype, device, n, k, h):
    make, places = random(9, dtype, device), places_of(n, k, device)
    rows, weights, grad = make(n * k, h), make(n, k), make(n, h)
    sizes = [k * 8.0, 4.0 * weights.abs().max().item() + 4, 16.0 * h**0.5 + 16]
    with operators(implementation, device) as kernels:
        compare(
            lambda rows, weights: kernels.combine(rows, weights, places),
            lambda rows, weights: (weights[:, :, None] * rows[places]).sum(1),
            [rows, weights],
            grad,
            sizes,
        )
        plain = kernels.combine(rows, None, places)
    torch.testing.assert_close(plain.double(), rows.double()[places].sum(1), rtol=2**-6, atol=2**-4)


@each
def test_weights_may_be_wider_than_rows_and_results_repeat(implementation, device):
    make, places = random(10, torch.bfloat16, device), places_of(6, 2, device)
    rows = make(12, 40).requires_grad_()
    weights = torch.rand(6, 2, device=device, requires_grad=True)
    with operators(implementation, device) as kernels:
        results = []
        for _ in range(2):
            y = kernels.combine(rows, weights, places)
            results.append((y, *torch.autograd.grad(y.float().square().sum(), (rows, weights))))
    assert [x.dtype for x in results[0]] == [torch.bfloat16, torch.bfloat16, torch.float32]
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))
