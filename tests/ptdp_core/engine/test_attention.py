"""Attention as operators in half precision, where products of queries and keys may be too large to be written."""

from types import SimpleNamespace

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
