"""SwiGLU (Shazeer 2020): y = silu(gate) * up, of pairs of columns (gate, up) of x.

Shapes: x [..., 2f], y [..., f]. Fused, x is read and y written once, backward x and the gradient read and x's gradient
written: 3 and 5 elements of f. The fused form computes in float32 at least, and rounds once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kernels.registration import direct, triton


def swiglu(implementation: str, x: Tensor) -> Tensor:
    """Return y [..., f] for x [..., 2f]."""
    if implementation == "triton":
        y: Tensor = _fused(x)
        return y
    gate, up = x.contiguous().unflatten(-1, (-1, 2)).unbind(-1)
    return functional.silu(gate) * up


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        y: Tensor = _forward(x)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad_x: Tensor = _backward(grad, *ctx.saved_tensors)
        return grad_x


_forward, _backward = (triton("swiglu_triton", name) for name in ("forward", "backward"))
_fused = direct(_SwiGLU)
