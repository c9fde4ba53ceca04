"""Triton kernels of the residual connection and the norm behind it.

A program holds whole rows. The backward kernel walks down `CHUNK` rows, and leaves one row of partial sums for the
gradients of weight, shift and bias each; it uses no atomics, so results repeat exactly.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.layout import accumulation_dtype
from kernels.layout import rows as as_rows

CHUNK = 16  # rows that a program of the backward pass sums


@triton.jit
def _normalised(v, inside, columns, CENTERED: tl.constexpr, EPS: tl.constexpr):
    """Rows of v, which are 0 outside, over their standard deviations, and one over these."""
    if CENTERED:
        v = tl.where(inside, v - tl.sum(v, 1)[:, None] / columns, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(v * v, 1)[:, None] / columns + EPS)
    return v * scale, scale


@triton.jit
def _forward(
    x,
    bias,
    residual,
    weight,
    shift,
    y,
    normed,
    rows,
    columns,
    EPS: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    here = column < columns
    inside = (row < rows) & here
    offset = row.to(tl.int64) * columns + column
    v = tl.load(x + offset, mask=inside, other=0.0).to(WIDE)
    if residual is not None:
        if bias is not None:
            v += tl.load(bias + column, mask=here, other=0.0).to(WIDE)
        v += tl.load(residual + offset, mask=inside, other=0.0).to(WIDE)
        rounded = v.to(y.dtype.element_ty)
        tl.store(y + offset, rounded, mask=inside)
        v = tl.where(inside, rounded.to(WIDE), 0.0)
    n, _ = _normalised(v, inside, columns, shift is not None, EPS)
    n *= tl.load(weight + column, mask=here, other=0.0).to(WIDE)
    if shift is not None:
        n += tl.load(shift + column, mask=here, other=0.0).to(WIDE)
    tl.store(normed + offset, n, mask=inside)


@triton.jit
def _backward(
    grad,
    skip,
    y,
    weight,
    grad_x,
    sums,
    rows,
    columns,
    CENTERED: tl.constexpr,
    BIASED: tl.constexpr,
    EPS: tl.constexpr,
    CHUNK: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    column = tl.arange(0, BLOCK)[None, :]
    here = column < columns
    w = tl.load(weight + column, mask=here, other=0.0).to(WIDE)
    of_weight = tl.zeros((ROWS, BLOCK), WIDE)
    of_shift = tl.zeros((ROWS, BLOCK), WIDE)
    of_bias = tl.zeros((ROWS, BLOCK), WIDE)
    for start in range(0, CHUNK, ROWS):
        row = tl.program_id(0) * CHUNK + start + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & here
        offset = row.to(tl.int64) * columns + column
        v = tl.load(y + offset, mask=inside, other=0.0).to(WIDE)
        n, scale = _normalised(v, inside, columns, CENTERED, EPS)
        g = tl.load(grad + offset, mask=inside, other=0.0).to(WIDE)
        of_weight += g * n
        if CENTERED:
            of_shift += g
        g *= w
        along = n * (tl.sum(g * n, 1)[:, None] / columns)
        if CENTERED:
            g -= tl.sum(g, 1)[:, None] / columns
        g = (g - along) * scale
        if skip is not None:
            g += tl.load(skip + offset, mask=inside, other=0.0).to(WIDE)
        tl.store(grad_x + offset, g, mask=inside)
        if BIASED:
            of_bias += tl.where(inside, g, 0.0)
    place = sums + tl.program_id(0).to(tl.int64) * columns + column
    many = tl.num_programs(0).to(tl.int64) * columns
    tl.store(place, tl.sum(of_weight, 0)[None, :], mask=here)
    if CENTERED:
        tl.store(place + many, tl.sum(of_shift, 0)[None, :], mask=here)
    if BIASED:
        tl.store(place + (2 * many if CENTERED else many), tl.sum(of_bias, 0)[None, :], mask=here)


def forward(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, weight: Tensor, shift: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """y and n of the formula (`add_norm`), [..., h]; without a residual y is x."""
    flat = as_rows(x)
    normed = torch.empty_like(flat)
    y, other = (flat, None) if residual is None else (torch.empty_like(flat), as_rows(residual))
    rows, columns = flat.shape
    block = triton.next_power_of_2(columns)
    height = launch.rows_per_tile(rows, block)
    with launch.on_device_of(x):
        _forward[(triton.cdiv(rows, height),)](
            flat,
            bias,
            other,
            weight,
            shift,
            y,
            normed,
            rows,
            columns,
            EPS=eps,
            WIDE=launch.wide(x.dtype),
            ROWS=height,
            BLOCK=block,
            num_warps=launch.warps(height * block),
        )
    return y.view(x.shape), normed.view(x.shape)


def backward(
    grad: Tensor, skip: Tensor | None, y: Tensor, weight: Tensor, centered: bool, biased: bool, eps: float
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of x (and of the residual), weight, shift and bias from those of n and, if there is one, of y."""
    flat = as_rows(y)
    grad_x = torch.empty_like(flat)
    rows, columns = flat.shape
    block = triton.next_power_of_2(columns)
    chunk = min(CHUNK, triton.next_power_of_2(rows))
    height = min(chunk, launch.rows_per_tile(rows, block))
    programs = triton.cdiv(rows, chunk)
    sums = torch.empty(1 + centered + biased, programs, columns, dtype=accumulation_dtype(y.dtype), device=y.device)
    with launch.on_device_of(y):
        _backward[(programs,)](
            as_rows(grad),
            None if skip is None else as_rows(skip),
            flat,
            weight,
            grad_x,
            sums,
            rows,
            columns,
            CENTERED=centered,
            BIASED=biased,
            EPS=eps,
            CHUNK=chunk,
            WIDE=launch.wide(y.dtype),
            ROWS=height,
            BLOCK=block,
            num_warps=max(1, min(32, height * block // 256)),  # 8 elements a thread, for registers
        )
    of_weight, *others = sums.sum(1).to(weight.dtype).unbind()
    of_shift = others.pop(0) if centered else None
    return grad_x.view(y.shape), of_weight, of_shift, others[0] if biased else None
