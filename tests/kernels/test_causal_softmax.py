"""Causal softmax against float64."""

import torch
from hypothesis import strategies as st

from tests.kernels.cases import any_input, compare, each_implementation, operators, random

leading = st.lists(st.integers(1, 3), max_size=3)


def exact(scores, scale):
    s = scores.shape[-1]
    hidden = torch.ones(s, s, dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax((scores * scale).masked_fill(hidden, -torch.inf), -1)


@any_input(leading=leading, s=st.integers(1, 40), scale=st.sampled_from([1.0, 0.125, -0.5]))
def test_agrees_with_float64(implementation, dtype, device, leading, s, scale, layout, seed, small):
    make = random(seed, dtype, device)
    scores, grad = make(*leading, s, s, layout=layout), make(*leading, s, s, layout=layout)
    with operators(implementation, device, small) as kernels:
        size = 2 * abs(scale) * grad.abs().max().item()
        compare(lambda x: kernels.causal_softmax(x, scale), lambda x: exact(x, scale), [scores], grad, [1.0, size])


@each_implementation
def test_large_scores_neither_overflow_nor_lose_the_row(implementation, device):
    scores = torch.tensor([[0.0, 9.0], [60000.0, 60000.0]], dtype=torch.float16, device=device)
    with operators(implementation, device) as kernels:
        probs = kernels.causal_softmax(scores, 8.0)
    assert probs.tolist() == [[1.0, 0.0], [0.5, 0.5]]


@each_implementation
def test_future_scores_have_no_influence_and_no_gradient(implementation, device):
    """Not even infinities and NaN: they are behind the mask."""
    scores = torch.randn(5, 5, device=device)
    spoilt = scores + torch.full_like(scores, torch.nan).triu(1).nan_to_num(nan=torch.inf)
    with operators(implementation, device) as kernels:
        spoilt.requires_grad_()
        probs = kernels.causal_softmax(spoilt, 1.0)
        probs.pow(2).sum().backward()
        assert torch.equal(probs, kernels.causal_softmax(scores, 1.0))
    assert torch.equal(spoilt.grad.triu(1), torch.zeros_like(scores))
