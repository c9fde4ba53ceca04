"""Activation recomputation (Section 3.5): keep a block's input only, run the block again just before its backward."""

from collections.abc import Callable
from typing import Any

import torch


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, block: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        ctx.block = block
        ctx.save_for_backward(x)
        return block(x)  # gradients are off here

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        (stash,) = ctx.saved_tensors
        x = stash.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        torch.autograd.backward(y, grad)
        return x.grad, None


def recomputed(block: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """block(x), with only x stashed for its backward pass.

    Random operators in the block must depend on nothing that has moved on by then (`rng_tracker.py`). `x` has to
    require a gradient, as every boundary tensor and embedding does.
    """
    if not torch.is_grad_enabled():
        return block(x)
    out: torch.Tensor = _Recomputed.apply(x, block)
    return out
