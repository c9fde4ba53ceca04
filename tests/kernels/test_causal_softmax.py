"""Causal softmax against float64, and what it refuses."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import select
from tests.kernels.cases import (
    EXAMPLES,
    compare,
    each_dtype,
    each_implementation,
    layouts,
    operators,
    random,
    seeds,
    small,
)

leading = st.lists(st.integers(1, 3), max_size=3)


def exact(scores, scale):
    s = scores.shape[-1]
    hidden = torch.ones(s, s, dtype=torch.bool, device=scores.device).triu(1)
    return torch.softmax((scores * scale).masked_fill(hidden, -torch.inf), -1)


@each_dtype
@each_implementation
@given(
    leading=leading,
    s=st.integers(1, 40),
    scale=st.sampled_from([1.0, 0.125, -0.5]),
    layout=layouts,
    seed=seeds,
    small=small,
)
@EXAMPLES
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


def test_refuses_rectangles():
    with pytest.raises(ValueError, match=r"scores=\[2, 3, 4\] float32 on cpu; needs shape \[\.\.\., s, s\]"):
        select("reference").causal_softmax(torch.zeros(2, 3, 4), 1.0)


def test_refuses_vectors():
    with pytest.raises(ValueError, match=r"scores=\[4\] float32 on cpu; needs shape"):
        select("reference").causal_softmax(torch.zeros(4), 1.0)


def test_refuses_integers():
    with pytest.raises(TypeError, match=r"scores=\[2, 2\] int64 on cpu; needs dtype float64"):
        select("reference").causal_softmax(torch.zeros(2, 2, dtype=torch.int64), 1.0)


def test_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match=r"scores=\[\[0\.0\]\] is a list; needs a tensor"):
        select("reference").causal_softmax([[0.0]], 1.0)


def test_refuses_empty_input():
    with pytest.raises(ValueError, match=r"scores=\[0, 2, 2\] float32 on cpu; needs at least one"):
        select("reference").causal_softmax(torch.zeros(0, 2, 2), 1.0)


def test_refuses_other_devices():
    with pytest.raises(ValueError, match=r"scores=\[2, 2\] float32 on meta; needs device cpu"):
        select("reference").causal_softmax(torch.zeros(2, 2, device="meta"), 1.0)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_refuses_a_scale_that_is_not_finite(scale):
    with pytest.raises(ValueError, match=rf"scale={scale} is not finite; needs"):
        select("reference").causal_softmax(torch.zeros(2, 2), scale)


def test_refuses_a_scale_that_is_no_number():
    with pytest.raises(TypeError, match=r"scale='1' is a str; needs a number"):
        select("reference").causal_softmax(torch.zeros(2, 2), "1")
