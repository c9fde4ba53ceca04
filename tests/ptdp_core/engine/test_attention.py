"""Attention as operators in half precision, where products of queries and keys may be too large to be written."""

from types import SimpleNamespace

import pytest
import torch

from kernels import select
from ptdp_core.engine.model import Attention


def test_scores_beyond_fp16_are_scaled_before_they_are_rounded():
    """|q.k| = 90,000 > 65,504; divided by sqrt(64) it is 11,250. Unscaled it is inf, and the softmax NaN."""
    s, b, d = 4, 1, 64
    q, k = torch.full((s, b, d), 37.5), torch.full((s, b, d), 37.5)
    k[2] = -37.5
    v = torch.arange(s * d, dtype=torch.float32).view(s, b, d) / 256
    build = SimpleNamespace(ops=select("reference"), dropout=0.0, products_add=False)
    attention = SimpleNamespace(build=build, heads=1, queries=1, training=False)
    half = Attention._with_operators(attention, q.half(), k.half(), v.half(), b)
    exact = Attention._with_operators(attention, q, k, v, b)
    assert torch.isfinite(half).all()
    torch.testing.assert_close(half.float(), exact, atol=2e-3, rtol=0)


@pytest.mark.parametrize("products_add", [False, True])
@pytest.mark.parametrize("queries", [4, 2])
@pytest.mark.parametrize("second", [1e30, -1e30])
def test_what_a_masked_score_overflows_to_is_not_read(products_add, queries, second):
    """Positions 0 and 2 may not see position 3, of which their scores are inf, or NaN as inf - inf."""
    s, d = 4, 8
    q, k, v = (torch.linspace(-1, 1, s * d).view(s, 1, d).roll(i, 2) for i in range(3))
    q[0, 0, :2] = q[2, 0, :2] = 1e30
    k[3, 0, :2] = torch.tensor([1e30, second])
    q, k, v = (x.clone().requires_grad_() for x in (q[-queries:], k, v))
    future = torch.full((s, s), -torch.inf).triu_(1)
    build = SimpleNamespace(ops=select("reference"), dropout=0.0, products_add=products_add, future=future)
    attention = SimpleNamespace(build=build, heads=1, queries=1, training=False)
    context = Attention._with_operators(attention, q, k, v, 1)
    scores = (q[:, 0] @ k[:, 0].t() / d**0.5).masked_fill(future[-queries:] < 0, -torch.inf)
    torch.testing.assert_close(context[:, 0], torch.softmax(scores, -1) @ v[:, 0])
    context.sum().backward()
    assert all(torch.isfinite(x.grad).all() for x in (q, k, v))
