"""The weighted sum of rows by their places, as experts' results are put together again.

    y[n] = sum over k of w[n, k] * rows[places[n, k]]

Shapes: rows [p, h], of which every one has one place; places [n, k], p = n*k; w [n, k] of any dtype, or none for ones;
y [n, h]. Fused, rows are read and y is written once, backward rows and y's gradient are read and the rows' gradient
written: k + 1 and 2k + 1 elements of h, where one operator after the other moves 3k + 1 and 5k + 1.
"""

from typing import Any

import torch
from torch import Tensor

from kernels.registration import direct, triton


def combine(implementation: str, rows: Tensor, weights: Tensor | None, places: Tensor) -> Tensor:
    """Return y [n, h]; without weights it has no gradient."""
    if implementation == "triton":
        y: Tensor = _forward(rows, None, places) if weights is None else _fused(rows, weights, places)
        return y
    pairs = rows.index_select(0, places.flatten()).view(*places.shape, rows.size(1))
    return pairs.sum(1) if weights is None else torch.bmm(weights.to(rows.dtype).unsqueeze(1), pairs).squeeze(1)


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weights, places)
        y: Tensor = _forward(rows, weights, places)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_rows, grad_weights = _backward(grad, *ctx.saved_tensors)
        return grad_rows, grad_weights, None


_forward, _backward = (triton("combine_triton", name) for name in ("forward", "backward"))
_fused = direct(_Combine)
