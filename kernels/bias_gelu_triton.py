"""Triton kernels of bias + GeLU, which read and write every element once, forward and backward.

The backward kernel also sums the gradient of the bias: a program walks down `CHUNK` rows of some columns, adds up what
it writes before it is rounded, and leaves one row of partial sums. It uses no atomics, so results repeat exactly.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.bias_gelu import CUBIC, SQRT_2_OVER_PI
from kernels.layout import rows as as_rows

_CUBIC = tl.constexpr(CUBIC)
_SQRT_8_OVER_PI = tl.constexpr(2.0 * SQRT_2_OVER_PI)


@triton.jit
def _sigmoid_and_derivative(u):
    """sigmoid(2 z) of the formula, and sigmoid'(2 z), without overflow or cancellation."""
    e = tl.exp(-tl.abs(u) * (1.0 + u * u * _CUBIC) * _SQRT_8_OVER_PI)
    r = 1.0 / (1.0 + e)
    return tl.where(u >= 0.0, r, e * r), e * r * r


@triton.jit
def _forward(x, bias, y, rows, columns, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    offset = row.to(tl.int64) * columns + column
    b = tl.load(bias + column, mask=column < columns, other=0.0).to(WIDE)
    u = tl.load(x + offset, mask=inside, other=0.0).to(WIDE) + b
    sigmoid, _ = _sigmoid_and_derivative(u)
    tl.store(y + offset, u * sigmoid, mask=inside)


@triton.jit
def _backward(
    grad,
    x,
    bias,
    grad_x,
    partial_sums,
    rows,
    columns,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    b = tl.load(bias + column, mask=column < columns, other=0.0).to(WIDE)
    sums = tl.zeros((ROWS, COLUMNS), WIDE)
    for start in range(0, CHUNK, ROWS):
        row = tl.program_id(0) * CHUNK + start + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (column < columns)
        offset = row.to(tl.int64) * columns + column
        u = tl.load(x + offset, mask=inside, other=0.0).to(WIDE) + b
        g = tl.load(grad + offset, mask=inside, other=0.0).to(WIDE)
        sigmoid, derivative = _sigmoid_and_derivative(u)
        slope = (1.0 + u * u * 3.0 * _CUBIC) * _SQRT_8_OVER_PI
        g = g * (sigmoid + u * derivative * slope)  # 0 outside, because grad is
        tl.store(grad_x + offset, g, mask=inside)
        sums += g
    offset = tl.program_id(0).to(tl.int64) * columns + column
    tl.store(partial_sums + offset, tl.sum(sums, 0)[None, :], mask=column < columns)


def forward(x: Tensor, bias: Tensor) -> Tensor:
    """gelu(x + bias) for x [..., h] and bias [h] (`bias_gelu`)."""
    flat = as_rows(x)
    y = torch.empty_like(flat)
    grid, tile = launch.tiles(flat)
    with launch.on_device_of(x):
        _forward[grid](flat, bias.contiguous(), y, *flat.shape, WIDE=launch.wide(x.dtype), **tile)
    return y.view(x.shape)


def backward(grad: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x [..., h] and of the bias [h] from that of the result."""
    flat = as_rows(x)
    grad_x = torch.empty_like(flat)
    grid, partial_sums, tile = launch.column_sums(flat)
    with launch.on_device_of(x):
        _backward[grid](
            as_rows(grad), flat, bias.contiguous(), grad_x, partial_sums, *flat.shape, WIDE=launch.wide(x.dtype), **tile
        )
    return grad_x.view(x.shape), partial_sums.sum(0).to(bias.dtype)
