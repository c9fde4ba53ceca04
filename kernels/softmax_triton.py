"""Triton kernels of causal and masked softmax, forward and backward.

A program takes `ROWS` rows. A row that fits into `BLOCK` columns is read once and stays in registers. A longer row is
read twice: for its maximum and its sum, which are updated block by block, and, by then mostly from cache, for the
result. A causal row is read up to its diagonal only; to its right zeros are written.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.layout import matrices, stacked_matrices


@triton.jit
def _inside(row, column, rows, queries, columns, CAUSAL: tl.constexpr):
    """A mask of the elements that have to be read: those inside the tensor and, if causal, up to the diagonal.

    It is rounded up to 16 columns, because loads of several elements at once share one bit of the mask.
    """
    inside = (row < rows) & (column < columns)
    return inside & (column < (row % queries) // 16 * 16 + 16) if CAUSAL else inside


@triton.jit
def _scaled_scores(
    scores, mask, row, column, mask_row, rows, queries, columns, mask_stride, SCALE: tl.constexpr, WIDE: tl.constexpr
):
    """scale * scores, or -inf where a row must not look; without a mask, that is right of the diagonal."""
    inside = _inside(row, column, rows, queries, columns, mask is None)
    x = tl.load(scores + row.to(tl.int64) * columns + column, mask=inside, other=0.0)
    if mask is None:
        visible = inside & (column <= row % queries)
    else:
        hidden = tl.load(mask + mask_row + column.to(tl.int64) * mask_stride, mask=inside, other=1)
        visible = hidden == 0
    return tl.where(visible, x.to(WIDE) * SCALE, -float("inf"))


@triton.jit
def _probs_and_grad(probs, grad, row, column, rows, queries, columns, CAUSAL: tl.constexpr, WIDE: tl.constexpr):
    """Load a tile of the probabilities and of their gradient, 0 outside the tensor and right of the diagonal."""
    offset = row.to(tl.int64) * columns + column
    inside = _inside(row, column, rows, queries, columns, CAUSAL)
    p = tl.load(probs + offset, mask=inside, other=0.0).to(WIDE)
    g = tl.load(grad + offset, mask=inside, other=0.0).to(WIDE)
    if CAUSAL:
        g = tl.where(column <= row % queries, g, 0.0)  # may be anything there, NaN too, and 0 * NaN is NaN
    return p, g


@triton.jit
def _forward(
    scores,
    mask,
    probs,
    rows,
    queries,
    columns,
    heads,
    mask_stride_n,
    mask_stride_m,
    mask_stride_q,
    mask_stride_k,
    SCALE: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    if mask is None:
        mask_row = row
    else:
        matrix = row // queries
        mask_row = (
            (matrix // heads).to(tl.int64) * mask_stride_n
            + (matrix % heads).to(tl.int64) * mask_stride_m
            + (row % queries).to(tl.int64) * mask_stride_q
        )
    column = tl.arange(0, BLOCK)[None, :]
    address = probs + row.to(tl.int64) * columns + column
    if BLOCKS == 1:
        x = _scaled_scores(scores, mask, row, column, mask_row, rows, queries, columns, mask_stride_k, SCALE, WIDE)
        peak = tl.max(x, 1)[:, None]
        e = tl.exp(x - tl.where(peak == -float("inf"), 0.0, peak))  # -inf - -inf would be NaN
        total = tl.sum(e, 1)[:, None]
        # A row that is masked throughout has total 0, and becomes 0.
        tl.store(address, e / tl.where(total == 0.0, 1.0, total), mask=(row < rows) & (column < columns))
    else:
        peak = tl.full((ROWS, 1), -float("inf"), WIDE)
        total = tl.zeros((ROWS, 1), WIDE)
        for start in range(0, BLOCKS * BLOCK, BLOCK):
            x = _scaled_scores(
                scores, mask, row, start + column, mask_row, rows, queries, columns, mask_stride_k, SCALE, WIDE
            )
            new_peak = tl.maximum(peak, tl.max(x, 1)[:, None])
            shift = tl.where(new_peak == -float("inf"), 0.0, new_peak)
            total = total * tl.exp(peak - shift) + tl.sum(tl.exp(x - shift), 1)[:, None]
            peak = new_peak
        shift = tl.where(peak == -float("inf"), 0.0, peak)
        total = tl.where(total == 0.0, 1.0, total)
        for start in range(0, BLOCKS * BLOCK, BLOCK):
            x = _scaled_scores(
                scores, mask, row, start + column, mask_row, rows, queries, columns, mask_stride_k, SCALE, WIDE
            )
            inside = (row < rows) & (start + column < columns)
            tl.store(address + start, tl.exp(x - shift) / total, mask=inside)


@triton.jit
def _backward(
    grad,
    probs,
    grad_scores,
    rows,
    queries,
    columns,
    CAUSAL: tl.constexpr,
    SCALE: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Compute grad_scores = scale * probs * (grad - sum(grad * probs)), the sum taken over each row."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    address = grad_scores + row.to(tl.int64) * columns + column
    if BLOCKS == 1:
        p, g = _probs_and_grad(probs, grad, row, column, rows, queries, columns, CAUSAL, WIDE)
        dot = tl.sum(p * g, 1)[:, None]
        tl.store(address, p * (g - dot) * SCALE, mask=(row < rows) & (column < columns))
    else:
        dot = tl.zeros((ROWS, 1), WIDE)
        for start in range(0, BLOCKS * BLOCK, BLOCK):
            p, g = _probs_and_grad(probs, grad, row, start + column, rows, queries, columns, CAUSAL, WIDE)
            dot += tl.sum(p * g, 1)[:, None]
        for start in range(0, BLOCKS * BLOCK, BLOCK):
            p, g = _probs_and_grad(probs, grad, row, start + column, rows, queries, columns, CAUSAL, WIDE)
            tl.store(address + start, p * (g - dot) * SCALE, mask=(row < rows) & (start + column < columns))


def causal_forward(scores: Tensor, scale: float) -> Tensor:
    """The probabilities [..., s, s] of `causal_softmax`."""
    return _launch_forward(scores, None, scale)


def masked_forward(scores: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The probabilities [..., q, k] of `masked_softmax`; the mask is read by its strides, without a copy per head."""
    return _launch_forward(scores, stacked_matrices(mask.expand(scores.shape)), scale)


