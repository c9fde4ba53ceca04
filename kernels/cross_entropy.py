"""The loss of each token from logits split by vocabulary, whose gradient is written over the logits.

    loss = log(sum of exp(logits)) - logit of the label

Shapes: logits [N, V/t] of this tensor rank, labels [N], loss [N] in at least fp32. Only the logits are kept, in their
own precision. Fused, a 16-bit logit costs 6 bytes of memory traffic: it is read once forward, and read and written
backward. Tensor ranks then exchange two tensors, the largest logits and two sums. The reference, which exchanges three
as Megatron-LM does, reads blocks of rows that fit a cache, 8 bytes a logit at best; with whole tensors (fp32 copy,
difference, exponential, softmax, its gradient) it would be 60. On one rank a single block in at least fp32 is left to
PyTorch's own.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from kernels.layout import accumulation_dtype
from kernels.registration import triton

CPU_BLOCK, GPU_BLOCK = 1 << 20, 16 << 20  # bytes of a block in the wide type that fit a core's or a GPU's cache


class Ranks(Protocol):
    """The tensor ranks that share the vocabulary: rank i has entries i*V/t to (i+1)*V/t."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce(self, x: Tensor, *, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        """Reduce x over the ranks in place, and return it."""


def cross_entropy(implementation: str, logits: Tensor, labels: Tensor, vocab: int, tp: Ranks) -> Tensor:
    """Loss of every token, in the shape of `labels`; `vocab` is V without the padding, which is masked.

    The logits must be contiguous, and are overwritten: the caller must not use them afterwards.
    """
    rows, flat = logits.flatten(0, -2), labels.flatten()
    losses: Tensor
    if implementation == "triton":
        losses = _FusedCrossEntropy.apply(rows, flat, vocab, tp)
    # Of whole logits in one block PyTorch's own keeps no more.
    elif tp.size == 1 and rows.size(1) == vocab and _is_one_block(rows):
        losses = functional.cross_entropy(rows, flat, reduction="none")
    else:
        losses = _CrossEntropy.apply(rows, flat, vocab, tp)
    return losses if labels.dim() == 1 else losses.view(labels.shape)


class _FusedCrossEntropy(torch.autograd.Function):
    """One kernel forward and one backward, and two small all-reduces between tensor ranks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocab: int, tp: Ranks) -> Tensor:
        first = tp.rank * logits.size(1)
        peak, total, label = sums = _sums(logits, labels, first, vocab)
        if tp.size > 1:
            own = peak.clone()
            total.mul_(own.sub_(tp.all_reduce(peak, op=dist.ReduceOp.MAX)).exp_())
            tp.all_reduce(sums[1:])
        log_total = total.log_()
        losses = (peak - label).add_(log_total)
        ctx.save_for_backward(logits, labels, peak.add_(log_total))
        ctx.first, ctx.vocab = first, vocab
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits, labels, log_sum = ctx.saved_tensors
        _gradient(logits, labels, log_sum, grad.contiguous(), ctx.first, ctx.vocab)
        return logits, None, None, None


_sums, _gradient = (triton("cross_entropy_triton", name) for name in ("sums", "gradient"))


class _CrossEntropy(torch.autograd.Function):
    """PyTorch's operators on blocks of rows; three all-reduces of [N] between tensor ranks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, vocab: int, tp: Ranks) -> Tensor:
        wide, width = accumulation_dtype(logits.dtype), logits.size(1)
        first = tp.rank * width
        if first + width > vocab:  # padded logits get no probability
            logits[:, max(0, vocab - first) :] = -torch.inf
        peak = tp.all_reduce(logits.amax(-1).to(wide), op=dist.ReduceOp.MAX)
        local = labels - first
        foreign = (local < 0) | (local >= width)
        local = local.masked_fill_(foreign, 0).unsqueeze(-1)
        label = logits.gather(-1, local).squeeze(-1).to(wide).sub_(peak).masked_fill_(foreign, 0.0)
        tp.all_reduce(label)
        total = torch.empty_like(peak)
        for part in _blocks(logits, wide):
            total[part] = logits[part].to(wide, copy=True).sub_(peak[part].unsqueeze(-1)).exp_().sum(-1)
        log_total = tp.all_reduce(total).log_()
        ctx.save_for_backward(logits, peak.add_(log_total), local, foreign)
        return log_total.sub(label)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits, log_sum, local, foreign = ctx.saved_tensors
        column, minus_label = grad.reshape(-1, 1), foreign.to(log_sum.dtype).sub_(1).unsqueeze(-1)
        for part in _blocks(logits, log_sum.dtype):
            softmax = logits[part].to(log_sum.dtype, copy=True).sub_(log_sum[part].unsqueeze(-1)).exp_()
            logits[part] = softmax.scatter_add_(-1, local[part], minus_label[part]).mul_(column[part])
        return logits, None, None, None


def _blocks(rows: Tensor, wide: torch.dtype) -> Iterator[slice]:
    """Slices of consecutive rows; a slice of `rows` has about the size of a block in the type `wide`."""
    count = _rows_of_a_block(rows, wide)
    return (slice(start, start + count) for start in range(0, rows.size(0), count))


def _is_one_block(rows: Tensor) -> bool:
    """Whether the rows, as they are, are a block in at least fp32."""
    return accumulation_dtype(rows.dtype) == rows.dtype and rows.size(0) <= _rows_of_a_block(rows, rows.dtype)


def _rows_of_a_block(rows: Tensor, wide: torch.dtype) -> int:
    size = (GPU_BLOCK if rows.is_cuda else CPU_BLOCK) // (rows.size(1) * wide.itemsize)
    return max(1, size)
