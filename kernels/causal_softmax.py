"""Scale, implicit causal mask and softmax in one operator (Section 4.2): the attention of GPT.

    probs[..., i, j] = softmax over j <= i of (scale * scores[..., i, j]);  0 where j > i

Shapes: scores [..., s, s], probs alike. No mask is read, and the fused kernels do not read the upper triangle.
Softmax runs in float32 (float64 for float64 input). Fused backward keeps the probabilities only:

    d scores = scale * probs * (d probs - sum_j(d probs * probs))
"""

from typing import Any

import torch
from torch import Tensor

from kernels import checks
from kernels.layout import accumulation_dtype, matrices
from kernels.registration import Operator, compiled, triton


def causal_softmax(implementation: str, device: torch.device, scores: Tensor, scale: float) -> Tensor:
    """Check the input and return the probabilities [..., s, s] of `scores` [..., s, s].

    Raises `TypeError` or `ValueError` for scores that are not square, and for a scale that is not finite.
    """
    checks.floating("scores", scores, device)
    checks.square("scores", scores)
    checks.scale(scale)
    return OPERATOR(implementation, scores, float(scale))


# Reference: the chain of PyTorch operators that the fused ones replace.


def reference(scores: Tensor, scale: float) -> Tensor:
    """The formula in eager operators, one for each of cast, scale (unless it is 1), mask, softmax and cast back."""
    s = scores.shape[-1]
    above_diagonal = torch.ones(s, s, dtype=torch.bool, device=scores.device).triu_(1)
    scaled = scores.contiguous().to(accumulation_dtype(scores.dtype))
    if scale != 1:
        scaled = scaled * scale
    return torch.softmax(scaled.masked_fill(above_diagonal, -torch.inf), -1).to(scores.dtype)


# Compiled: the same formulas, for torch.compile to fuse.


def formula_forward(scores: Tensor, scale: float) -> Tensor:
    """The probabilities of scores [n, s, s], in float32 at least."""
    column = torch.arange(scores.shape[-1], device=scores.device)
    scaled = scores.to(accumulation_dtype(scores.dtype)) * scale
    return torch.softmax(torch.where(column <= column[:, None], scaled, -torch.inf), -1).to(scores.dtype)


def formula_backward(grad: Tensor, probs: Tensor, scale: float) -> Tensor:
    """The gradient of scores [n, q, k] from that of the probabilities; masked elements get 0, as probs are 0 there."""
    wide = accumulation_dtype(probs.dtype)
    product = grad.to(wide) * probs.to(wide)
    return ((product - probs.to(wide) * product.sum(-1, keepdim=True)) * scale).to(probs.dtype)


_compiled_forward = compiled(formula_forward)
_compiled_backward = compiled(formula_backward)


def compiled_forward(scores: Tensor, scale: float) -> Tensor:
    """The probabilities [..., s, s] by the compiled `formula_forward`."""
    probs: Tensor = _compiled_forward(matrices(scores), scale)
    return probs.view(scores.shape)


def compiled_backward(grad: Tensor, probs: Tensor, scale: float) -> Tensor:
    """The gradient of the scores [..., s, s] by the compiled `formula_backward`."""
    grad_scores: Tensor = _compiled_backward(matrices(grad), matrices(probs), scale)
    return grad_scores.view(grad.shape)


# Registration.


def save_probs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what a softmax's backward pass needs: its output, and the scale, the last input."""
    ctx.save_for_backward(output)
    *_, ctx.scale = inputs


def scores_gradient(backward: Any, ctx: Any, grad: Tensor) -> tuple[Tensor]:
    """The gradient of the scores; a mask and the scale have none."""
    return (backward(grad, *ctx.saved_tensors, ctx.scale),)


OPERATOR = Operator(
    "causal_softmax",
    reference,
    {
        "compiled": (compiled_forward, compiled_backward),
        "triton": (triton("softmax_triton", "causal_forward"), triton("softmax_triton", "causal_backward")),
    },
    save_probs,
    scores_gradient,
)