def causal_backward(grad: Tensor, probs: Tensor, scale: float) -> Tensor:
    """The gradient of the scores [..., s, s] of `causal_softmax`."""
    return _launch_backward(grad, probs, scale, causal=True)


def masked_backward(grad: Tensor, probs: Tensor, scale: float) -> Tensor:
    """The gradient of the scores [..., q, k] of `masked_softmax`; masked elements get 0, as their probs are 0."""
    return _launch_backward(grad, probs, scale, causal=False)


def _launch_forward(scores: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Launch `_forward`; `mask` is [n, m, q, k], where m is the last leading dimension of `scores`, or None: causal."""
    x = matrices(scores)
    probs = torch.empty_like(x)
    n, queries, columns = x.shape
    rows, block = n * queries, launch.block(columns)
    tile = launch.rows_per_tile(rows, block)
    with launch.on_device_of(x):
        _forward[(triton.cdiv(rows, tile),)](
            x,
            None if mask is None else mask.view(torch.uint8),  # the kernel compares bytes with 0
            probs,
            rows,
            queries,
            columns,
            1 if mask is None else mask.shape[1],
            *((0, 0, 0, 0) if mask is None else mask.stride()),
            SCALE=scale,
            WIDE=launch.wide(x.dtype),
            ROWS=tile,
            BLOCK=block,
            BLOCKS=triton.cdiv(columns, block),
            num_warps=launch.warps(tile * block),
        )
    return probs.view(scores.shape)


def _launch_backward(grad: Tensor, probs: Tensor, scale: float, causal: bool) -> Tensor:
    """Launch `_backward`."""
    g, p = matrices(grad), matrices(probs)
    grad_scores = torch.empty_like(p)
    n, queries, columns = p.shape
    rows, block = n * queries, launch.block(columns)
    tile = launch.rows_per_tile(rows, block)
    with launch.on_device_of(p):
        _backward[(triton.cdiv(rows, tile),)](
            g,
            p,
            grad_scores,
            rows,
            queries,
            columns,
            CAUSAL=causal,
            SCALE=scale,
            WIDE=launch.wide(p.dtype),
            ROWS=tile,
            BLOCK=block,
            BLOCKS=triton.cdiv(columns, block),
            num_warps=launch.warps(tile * block),
        )
    return grad_scores.view(grad.shape)
