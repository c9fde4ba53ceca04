"""Bias, dropout and residual addition in one operator (Section 4.2): the end of attention and of the MLP.

    y = residual + keep * (x + bias) / (1 - p)

Shapes: x and residual [..., h], bias [h], y like x. The fused implementations compute in float32 (float64 for float64
input) and round once. For backward they keep the seed only: the gradient of the residual is that of y, the gradient of
x is that of y under the same mask, and its sum over all rows is that of the bias. The reference keeps PyTorch's mask.
"""

from typing import Any

import torch
from torch import Tensor

from kernels import checks
from kernels.dropout import compiled_keys
from kernels.dropout_mask import Keys, draw_seed, keep_mask
from kernels.layout import accumulation_dtype, rows
from kernels.registration import Operator, compiled, triton


def bias_dropout_add(
    implementation: str, device: torch.device, x: Tensor, bias: Tensor, residual: Tensor, p: float, training: bool
) -> Tensor:
    """Check the input and return y [..., h] = residual + dropout(x + bias), without dropout if not `training`.

    Raises `TypeError` or `ValueError` for input that the formula at the top of this file does not cover.
    """
    checks.operands(device, x, {"bias": bias}, residual=residual)
    if p:
        checks.probability(p)
    p = float(p) if training else 0.0
    if implementation == "reference":
        return OPERATOR(implementation, x, bias, residual, p)
    return OPERATOR(implementation, x, bias, residual, draw_seed(x) if p else None, p)


# Reference: the chain of PyTorch operators that the fused ones replace.


def reference(x: Tensor, bias: Tensor, residual: Tensor, p: float) -> Tensor:
    """The formula in three eager operators, each of which rounds to the dtype of x [..., h]."""
    biased = x.contiguous() + bias
    return residual.contiguous() + (torch.nn.functional.dropout(biased, p) if p else biased)


# Compiled: the same formulas, for torch.compile to fuse.


def formula_forward(x: Tensor, bias: Tensor, residual: Tensor, keys: Keys | None, p: float) -> Tensor:
    """The formula for x and residual [n, h] and bias [h]; `keys` are those of the mask, None without dropout."""
    wide = accumulation_dtype(x.dtype)
    biased = x.to(wide) + bias.to(wide)
    if keys is not None:
        biased = torch.where(keep_mask(keys, p), biased * (1.0 / (1.0 - p)), 0.0)
    return (residual.to(wide) + biased).to(x.dtype)


def formula_backward(grad: Tensor, keys: Keys, p: float) -> tuple[Tensor, Tensor]:
    """The gradients of x [n, h] and of the bias [h] from that of y, under the forward pass's mask."""
    wide = accumulation_dtype(grad.dtype)
    grad_x = torch.where(keep_mask(keys, p), grad.to(wide) * (1.0 / (1.0 - p)), 0.0).to(grad.dtype)
    return grad_x, grad_x.sum(0, dtype=wide).to(grad.dtype)  # reading grad_x is cheaper than a second mask


_compiled_forward = compiled(formula_forward)
_compiled_backward = compiled(formula_backward)


def compiled_forward(x: Tensor, bias: Tensor, residual: Tensor, seed: Tensor | None, p: float) -> Tensor:
    """y [..., h] by the compiled `formula_forward`; without a `seed`, without dropout."""
    flat = rows(x)
    keys = None if seed is None else compiled_keys(seed, *flat.shape)
    y: Tensor = _compiled_forward(flat, bias.contiguous(), rows(residual), keys, p)
    return y.view(x.shape)


def compiled_backward(grad: Tensor, seed: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The gradients of x [..., h] and of the bias [h] by the compiled `formula_backward`."""
    flat = rows(grad)
    grad_x, grad_bias = _compiled_backward(flat, compiled_keys(seed, *flat.shape), p)
    return grad_x.view(grad.shape), grad_bias


# Registration.


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *_, seed, ctx.p = inputs
    ctx.save_for_backward(seed)


def _gradients(backward: Any, ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    (seed,) = ctx.saved_tensors
    if seed is None:  # without dropout x and the residual get y's gradient as it is
        return grad, rows(grad).sum(0), grad
    grad_x, grad_bias = backward(grad, seed, ctx.p)
    return grad_x, grad_bias, grad


OPERATOR = Operator(
    "bias_dropout_add",
    reference,
    {
        "compiled": (compiled_forward, compiled_backward),
        "triton": (triton("dropout_triton", "bias_dropout_add"), triton("dropout_triton", "bias_dropout_add_backward")),
    },
    _save,
    _gradients,
)
