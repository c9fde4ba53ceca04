"""Tensor parallelism (Section 2.3): f and g, linears split by columns and rows, embedding and loss by vocabulary.

f is the identity forward and an all-reduce backward, g the reverse (Figure 5). A transformer layer runs each of them
twice: two all-reduces forward and two backward.

Shapes: S sequence, B microbatch, H hidden, F any output features, V vocabulary; a `t` after a letter: this rank's 1/t.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from ptdp_core.engine.groups import Axis
from ptdp_core.engine.parameters import ParameterStore
from ptdp_core.engine.weight_gradients import DeferredWgrad, WeightGradients


class _Linear(torch.autograd.Function):
    """x W^T + bias. Backward ends with f's all-reduce if `tp` is given: it finds the input's gradient in a tensor of
    its own, where an all-reduce in place cannot touch what also belongs to the residual branch. `gradients` computes
    the weight's gradient, or defers it."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        tp: Axis | None,
        gradients: WeightGradients,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.tp, ctx.gradients, ctx.has_bias = tp, gradients, bias is not None
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_2 = grad.reshape(-1, grad.size(-1))
        x_2 = x.reshape(-1, x.size(-1))
        grad_x = (grad_2 @ weight).view(x.shape)
        if ctx.tp is not None:
            ctx.tp.all_reduce(grad_x)
        grad_weight = ctx.gradients.compute(DeferredWgrad(weight, grad_2, x_2))
        return grad_x, grad_weight, grad_2.sum(0) if ctx.has_bias else None, None, None


class _G(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: Axis) -> torch.Tensor:
        ctx.mark_dirty(x)
        return tp.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: Axis) -> torch.Tensor:
        ctx.tp, ctx.shape = tp, x.shape
        return tp.part(x).clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.tp.all_gather(grad).view(ctx.shape), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: torch.Size, tp: Axis) -> torch.Tensor:
        ctx.tp = tp
        return tp.all_gather(x).view(shape)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.tp.part(grad).clone(), None, None


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, tp: Axis | None, gradients: WeightGradients
) -> torch.Tensor:
    """x W^T + bias; with `tp`, x enters a split region here, which is f of Figure 5: all-reduce backward."""
    reduced = tp if tp is not None and tp.size > 1 else None
    if reduced is None and not gradients.accumulate and not gradients.split:
        return functional.linear(x, weight, bias)
    out: torch.Tensor = _Linear.apply(x, weight, bias, reduced, gradients)
    return out


def g(x: torch.Tensor, tp: Axis) -> torch.Tensor:
    """All-reduce forward, in place; identity backward (Figure 5): where partial sums leave a split region."""
    return _G.apply(x, tp) if tp.size > 1 else x


def split(x: torch.Tensor, tp: Axis) -> torch.Tensor:
    """Replicated x -> this rank's flat 1/t of it; all-gather backward: the scatter of Section 4.1.

    Every rank has the same x and the same gradient of it, so nothing is summed.
    """
    return _Split.apply(x, tp) if tp.size > 1 else x


def gather(x: torch.Tensor, shape: torch.Size | tuple[int, ...], tp: Axis) -> torch.Tensor:
    """Flat parts -> the whole tensor on every rank; backward each rank keeps its part (Section 4.1)."""
    return _Gather.apply(x, torch.Size(shape), tp) if tp.size > 1 else x


class ColumnParallelLinear(nn.Module):
    """Y = XA with A split along its columns (Section 2.3); the bias is left to a fused operator if asked for.

    `weight` is [F/t, H] as torch stores it, `bias` [F/t].
    """

    def __init__(self, make: ParameterStore, name: str, std: float, tp: Axis) -> None:
        super().__init__()
        self.tp, self.gradients = tp, make.weight_gradients
        self.weight = make(f"{name}.weight", std=std)
        self.bias = make(f"{name}.bias")

    def forward(self, x_SBH: torch.Tensor, add_bias: bool = True) -> torch.Tensor:
        return linear(x_SBH, self.weight, self.bias if add_bias else None, self.tp, self.gradients)


class RowParallelLinear(nn.Module):
    """Y = XA with A split along its rows (Section 2.3); the bias is not added: it belongs after the reduction.

    `weight` is [H, F/t], `bias` [H] and replicated.
    """

    def __init__(self, make: ParameterStore, name: str, std: float, tp: Axis) -> None:
        super().__init__()
        self.tp, self.gradients = tp, make.weight_gradients
        self.weight = make(f"{name}.weight", std=std)
        self.bias = make(f"{name}.bias")

    def forward(self, x_SBFt: torch.Tensor) -> torch.Tensor:
        return g(linear(x_SBFt, self.weight, None, None, self.gradients), self.tp)


def embed(tokens_SB: torch.Tensor, weight_VtH: torch.Tensor, tp: Axis) -> torch.Tensor:
    """Rows of a table split by vocabulary: a rank contributes zeros for tokens of others. Returns [S, B, H]."""
    if tp.size == 1:
        return functional.embedding(tokens_SB, weight_VtH)
    local = tokens_SB - tp.rank * weight_VtH.size(0)
    foreign = (local < 0) | (local >= weight_VtH.size(0))
    x_SBH = functional.embedding(local.masked_fill(foreign, 0), weight_VtH)
    return g(x_SBH.masked_fill(foreign.unsqueeze(-1), 0.0), tp)


class _CrossEntropy(torch.autograd.Function):
    """Per-token loss from logits split by vocabulary: three all-reduces of [S, B], none of [S, B, V]."""

    @staticmethod
    def forward(ctx: Any, logits_SBVt: torch.Tensor, labels_SB: torch.Tensor, vocab: int, tp: Axis) -> torch.Tensor:
        wide = torch.promote_types(logits_SBVt.dtype, torch.float32)
        first, width = tp.rank * logits_SBVt.size(-1), logits_SBVt.size(-1)
        x = logits_SBVt.to(wide, copy=True)
        if first + width > vocab:  # padding is no token
            x[..., max(0, vocab - first) :] = -torch.inf
        peak_SB = tp.all_reduce(x.amax(-1), op=dist.ReduceOp.MAX)
        x -= peak_SB.unsqueeze(-1)
        local = labels_SB - first
        foreign = (local < 0) | (local >= width)
        local = local.masked_fill(foreign, 0).unsqueeze(-1)
        label_SB = x.gather(-1, local).squeeze(-1).masked_fill_(foreign, 0.0)
        tp.all_reduce(label_SB)
        total_SB = tp.all_reduce(x.exp_().sum(-1))
        ctx.save_for_backward(x.div_(total_SB.unsqueeze(-1)), local, foreign)
        ctx.dtype = logits_SBVt.dtype
        return total_SB.log_().sub_(label_SB)

    @staticmethod
    def backward(ctx: Any, grad_SB: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        softmax_SBVt, local, foreign = ctx.saved_tensors
        on_this_rank = (~foreign).to(softmax_SBVt.dtype).unsqueeze(-1)
        # Not in place: a second backward through a retained graph finds the softmax as it was.
        grad = softmax_SBVt.scatter_add(-1, local, -on_this_rank).mul_(grad_SB.unsqueeze(-1))
        return grad.to(ctx.dtype), None, None, None


def cross_entropy(logits_SBVt: torch.Tensor, labels_SB: torch.Tensor, vocab: int, tp: Axis) -> torch.Tensor:
    """Loss of every token, [S, B], in at least fp32; `vocab` is V without the padding, which is masked."""
    return _CrossEntropy.apply(logits_SBVt, labels_SB, vocab, tp)
