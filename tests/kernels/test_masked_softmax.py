"""Softmax under a general mask against float64, fully masked rows."""

import torch
from hypothesis import strategies as st

from tests.kernels.cases import any_input, compare, each_implementation, operators, random

leading = st.lists(st.integers(1, 3), max_size=4)


def exact(scores, mask, scale):
    return torch.softmax((scores * scale).masked_fill(mask, -1e300), -1).masked_fill(mask, 0.0)


@any_input(
    leading=leading,
    q=st.integers(1, 12),
    k=st.integers(1, 40),
    broadcast=st.lists(st.booleans(), min_size=6, max_size=6),
    dropped=st.integers(0, 3),
    scale=st.sampled_from([1.0, 0.125, -0.5]),
)
def test_agrees_with_float64(
    implementation, dtype, device, leading, q, k, broadcast, dropped, scale, layout, seed, small
):
    make = random(seed, dtype, device)
    shape = (*leading, q, k)
    scores, grad = make(*shape, layout=layout), make(*shape, layout=layout)
    mask_shape = [1 if is_one else size for is_one, size in zip(broadcast, shape, strict=False)][dropped:]
    mask = make(*mask_shape, layout=layout if mask_shape else "contiguous") > 0  # half of it; whole rows too
    with operators(implementation, device, small) as kernels:
        size = 2 * abs(scale) * grad.abs().max().item()
        compare(
            lambda x: kernels.masked_softmax(x, mask, scale),
            lambda x: exact(x, mask, scale),
            [scores],
            grad,
            [1.0, size],
        )


@each_implementation
def test_a_row_masked_throughout_is_zero_and_so_is_its_gradient(implementation, device):
    scores = torch.randn(2, 3, 4, 5, device=device, requires_grad=True)
    mask = torch.zeros(2, 1, 4, 5, dtype=torch.bool, device=device)
    mask[1, 0, 2] = True
    with operators(implementation, device) as kernels:
        probs = kernels.masked_softmax(scores, mask, 0.5)
        probs.square().sum().backward()
    sums = probs.sum(-1)
    assert torch.equal(probs[1, :, 2], torch.zeros(3, 5, device=device))
    assert torch.equal(scores.grad[1, :, 2], torch.zeros(3, 5, device=device))
    sums[1, :, 2] += 1.0
    torch.testing.assert_close(sums, torch.ones_like(sums))
    assert torch.isfinite(scores.grad).all()


@each_implementation
def test_everything_masked_is_zero(implementation, device):
    with operators(implementation, device, small_tiles=True) as kernels:
        probs = kernels.masked_softmax(
            torch.randn(3, 40, device=device), torch.ones(1, dtype=torch.bool, device=device), 1.0
        )
    assert torch.equal(probs, torch.zeros(3, 40, device=device))


@each_implementation
def test_a_causal_mask_gives_causal_softmax(implementation, device):
    scores = torch.randn(2, 9, 9, device=device)
    mask = torch.ones(9, 9, dtype=torch.bool, device=device).triu(1)
    with operators(implementation, device) as kernels:
        torch.testing.assert_close(kernels.masked_softmax(scores, mask, 0.3), kernels.causal_softmax(scores, 0.3))
