"""Scale, general mask and softmax in one operator (Section 4.2): the attention of BERT.

    probs[..., i, j] = softmax over the j that are not masked of (scale * scores[..., i, j]);  0 where masked

Shapes: scores [..., q, k], mask bool, broadcastable to it (typically [b, 1, q, k]), True where masked out.
A row that is masked throughout has probabilities 0 and gradients 0: such a position attends to nothing. (The
paper's code filled masked scores with -10000 instead, which makes such a row attend to everything, its future
included.) Scores that are not masked must be finite. Softmax runs in float32 (float64 for float64 input).
"""

import torch
from torch import Tensor

from kernels import checks
from kernels.causal_softmax import formula_backward, save_probs, scores_gradient
from kernels.layout import accumulation_dtype, matrices, stacked_matrices
from kernels.registration import Operator, compiled, triton


def masked_softmax(implementation: str, device: torch.device, scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Check the input and return the probabilities [..., q, k] of `scores` [..., q, k] under `mask`.

    Raises `TypeError` or `ValueError` for a mask that is not bool or does not broadcast, and for a scale that is not
    finite.
    """
    checks.floating("scores", scores, device)
    checks.mask("mask", mask, "scores", scores)
    checks.scale(scale)
    return OPERATOR(implementation, scores, mask, float(scale))


# Reference: the chain of PyTorch operators that the fused ones replace.


def reference(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The formula in eager operators, one for each of cast, scale, mask, softmax, cast back and the empty rows."""
    scaled = scores.contiguous().to(accumulation_dtype(scores.dtype)) * scale
    probs = torch.softmax(scaled.masked_fill_(mask, -torch.inf), -1).to(scores.dtype)
    return probs.masked_fill(mask, 0.0)  # changes only rows that are masked throughout: they are NaN so far


# Compiled: the same formulas, for torch.compile to fuse.


def formula_forward(scores: Tensor, addend: Tensor, scale: float) -> Tensor:
    """The probabilities of scores [n, m, q, k]; `addend` [n, m, q, k] is -inf where masked and 0 elsewhere."""
    scaled = scores.to(addend.dtype) * scale + addend
    peak = scaled.amax(-1, keepdim=True)
    exponentials = torch.exp(scaled - torch.where(peak == -torch.inf, 0.0, peak))
    total = exponentials.sum(-1, keepdim=True)  # 0 in rows that are masked throughout
    return (exponentials * (1.0 / torch.where(total == 0.0, 1.0, total))).to(scores.dtype)


_compiled_forward = compiled(formula_forward)
_compiled_backward = compiled(formula_backward)


def compiled_forward(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The probabilities [..., q, k] by the compiled `formula_forward`."""
    # A separate pass over the mask alone, which all heads share: on a CPU, selecting by a bool inside the loop
    # costs several times what the rest does.
    wide = accumulation_dtype(scores.dtype)
    addend = torch.zeros(mask.shape, dtype=wide, device=mask.device).masked_fill_(mask, -torch.inf)
    addend = stacked_matrices(addend.expand(scores.shape))
    probs: Tensor = _compiled_forward(stacked_matrices(scores.contiguous()), addend, scale)
    return probs.view(scores.shape)


def compiled_backward(grad: Tensor, probs: Tensor, scale: float) -> Tensor:
    """The gradient of the scores [..., q, k] by the compiled `formula_backward` of `causal_softmax`."""
    grad_scores: Tensor = _compiled_backward(matrices(grad), matrices(probs), scale)
    return grad_scores.view(grad.shape)


# Registration, with what `causal_softmax` keeps for the same backward pass.

OPERATOR = Operator(
    "masked_softmax",
    reference,
    {
        "compiled": (compiled_forward, compiled_backward),
        "triton": (triton("softmax_triton", "masked_forward"), triton("softmax_triton", "masked_backward")),
    },
    save_probs,
    scores_gradient,
)
