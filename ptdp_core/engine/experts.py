"""Mixtures of experts: a router sends each token to k of E experts, which e ranks share.

A layer of experts takes an MLP's place. Like it, it begins with f and ends with g of Figure 5: all tensor ranks route
all tokens of their replica alike, and hold 1/t of each of their E/e experts. What a tensor rank computes between f and
g, the router's gradient included, is its part of a sum. Where tensor ranks have whole experts instead (etp = 1, with
sequence parallelism), there is no f and no g: each routes the tokens of its part of the sequence.

Tokens go to the ranks of their experts and back by all-to-all over the expert-parallel axis, of which every rank has
other tokens. How many go where depends on the tokens, so that the counts are exchanged first. An expert takes all
tokens that are sent to it (dropless), or the first ones up to its capacity.

Shapes: S sequence, B microbatch, H hidden, N = S*B tokens, K experts of a token, E experts, L = E/e of them on this
rank, F an expert's width; P at most N*K pairs of a token and an expert, R such pairs received; `t` after a letter: 1/t.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from kernels import Kernels
from ptdp_core.config import ModelConfig
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.parameters import ParameterStore
from ptdp_core.engine.tensor_parallel import ColumnParallelLinear, RowParallelLinear, f, g
from ptdp_core.engine.weight_gradients import Grouped, WeightGradients, is_grouped
from ptdp_core.turns import Turns


class Routing:
    """What all routers of a rank share: its expert-parallel axis, the capacity, and what a batch changes.

    The ranks along each axis of `sharing` route other tokens of the same sequences. `capacity_factor` is an expert's
    capacity over the mean number of its tokens, 0 for no limit. `scale` is the factor of the auxiliary loss in a
    microbatch's backward pass. `dropped` counts the pairs of a token and an expert, of this rank's tokens in this
    batch, that were beyond a capacity. While rows are on their way, the other pass of a fused pair has its turn.
    """

    def __init__(
        self,
        ep: Axis | None = None,
        sharing: tuple[Axis, ...] = (),
        capacity_factor: float = 0.0,
        scale: float = 1.0,
        turns: Turns | None = None,
    ) -> None:
        self.ep, self.sharing, self.capacity_factor = ep or Axis("ep"), sharing, capacity_factor
        self.turns = turns or Turns()
        self.begin(scale)

    def begin(self, scale: float) -> None:
        """Begin a batch, of which each microbatch's loss is multiplied by `scale`."""
        self.scale, self.dropped = scale, 0


