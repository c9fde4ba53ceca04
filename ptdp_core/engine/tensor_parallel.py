"""Tensor parallelism (Section 2.3): f and g, linears split by columns and rows, embedding by vocabulary.

f is the identity forward and an all-reduce backward, g the reverse (Figure 5). A transformer layer runs each of them
twice: two all-reduces forward and two backward.

With sequence parallelism (Korthikanti et al. 2022) activations outside of attention and MLP are of this rank's part of
the sequence, S/t. f is then an all-gather forward and a reduce-scatter backward, g the reverse. A part of the sequence
is one piece of memory, [S/t, B, H] or rows of it, so that these collectives need no copies.

Shapes: S sequence, B microbatch, T = S*B tokens or, with sequence parallelism outside of attention and MLP, S*B/t,
H hidden, F any output features, V vocabulary; a `t` after a letter: this rank's 1/t.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from kernels.products import LEAST, PYTORCH, Products, products_with
from kernels.registration import direct
from ptdp_core.engine.fp8 import Factor, Fp8
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.parameters import ParameterStore
from ptdp_core.engine.there_and_back import there_and_back
from ptdp_core.engine.weight_gradients import WeightGradients


class _OwnLinear(torch.autograd.Function):
    """Compute x W^T + bias of x [T, H] on one rank; `gradients` computes the weight's gradient, or defers it."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        gradients: WeightGradients,
        products: Products,
    ) -> torch.Tensor:
        ctx.save_for_backward(weight, x)
        ctx.gradients, ctx.has_bias, ctx.product = gradients, bias is not None, products.product
        return products.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weight, x = ctx.saved_tensors
        grad_weight = ctx.gradients.compute(weight, grad, x)
        return ctx.product(grad, weight), grad_weight, grad.sum(0) if ctx.has_bias else None, None, None


_own_linear = direct(_OwnLinear)


class _Linear(torch.autograd.Function):
    """Compute x W^T + bias of x [T, H]. With `tp` the backward pass has f's all-reduce of the input's gradient.

    The all-reduce is in place. That is safe here, because the gradient is a new tensor, which the residual branch does
    not share. `gradients` computes the weight's gradient, or defers it; the all-reduce may go on meanwhile.

    With `sequence_parallel` x is this rank's part of the sequence, and only that is kept. The whole is gathered for the
    forward pass, and again for the weight's gradient; the second gather may go on while the input's gradient is
    computed. With `fp8` the three products are of FP8; what is cast is kept in place of x, if a backward pass follows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        tp: Axis | None,
        gradients: WeightGradients,
        sequence_parallel: bool,
        fp8: Fp8 | None,
        followed: bool,
        products: Products,
    ) -> torch.Tensor:
        ctx.tp, ctx.gradients, ctx.fp8, ctx.product = tp, gradients, fp8, products.product
        ctx.has_bias, ctx.sequence_parallel = bias is not None, sequence_parallel
        whole = _gathered(x, tp) if tp is not None and sequence_parallel else x
        if fp8 is None:
            ctx.save_for_backward(weight, x)
            return products.linear(whole, weight, bias)
        factor = fp8.input(whole, weight, turned=followed and not sequence_parallel)
        ctx.save_for_backward(
            weight, *((x,) if sequence_parallel or factor.scale is None else (factor.turned, factor.scale))
        )
        return fp8.forward(factor, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        weight, *kept = ctx.saved_tensors
        x, overlapped, reducing, fp8 = kept[0], ctx.gradients.overlapped, None, ctx.fp8
        factor: Any = grad if fp8 is None else fp8.gradient(grad, weight)
        input_gradient = ctx.product if fp8 is None else fp8.input_gradient
        if ctx.sequence_parallel:
            x, gathering = ctx.tp.start_all_gather(x)
            if not overlapped:
                gathering.wait()
            grad_x = input_gradient(factor, weight)  # does not need x, so the gather may go on meanwhile
            gathering.wait()
            grad_x, reducing = ctx.tp.start_reduce_scatter(grad_x)
            if not overlapped:
                reducing.wait()
            x, grad_x = x.view(-1, weight.size(1)), grad_x.view(-1, weight.size(1))
        else:
            grad_x = input_gradient(factor, weight)
            if ctx.tp is not None and overlapped:
                reducing = ctx.tp.start_all_reduce(grad_x)
            elif ctx.tp is not None:
                ctx.tp.all_reduce(grad_x)
        if len(kept) == 2:
            x = Factor(None, *kept)
        elif fp8 is not None:
            x = fp8.input(x, weight, rows=False)
        factor = factor if fp8 is None else factor._replace(rows=None)  # of which a deferred product keeps the rest
        grad_weight = ctx.gradients.compute(weight, factor, x, None, fp8)
        grad_bias = grad.sum(0) if ctx.has_bias else None
        if reducing is not None:
            reducing.wait()
        return grad_x, grad_weight, grad_bias, None, None, None, None, None, None


_linear = direct(_Linear)


class _G(torch.autograd.Function):
    """g: an all-reduce of x in place, whose gradient is the result's."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tp: Axis) -> torch.Tensor:
        ctx.mark_dirty(x)
        return tp.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def _gathered(part: torch.Tensor, tp: Axis) -> torch.Tensor:
    """The tensor of the whole sequence, [S, B, H] or [S*B, H], from every tensor rank's part of it."""
    return tp.all_gather(part.reshape(-1)).view(-1, *part.shape[1:])


