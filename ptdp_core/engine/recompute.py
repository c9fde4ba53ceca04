"""Activation recomputation (Section 3.5): only a block's inputs are kept, and it runs again in its backward pass.

A block is a number of layers, whose one input is the hidden state; or, with selective recomputation, the attention core
of a layer, whose inputs are queries, keys and values. The inputs may be distributed: every tensor rank keeps 1/t of
them, and gathers the whole before the block runs again.
"""

from collections.abc import Callable
from typing import Any

import torch

from ptdp_core.engine.groups import Axis


class _Recomputed(torch.autograd.Function):
    """Run a block without a graph, and build the graph in the backward pass, when the block runs again."""

    @staticmethod
    def forward(
        ctx: Any, block: Callable[..., torch.Tensor], distributed: Axis | None, *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.block, ctx.distributed, ctx.shapes = block, distributed, [x.shape for x in inputs]
        # A copy of the part: a view would keep the whole input alive.
        kept = inputs if distributed is None else (distributed.part(x).clone() for x in inputs)
        ctx.save_for_backward(*kept)
        return block(*inputs)  # gradients are off here

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        wholes = ctx.saved_tensors
        if ctx.distributed is not None:
            parts = zip(ctx.saved_tensors, ctx.shapes, strict=True)
            wholes = [ctx.distributed.all_gather(part).view(shape) for part, shape in parts]
        inputs = [whole.detach().requires_grad_() for whole in wholes]
        with torch.enable_grad():
            y = ctx.block(*inputs)
        torch.autograd.backward(y, grad)
        return None, None, *(x.grad for x in inputs)


def recomputed(
    block: Callable[..., torch.Tensor], *inputs: torch.Tensor, distributed: Axis | None = None
) -> torch.Tensor:
    """Return block(*inputs), of which only the inputs are stashed for the backward pass.

    With `distributed` each tensor rank stashes 1/t of each input. Random operators in the block must draw the same
    numbers when it runs again (see `rng_tracker`). Every input must require a gradient, as boundary tensors, embeddings
    and the outputs of linears do.
    """
    if not torch.is_grad_enabled():
        return block(*inputs)
    out: torch.Tensor = _Recomputed.apply(block, distributed, *inputs)
    return out
