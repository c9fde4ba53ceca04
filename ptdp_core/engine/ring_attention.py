"""Attention around a ring of context ranks (Liu et al. 2023, arXiv:2310.01889), under a causal mask.

Each rank keeps its queries. Keys and values go from rank to rank: while a rank attends to one part, it passes it on and
gets the next. Results of parts are put together by their sums of exponentials. In the backward pass the parts go around
again, and behind them their gradients, to which every rank adds its own.

Of a sequence's 2c chunks rank i has number i and number 2c-1-i (`context.py`). So of the part of a rank before it, all
its queries see the first chunk; of the part of a rank behind it, its second chunk of queries sees all.

Shapes: S tokens of a rank, B microbatch, A heads, G key/value heads, D head size; N heads of the microbatch.
"""

from collections.abc import Iterator
from typing import Any

import torch

from ptdp_core.engine.groups import Axis


def ring_attention(q_SND: torch.Tensor, k_SND: torch.Tensor, v_SND: torch.Tensor, *, b: int, cp: Axis) -> torch.Tensor:
    """Attend from this rank's queries to the keys and values of the whole sequence: [S, B, A, D].

    With PyTorch's fused attention, on GPUs for 16-bit elements only. (No GPU has run that yet.) Gradients of keys and
    values go around, and are summed, in at least fp32.
    """
    q, k, v = (x.unflatten(1, (b, -1)).permute(1, 2, 0, 3) for x in (q_SND, k_SND, v_SND))
    out: torch.Tensor = _RingAttention.apply(q, torch.stack((k, v)), cp)
    return out.permute(2, 0, 1, 3)


def seen(source: int, rank: int, s: int) -> tuple[slice, slice]:
    """The queries of a rank that see something of the part of rank `source`, and the keys of it that they see."""
    if source < rank:
        return slice(0, s), slice(0, s // 2)
    return (slice(s // 2, s) if source > rank else slice(0, s)), slice(0, s)


class _RingAttention(torch.autograd.Function):
    """See `ring_attention`; queries and the result are [B, A, S, D], keys and values [2, B, G, S, D]."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, own: torch.Tensor, cp: Axis) -> torch.Tensor:
        wide = torch.promote_types(q.dtype, torch.float32)
        out = torch.zeros(q.shape, dtype=wide, device=q.device)
        log_sum = torch.full(q.shape[:-1], -torch.inf, dtype=wide, device=q.device)
        for source, part in _parts(own, cp):
            queries, keys = seen(source, cp.rank, q.size(2))
            k, v = part[:, :, :, keys].unbind()
            more, more_sum = _attend(q[:, :, queries], k, v, causal=source == cp.rank)
            before = log_sum[:, :, queries]
            together = torch.logaddexp(before, more_sum)
            out[:, :, queries] *= (before - together).exp().unsqueeze(-1)
            out[:, :, queries] += (more_sum - together).exp().unsqueeze(-1) * more
            log_sum[:, :, queries] = together
        out = out.to(q.dtype)
        ctx.save_for_backward(q, own, out, log_sum)
        ctx.cp = cp
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        q, own, out, log_sum = ctx.saved_tensors
        grad_q, grad_own, coming = (
            torch.zeros_like(q, dtype=log_sum.dtype),
            torch.zeros_like(own, dtype=log_sum.dtype),
            None,
        )
        for source, part in _parts(own, ctx.cp):
            queries, keys = seen(source, ctx.cp.rank, q.size(2))
            k, v = part[:, :, :, keys].unbind()
            mine = tuple(x[:, :, queries].contiguous() for x in (grad, q, out, log_sum))
            of_q, of_k, of_v = _gradients(mine, k, v, causal=source == ctx.cp.rank)
            grad_q[:, :, queries] += of_q
            grad_part = grad_own if source == ctx.cp.rank else torch.zeros_like(grad_own)
            grad_part[:, :, :, keys] = torch.stack((of_k, of_v))
            if source != ctx.cp.rank:
                if coming is not None:  # what the ranks before have of this part's gradient
                    grad_part += coming.wait()
                coming = ctx.cp.start_to_pass_on(grad_part)
        if coming is not None:
            grad_own += coming.wait()
        return grad_q.to(q.dtype), grad_own.to(own.dtype), None


def _parts(own: torch.Tensor, cp: Axis) -> Iterator[tuple[int, torch.Tensor]]:
    """Every rank's number and part: this rank's own, then that of the rank before, and so on.

    Each is passed on while it is used.
    """
    part = own
    for step in range(cp.size - 1):
        passed = cp.start_to_pass_on(part)
        yield (cp.rank - step) % cp.size, part
        part = passed.wait()
    yield (cp.rank + 1) % cp.size, part


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to one part, and the logarithm of each query's sum of exponentials, [B, A, S]."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention
    if not q.is_cuda:
        fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    out, log_sum, *_ = fused(q, k, v, 0.0, causal)
    return out, log_sum


def _gradients(
    mine: tuple[torch.Tensor, ...], k: torch.Tensor, v: torch.Tensor, causal: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of queries, keys and values by one part.

    `mine` are the queries' result's gradient, the queries, their result and its sums, both of all parts.
    """
    (grad, q, out, log_sum), aten = mine, torch.ops.aten
    if q.is_cuda:
        no_seed, lengths = torch.empty((), dtype=torch.int64), (None, None, q.size(2), k.size(2))
        of_q, of_k, of_v = aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, log_sum, *lengths, 0.0, causal, no_seed, no_seed
        )
    else:
        of_q, of_k, of_v = aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, log_sum, 0.0, causal
        )
    return of_q, of_k, of_v
