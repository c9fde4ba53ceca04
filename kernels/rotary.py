"""Queries, keys and values out of one projection, the first two turned by rotary positions (Su et al. 2021).

Elements i and i + d/2 of each head are turned by the angle of its position: (a, b) -> (a cos - b sin, b cos + a sin).

Shapes: heads [s, n, q + 2, d], of each of n groups q queries, a key and a value; cos and sin [s, 1, d/2]; queries
[s, n*q, d], keys and values [s, n, d]. Fused, queries and keys are read and written once, values stay where they are,
and the backward pass reads and writes all once: in float32 at least, rounded once.
"""

from typing import Any

import torch
from torch import Tensor

from kernels.registration import direct, triton


def rotary(implementation: str, heads: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return turned queries and keys, and values."""
    if implementation == "triton":
        q, k, v = _fused(heads, cos, sin)
        return q, k, v
    q, k, v = queries_keys_values(heads)
    return turned(q, cos, sin), turned(k, cos, sin), v


def queries_keys_values(heads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [s, n*q, d], keys and values [s, n, d]; copies only where several queries share a key.

    Of a query each n may be several dimensions.
    """
    *queries, k, v = heads.unbind(-2)
    q = queries[0] if len(queries) == 1 else torch.stack(queries, 2).view(heads.size(0), -1, heads.size(3))
    return q, k, v


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The heads x [s, n, d], turned by the angles of their positions."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class _Rotary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        q, k = _forward(heads, cos, sin)
        return q, k, heads[:, :, -1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _backward(*grads, *ctx.saved_tensors), None, None


_forward, _backward = (triton("rotary_triton", name) for name in ("forward", "backward"))
_fused = direct(_Rotary)
