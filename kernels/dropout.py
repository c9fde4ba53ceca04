"""Dropout whose mask is computed from a seed: the attention dropout.

    y = keep * x / (1 - p)

Shapes: x [...], y alike. Backward applies the same mask to the gradient, so it is the same function with the same seed,
which is all that the fused implementations keep for it; the reference is PyTorch's dropout, which keeps the mask.
"""

from typing import Any

import torch
from torch import Tensor

from kernels import checks
from kernels.dropout_mask import Keys, draw_seed, keep_mask, mask_keys
from kernels.layout import accumulation_dtype, rows
from kernels.registration import Operator, compiled, triton


def dropout(implementation: str, device: torch.device, x: Tensor, p: float, training: bool) -> Tensor:
    """Return x [...] with each element dropped with probability `p`; `x` itself if not `training` or p is 0.

    Raises `TypeError` or `ValueError` for input that is not a floating-point tensor, and for p outside [0, 1).
    """
    checks.floating("x", x, device)
    checks.probability(p)
    if not training or p == 0.0:
        return x
    if implementation == "reference":
        return OPERATOR(implementation, x, float(p))
    return OPERATOR(implementation, x, draw_seed(x), float(p))


# Reference: PyTorch's own dropout.


def reference(x: Tensor, p: float) -> Tensor:
    """PyTorch's dropout of x [...], which draws its mask from the default generator and stores it for backward."""
    return torch.nn.functional.dropout(x.contiguous(), p)


# Compiled: the same formula, for torch.compile to fuse.


def formula(x: Tensor, keys: Keys, p: float) -> Tensor:
    """The formula for x [n, h], in float32 at least, under the mask of `keys`."""
    kept = x.to(accumulation_dtype(x.dtype)) * (1.0 / (1.0 - p))
    return torch.where(keep_mask(keys, p), kept, 0.0).to(x.dtype)


compiled_keys = compiled(mask_keys)
_compiled = compiled(formula)


def compiled_forward(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """y [...] by the compiled `formula`; applied to a gradient it is the backward pass."""
    flat = rows(x)
    y: Tensor = _compiled(flat, compiled_keys(seed, *flat.shape), p)
    return y.view(x.shape)


# Registration. Backward is forward, applied to the gradient.


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, seed, ctx.p = inputs
    ctx.save_for_backward(seed)


def _gradients(backward: Any, ctx: Any, grad: Tensor) -> tuple[Tensor]:
    return (backward(grad, *ctx.saved_tensors, ctx.p),)


OPERATOR = Operator(
    "dropout",
    reference,
    {
        "compiled": (compiled_forward, compiled_forward),
        "triton": (triton("dropout_triton", "dropout"), triton("dropout_triton", "dropout")),
    },
    _save,
    _gradients,
)
