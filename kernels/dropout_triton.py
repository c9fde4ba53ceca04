"""Triton kernels of dropout and of bias + dropout + residual add, which read and write every element once.

They compute the mask in registers, in backward from the same seed. The backward kernel of bias + dropout + add also
sums the gradient of the bias, as that of `bias_gelu_triton` does.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.dropout_mask import drop_threshold
from kernels.dropout_mask_triton import keep_mask
from kernels.layout import rows as as_rows


@triton.jit
def _dropout(
    x,
    seed,
    y,
    rows,
    columns,
    SCALE: tl.constexpr,
    THRESHOLD: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    offset = row.to(tl.int64) * columns + column
    v = tl.load(x + offset, mask=inside, other=0.0).to(WIDE)
    tl.store(y + offset, tl.where(keep_mask(seed, row, column, THRESHOLD), v * SCALE, 0.0), mask=inside)


@triton.jit
def _bias_dropout_add(
    x,
    bias,
    residual,
    seed,
    y,
    rows,
    columns,
    SCALE: tl.constexpr,
    THRESHOLD: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    offset = row.to(tl.int64) * columns + column
    b = tl.load(bias + column, mask=column < columns, other=0.0).to(WIDE)
    v = tl.load(x + offset, mask=inside, other=0.0).to(WIDE) + b
    r = tl.load(residual + offset, mask=inside, other=0.0).to(WIDE)
    if seed is not None:
        v = tl.where(keep_mask(seed, row, column, THRESHOLD), v * SCALE, 0.0)
    tl.store(y + offset, r + v, mask=inside)


@triton.jit
def _bias_dropout_add_backward(
    grad,
    seed,
    grad_x,
    partial_sums,
    rows,
    columns,
    CHUNK: tl.constexpr,
    SCALE: tl.constexpr,
    THRESHOLD: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    sums = tl.zeros((ROWS, COLUMNS), WIDE)
    for start in range(0, CHUNK, ROWS):
        row = tl.program_id(0) * CHUNK + start + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < columns)
        offset = row.to(tl.int64) * columns + column
        g = tl.load(grad + offset, mask=inside, other=0.0).to(WIDE)
        g = tl.where(keep_mask(seed, row, column, THRESHOLD), g * SCALE, 0.0)
        tl.store(grad_x + offset, g, mask=inside)
        sums += g
    offset = tl.program_id(0).to(tl.int64) * columns + column
    tl.store(partial_sums + offset, tl.sum(sums, 0)[None, :], mask=column < columns)


def dropout(x: Tensor, seed: Tensor, p: float) -> Tensor:
    """Dropout of x [...] under the mask of `seed` (int64 [1]); applied to a gradient it is the backward pass."""
    flat = as_rows(x)
    y = torch.empty_like(flat)
    grid, tile = launch.tiles(flat)
    with launch.on_device_of(x):
        _dropout[grid](flat, seed, y, *flat.shape, **_constants(p, x.dtype), **tile)
    return y.view(x.shape)


def bias_dropout_add(x: Tensor, bias: Tensor, residual: Tensor, seed: Tensor | None, p: float) -> Tensor:
    """residual + dropout(x + bias), [..., h]; without a `seed` (int64 [1]), without dropout."""
    flat = as_rows(x)
    y = torch.empty_like(flat)
    grid, tile = launch.tiles(flat)
    with launch.on_device_of(x):
        _bias_dropout_add[grid](
            flat, bias.contiguous(), as_rows(residual), seed, y, *flat.shape, **_constants(p, x.dtype), **tile
        )
    return y.view(x.shape)


def bias_dropout_add_backward(grad: Tensor, seed: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The gradients of x [..., h] and of the bias [h]; that of the residual is `grad` itself."""
    flat = as_rows(grad)
    grad_x = torch.empty_like(flat)
    grid, partial_sums, tile = launch.column_sums(flat)
    with launch.on_device_of(grad):
        _bias_dropout_add_backward[grid](
            flat, seed, grad_x, partial_sums, *flat.shape, **_constants(p, grad.dtype), **tile
        )
    return grad_x.view(grad.shape), partial_sums.sum(0).to(grad.dtype)


def _constants(p: float, dtype: torch.dtype) -> dict[str, object]:
    """What kernels with dropout are compiled for: the scale, the threshold, and the dtype they compute in."""
    return {"SCALE": 1.0 / (1.0 - p), "THRESHOLD": drop_threshold(p), "WIDE": launch.wide(dtype)}