class _WithLoss(torch.autograd.Function):
    """x, whose backward pass also begins that of `loss`, with the gradient `scale`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, loss: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.gradient = torch.full_like(loss, scale)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return grad, ctx.gradient, None


@contextmanager
def without_tf32() -> Iterator[None]:
    """Products of fp32 inside keep all 24 bits of their factors, where a run's others may keep 11."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Logits(torch.autograd.Function):
    """x W^T in fp32, of bf16 factors, without a copy of x in fp32.

    Each element of the gradient is the sum of three numbers in bf16, whose products with bf16 are exact in fp32.
    """

    @staticmethod
    def forward(ctx: Any, x_NH: torch.Tensor, weight_EH: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x_NH, weight_EH)
        return _wide_product(x_NH, weight_EH.t())

    @staticmethod
    def backward(ctx: Any, grad_NE: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x_NH, weight_EH = ctx.saved_tensors
        high = grad_NE.bfloat16()
        rest = grad_NE - high
        middle = rest.bfloat16()
        parts = torch.cat((high, middle, (rest - middle).bfloat16()), 1)
        grad_weight = _wide_product(parts.t(), x_NH).view(3, *weight_EH.shape).sum(0)
        return parts @ weight_EH.repeat(3, 1), grad_weight.to(weight_EH.dtype)


def _wide_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of bf16 matrices in fp32, on a GPU by one GEMM."""
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else a.float() @ b.float()


class Router(nn.Module):
    """Chooses the k experts of each token, and how much each of them counts; computed in at least fp32.

    The scores are softmax or sigmoid of a linear's outputs. With 'softmax_before' a chosen expert counts as its score
    says; otherwise the chosen ones' scores are divided by their sum, which makes softmax one over the chosen outputs.
    """

    def __init__(self, model: ModelConfig, make: ParameterStore, routing: Routing, name: str, std: float) -> None:
        super().__init__()
        self.model, self.routing, self.ranks = model, routing, make.tp.size
        self.weight = make(f"{name}.weight", std=std)

    def forward(self, x_NH: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and numbers of the tokens' experts, [N, K] each."""
        model, wide = self.model, torch.promote_types(x_NH.dtype, torch.float32)
        if x_NH.is_cuda and x_NH.dtype == torch.bfloat16:
            logits_NE = _Logits.apply(x_NH, self.weight)
        else:
            with nullcontext() if x_NH.dtype != torch.float32 else without_tf32():  # which has 16-bit elements in full
                logits_NE = functional.linear(x_NH.to(wide), self.weight.to(wide))
        scores_NE = logits_NE.sigmoid() if model.router == "sigmoid" else logits_NE.softmax(-1)
        weights_NK, experts_NK = scores_NE.topk(model.experts_per_token, -1)
        if model.router != "softmax_before":
            weights_NK = weights_NK / weights_NK.sum(-1, keepdim=True)
        if model.auxiliary_loss and torch.is_grad_enabled():
            loss = self._balance(scores_NE, experts_NK) * model.auxiliary_loss
            weights_NK = _WithLoss.apply(weights_NK, loss, self.routing.scale / self.ranks)
        return weights_NK, experts_NK

    def _balance(self, scores_NE: torch.Tensor, experts_NK: torch.Tensor) -> torch.Tensor:
        """The load-balancing loss (Fedus et al. 2021, equation 4) of a microbatch, as Mixtral's: k if it is even.

        It is E times the sum over experts of the tokens' share that chose it and its mean score. The share is that of
        whole sequences, and the score of this rank's tokens: the mean over ranks is the loss.
        """
        tokens, experts = scores_NE.shape
        share_E = tokens_of(experts_NK.flatten(), experts).to(scores_NE.dtype) / tokens
        for axis in self.routing.sharing:
            share_E = axis.all_reduce(share_E) / axis.size
        if self.model.router == "sigmoid":
            scores_NE = scores_NE / scores_NE.sum(-1, keepdim=True)
        return experts * (share_E * scores_NE.mean(0)).sum()


@dataclass(frozen=True)
class Dispatch:
    """Which rows this rank sends to the ranks of its tokens' experts, and how it orders those that it receives.

    `slots` [P] are numbers of pairs, n*K + k, by expert; `rows` are those of each of the L local experts. On an axis of
    several ranks, `sent` and `received` are the rows to and from each of them, and `by_expert` [R] orders the received
    rows, which lie by rank and then expert, by expert.
    """

    slots: torch.Tensor
    rows: Grouped
    sent: list[int] | None = None
    received: list[int] | None = None
    by_expert: torch.Tensor | None = None

    @classmethod
    def of(cls, experts_NK: torch.Tensor, experts: int, capacity: int | None, ep: Axis) -> "Dispatch":
        """The dispatch of tokens with these experts, of which one takes the first `capacity` tokens if that is given.

        Alone, and without a capacity, the host waits for nothing. It does wait once for what is sent and received,
        without which no exchange can start, and once for what a capacity leaves.
        """
        chosen_P = experts_NK.flatten()
        narrow = torch.int16 if experts <= 1 << 15 else torch.int64  # a GPU's sort has a pass for every byte
        slots_P, counts_E = chosen_P.to(narrow).argsort(stable=True), tokens_of(chosen_P, experts)
        if capacity is not None:
            places_P = torch.arange(slots_P.numel(), device=slots_P.device)
            places_P -= (counts_E.cumsum(0) - counts_E)[chosen_P[slots_P]]
            slots_P, counts_E = slots_P[places_P < capacity], counts_E.clamp(max=capacity)
        if ep.size == 1:
            return cls(slots_P, Grouped.of(counts_E))
        received_eL = ep.all_to_all(counts_E).view(ep.size, -1)
        sent, received = torch.stack((counts_E.view(ep.size, -1).sum(1), received_eL.sum(1))).tolist()
        numbers = torch.arange(received_eL.size(1), device=slots_P.device).repeat(ep.size)
        by_expert = numbers.repeat_interleave(received_eL.flatten(), output_size=sum(received)).argsort(stable=True)
        return cls(slots_P, Grouped.of(received_eL.sum(0)), sent, received, by_expert)


def tokens_of(chosen_P: torch.Tensor, experts: int) -> torch.Tensor:
    """How many of these pairs chose each expert, [E]; the host does not wait, as it would for a `bincount`."""
    return torch.zeros(experts, dtype=torch.int64, device=chosen_P.device).scatter_add_(
        0, chosen_P, torch.ones_like(chosen_P)
    )


class _AllToAll(torch.autograd.Function):
    """`Axis.all_to_all`, whose gradient goes back the same way."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, sent: list[int] | None, received: list[int] | None, by: Routing
    ) -> torch.Tensor:
        ctx.sent, ctx.received, ctx.by = sent, received, by
        return by.ep.all_to_all(x, sent, received, by.turns.hand_over)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return ctx.by.ep.all_to_all(grad, ctx.received, ctx.sent, ctx.by.turns.hand_over), None, None, None


class _ByExpert(torch.autograd.Function):
    """The row of each pair's token, by expert: of [N, H] the rows [P, H] of `slots`, of which `places` is the inverse.

    The gradient of a token is the sum over its k pairs, read in its order: an indexed sum would sort the pairs.
    """

    @staticmethod
    def forward(
        ctx: Any, x_NH: torch.Tensor, slots_P: torch.Tensor, places_NK: torch.Tensor, ops: Kernels
    ) -> torch.Tensor:
        ctx.save_for_backward(places_NK)
        ctx.ops = ops
        return x_NH.index_select(0, slots_P // places_NK.size(1))

    @staticmethod
    def backward(ctx: Any, grad_PH: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return ctx.ops.combine(grad_PH, None, *ctx.saved_tensors), None, None, None


class _GroupedLinear(torch.autograd.Function):
    """The linears of all local experts: rows of x, by expert, times each one's matrix [F, H] of a stack."""

    @staticmethod
    def forward(
        ctx: Any, x_RH: torch.Tensor, weight_LFH: torch.Tensor, rows: Grouped, gradients: WeightGradients
    ) -> torch.Tensor:
        ctx.save_for_backward(x_RH, weight_LFH)
        ctx.rows, ctx.gradients = rows, gradients
        return grouped_product(x_RH, weight_LFH.transpose(1, 2), rows)

    @staticmethod
    def backward(ctx: Any, grad_RF: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x_RH, weight_LFH = ctx.saved_tensors
        grad_RF = grad_RF.contiguous()
        grad_weight = ctx.gradients.compute(weight_LFH, grad_RF, x_RH, ctx.rows)
        return grouped_product(grad_RF, weight_LFH, ctx.rows), grad_weight, None, None


def grouped_product(x_RH: torch.Tensor, matrices_LHF: torch.Tensor, rows: Grouped) -> torch.Tensor:
    """Multiply each expert's rows of x by its matrix: one grouped GEMM where PyTorch has it, else L GEMMs."""
    if is_grouped(x_RH, matrices_LHF):
        return torch._grouped_mm(x_RH, matrices_LHF, offs=rows.stops)
    counts, out_RF = rows.listed, x_RH.new_empty(x_RH.size(0), matrices_LHF.size(2))
    for x, matrix, out in zip(x_RH.split(counts), matrices_LHF, out_RF.split(counts), strict=True):
        torch.mm(x, matrix, out=out)
    return out_RF


def activated(x: torch.Tensor, activation: str, ops: Kernels) -> torch.Tensor:
    """GELU of x, or SwiGLU of a gated MLP's pairs of columns."""
    return functional.gelu(x, approximate="tanh") if activation == "gelu" else ops.swiglu(x)


class Experts(nn.Module):
    """The L experts of a rank: MLPs without biases, in one tensor [L, F/t, H] and one [L, H, F/t]."""

    def __init__(
        self, model: ModelConfig, make: ParameterStore, ops: Kernels, name: str, stds: tuple[float, float]
    ) -> None:
        super().__init__()
        self.activation, self.gradients, self.ops = model.activation, make.weight_gradients, ops
        self.up, self.down = make(f"{name}.up.weight", std=stds[0]), make(f"{name}.down.weight", std=stds[1])
        self.gradients.linear_weights += [self.up, self.down]

    def forward(self, x_RH: torch.Tensor, rows: Grouped) -> torch.Tensor:
        """Each expert's output for its rows, [R, H]: this tensor rank's part of the sum."""
        inner_RFt = activated(_GroupedLinear.apply(x_RH, self.up, rows, self.gradients), self.activation, self.ops)
        out: torch.Tensor = _GroupedLinear.apply(inner_RFt, self.down, rows, self.gradients)
        return out


class MixtureOfExperts(nn.Module):
    """Router, experts, and perhaps an expert that all tokens share, in place of an MLP."""

    def __init__(
        self,
        model: ModelConfig,
        make: ParameterStore,
        ops: Kernels,
        routing: Routing,
        name: str,
        stds: tuple[float, float],
        sequence_parallel: bool,
    ) -> None:
        super().__init__()
        self.ops = ops
        self.model, self.tp, self.routing, self.sequence_parallel = model, make.expert_tp, routing, sequence_parallel
        self.router = Router(model, make, routing, f"{name}.router", stds[0])
        self.experts = Experts(model, make, ops, f"{name}.experts", stds)
        self.has_shared = model.shared_expert_ffn_hidden > 0
        if self.has_shared:  # inside of f and g of the whole layer, if it has them, so without those of its linears
            inside = (make.tp if make.expert_tp is not make.tp else Axis("tp"), sequence_parallel, False)
            self.shared_up = ColumnParallelLinear(make, f"{name}.shared.up", stds[0], *inside)
            self.shared_down = RowParallelLinear(make, f"{name}.shared.down", stds[1], *inside)

    def forward(self, x_NH: torch.Tensor) -> torch.Tensor:
        """The weighted sum of each token's experts; x and the result are [N, H], with sequence parallelism [N/t, H]."""
        x_NH = f(x_NH, self.tp, self.sequence_parallel)
        y_NH = self._routed(x_NH)
        if self.has_shared:
            y_NH = y_NH + self.shared_down(activated(self.shared_up(x_NH), self.model.activation, self.ops))
        return g(y_NH, self.tp, self.sequence_parallel)

    def _routed(self, x_NH: torch.Tensor) -> torch.Tensor:
        """Send the tokens to their experts, and add up what comes back, [N, H]."""
        model, ep = self.model, self.routing.ep
        weights_NK, experts_NK = self.router(x_NH)
        (n, k), factor = experts_NK.shape, self.routing.capacity_factor
        capacity = ceil(factor * n * k / model.experts) if factor else None
        way = Dispatch.of(experts_NK, model.experts, capacity, ep)
        if torch.is_grad_enabled():  # once, also if the layer runs again
            self.routing.dropped += n * k - way.slots.numel()
        if capacity is None:  # every pair has a row: two permutations, each the other's gradient
            places_NK = torch.empty_like(experts_NK)
            places_NK.view(-1).scatter_(0, way.slots, torch.arange(n * k, device=x_NH.device))
            rows_PH = _ByExpert.apply(x_NH, way.slots, places_NK, self.ops)
        else:
            rows_PH = x_NH[way.slots // k]
        rows_RH = _AllToAll.apply(rows_PH, way.sent, way.received, self.routing)
        if way.by_expert is not None:
            rows_RH = rows_RH[way.by_expert]
        rows_RH = self.experts(rows_RH, way.rows)
        if way.by_expert is not None:
            rows_RH = torch.empty_like(rows_RH).index_copy(0, way.by_expert, rows_RH)
        rows_PH = _AllToAll.apply(rows_RH, way.received, way.sent, self.routing)
        # A pair has a row of its own, so that the order of summation is always the same; those dropped have zeros.
        if capacity is None:
            return self.ops.combine(rows_PH, weights_NK, places_NK)
        pairs_PH = rows_PH.new_zeros(n * k, x_NH.size(1)).index_copy(0, way.slots, rows_PH)
        return torch.bmm(weights_NK.to(x_NH.dtype).unsqueeze(1), pairs_PH.view(n, k, -1)).squeeze(1)
