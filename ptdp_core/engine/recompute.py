"""Activation recomputation (Section 3.5): only a block's input is kept, and the block runs again in its backward pass.

The input may be distributed: every tensor rank keeps 1/t of it, and gathers the whole before the block runs again.
"""

from collections.abc import Callable
from typing import Any

import torch

from ptdp_core.engine.groups import Axis


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, block: Callable[[torch.Tensor], torch.Tensor], distributed: Axis | None
    ) -> torch.Tensor:
        ctx.block, ctx.distributed, ctx.shape = block, distributed, x.shape
        ctx.save_for_backward(x if distributed is None else distributed.part(x).clone())
        return block(x)  # gradients are off here

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, None]:
        (stash,) = ctx.saved_tensors
        whole = stash if ctx.distributed is None else ctx.distributed.all_gather(stash).view(ctx.shape)
        x = whole.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        torch.autograd.backward(y, grad)
        return x.grad, None, None


def recomputed(
    block: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, distributed: Axis | None = None
) -> torch.Tensor:
    """block(x), of which only x is stashed for the backward pass, or 1/t of x if given an axis to distribute it over.

    Random operators in the block must draw the same numbers when it runs again (see `rng_tracker`). `x` must require a
    gradient, as every boundary tensor and embedding does.
    """
    if not torch.is_grad_enabled():
        return block(x)
    out: torch.Tensor = _Recomputed.apply(x, block, distributed)
    return out