def _scattered(whole: torch.Tensor, tp: Axis) -> torch.Tensor:
    """This tensor rank's part of the sequence, of the sum of all ranks' tensors of the whole: `_gathered` backwards."""
    return tp.reduce_scatter(whole).view(-1, *whole.shape[1:])


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    tp: Axis | None,
    gradients: WeightGradients,
    sequence_parallel: bool = False,
    fp8: Fp8 | None = None,
) -> torch.Tensor:
    """Compute x W^T + bias. With `tp` it begins with f of Figure 5: x is replicated, and its gradient is all-reduced.

    x is [T, H], the result [S*B, F]. With `sequence_parallel` x and its gradient are this rank's part of the sequence.
    With `fp8` its products are of FP8.
    """
    reduced = tp if tp is not None and tp.size > 1 else None
    products = PYTORCH if weight.numel() < LEAST else products_with(weight)
    if reduced is None and fp8 is None:
        # With gradients that autograd adds, PyTorch's own linear layer does all that is needed.
        if products is PYTORCH and id(weight) not in gradients.main_grads and not gradients.split:
            return functional.linear(x, weight, bias)
        own: torch.Tensor = _own_linear(x, weight, bias, gradients, products)
        return own
    gathered, followed = sequence_parallel and reduced is not None, torch.is_grad_enabled()
    out: torch.Tensor = _linear(x, weight, bias, reduced, gradients, gathered, fp8, followed, products)
    return out


def f(x: torch.Tensor, tp: Axis, sequence_parallel: bool = False) -> torch.Tensor:
    """Apply f of Figure 5, where a linear layer does not: identity forward, all-reduce backward.

    With `sequence_parallel` x is this rank's part of the sequence: all-gather forward, reduce-scatter backward.
    """
    if tp.size == 1:
        return x
    if sequence_parallel:
        return there_and_back(x, partial(_gathered, tp=tp), partial(_scattered, tp=tp))
    return there_and_back(x, lambda x: x.view_as(x), lambda grad: tp.all_reduce(grad.clone()))


def g(x: torch.Tensor, tp: Axis, sequence_parallel: bool = False) -> torch.Tensor:
    """Apply g of Figure 5, which sums the tensor ranks' partial results: all-reduce forward, identity backward.

    The all-reduce is in place: the caller must not use x afterwards.

    With `sequence_parallel` the result is this rank's part of the sum: reduce-scatter forward, all-gather backward.
    """
    if tp.size == 1:
        return x
    if sequence_parallel:
        return there_and_back(x, partial(_scattered, tp=tp), partial(_gathered, tp=tp))
    out: torch.Tensor = _G.apply(x, tp)
    return out


