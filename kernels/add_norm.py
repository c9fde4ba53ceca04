"""The residual connection and the norm behind it, layer normalisation or RMSNorm, which read and write once together.

    y = residual + x + bias,   n = (y - mean) / sqrt(variance + eps) * weight + shift    or    y / rms(y) * weight

Shapes: x, residual, y and n [..., h]; bias, weight and shift [h]. Without a shift it is RMSNorm, without a residual y
is x. The gradient of y, by which the residual connection goes on, is added to that of the norm. The fused form computes
in float32 (float64 for float64 input), rounds y once, and keeps y and two numbers a row: backward normalises it again.
In elements of h it moves 4 forward and 4 backward, without a residual 2 and 4; one after the other that is 5 and 7, or
2 and 6.
"""

from typing import Any

import torch
from torch import Tensor

from kernels.registration import direct, triton

LARGEST = 8192  # columns of the fused form, whose programs hold a whole row


class _AddNorm(torch.autograd.Function):
    """See the formula; outputs y and n."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        weight: Tensor,
        shift: Tensor | None,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        y, normed, moments = _forward(x, bias, residual, weight, shift, eps)
        ctx.save_for_backward(y, weight, moments)
        ctx.has = bias is not None, residual is not None
        ctx.set_materialize_grads(False)
        return (y if residual is not None else x.view_as(x)), normed

    @staticmethod
    def backward(ctx: Any, skip: Tensor | None, grad: Tensor) -> tuple[Tensor | None, ...]:
        has_bias, has_residual = ctx.has
        grad_x, of_weight, of_shift, of_bias = _backward(grad, skip, *ctx.saved_tensors, has_bias)
        return grad_x, of_bias, grad_x if has_residual else None, of_weight, of_shift, None


_forward, _backward = (triton("add_norm_triton", name) for name in ("forward", "backward"))
fused = direct(_AddNorm)