def split(x: torch.Tensor, tp: Axis) -> torch.Tensor:
    """Scatter as in Section 4.1: return this rank's flat 1/t of x, which is equal on all tensor ranks.

    Every rank has the same x and needs the same gradient of it, so the backward pass gathers and does not sum.
    """
    if tp.size == 1:
        return x
    shape = x.shape
    return there_and_back(x, lambda x: tp.part(x).clone(), lambda grad: tp.all_gather(grad).view(shape))


def gather(x: torch.Tensor, shape: torch.Size | tuple[int, ...], tp: Axis) -> torch.Tensor:
    """Gather as in Section 4.1: return the tensor of this shape from every rank's flat 1/t of it.

    In the backward pass each rank takes its part of the gradient.
    """
    if tp.size == 1:
        return x
    return there_and_back(x, lambda x: tp.all_gather(x).view(shape), lambda grad: tp.part(grad).clone())


class ParallelLinear(nn.Module):
    """The parameters of a linear layer that tensor ranks share; `layout.layer_parameters` says how it is split.

    Without `adds_bias` the output lacks its bias (`missing_bias`), which a later operator adds.
    """

    def __init__(
        self,
        make: ParameterStore,
        name: str,
        std: float,
        tp: Axis,
        sequence_parallel: bool,
        bias: bool,
        adds_bias: bool = True,
    ) -> None:
        super().__init__()
        self.tp, self.sequence_parallel, self.adds_bias = tp, sequence_parallel, adds_bias
        self.gradients, self.fp8 = make.weight_gradients, make.fp8
        self.weight = make(f"{name}.weight", std=std)
        self.gradients.linear_weights.append(self.weight)
        self.bias = make(f"{name}.bias") if bias else None

    @property
    def missing_bias(self) -> torch.Tensor | None:
        """The bias that the output still lacks."""
        return None if self.adds_bias else self.bias


class ColumnParallelLinear(ParallelLinear):
    """Y = XA with A split along its columns (Section 2.3).

    `weight` is [F/t, H] as torch stores it, `bias` [F/t] or None.
    """

    def forward(self, x_TH: torch.Tensor) -> torch.Tensor:
        """Compute Y [S*B, F/t]."""
        bias = self.bias if self.adds_bias else None
        return linear(x_TH, self.weight, bias, self.tp, self.gradients, self.sequence_parallel, self.fp8)


class RowParallelLinear(ParallelLinear):
    """Y = XA with A split along its rows (Section 2.3). Of several tensor ranks none may add the bias before g.

    `weight` is [H, F/t], `bias` [H] and replicated, or None.
    """

    def forward(self, x_TFt: torch.Tensor) -> torch.Tensor:
        """Compute Y [T, H]."""
        bias = self.bias if self.adds_bias else None
        y = linear(x_TFt, self.weight, bias, None, self.gradients, False, self.fp8)
        return y if self.tp.size == 1 else g(y, self.tp, self.sequence_parallel)


def embed(tokens_SB: torch.Tensor, weight_VtH: torch.Tensor, tp: Axis, sequence_parallel: bool = False) -> torch.Tensor:
    """Look up tokens in a table split by vocabulary; the result is [S, B, H].

    A rank has zeros for the tokens of other ranks, and the ranks' results are summed.

    With `sequence_parallel` the result is this rank's part of the sequence, [S/t, B, H].
    """
    if tp.size == 1:
        return functional.embedding(tokens_SB, weight_VtH)
    local = tokens_SB - tp.rank * weight_VtH.size(0)
    foreign = (local < 0) | (local >= weight_VtH.size(0))
    x_SBH = functional.embedding(local.masked_fill(foreign, 0), weight_VtH)
    return g(x_SBH.masked_fill(foreign.unsqueeze(-1), 0.0), tp, sequence_parallel)
