"""Triton kernels of the residual connection and the norm behind it.

A program holds whole rows; of the backward kernel in two blocks where one would be half empty. There are as many
programs of that as the GPU runs at once: each walks down its rows, loads the next ones meanwhile, and leaves one row of
partial sums for the gradients of weight, shift and bias each, which another kernel adds. It uses no atomics, so results
repeat exactly on a kind of GPU.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.layout import accumulation_dtype
from kernels.layout import rows as as_rows

# Of the backward kernel: columns of a warp, warps of a multiprocessor, and rows under way, with the one in registers.
WARP_COLUMNS, WARPS, STAGES = 256, 16, 3
SUMMED = 16  # columns whose partial sums a program adds


@triton.jit
def _forward(
    x,
    bias,
    residual,
    weight,
    shift,
    y,
    normed,
    moments,
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
    if shift is not None:
        mean = tl.sum(v, 1)[:, None] / columns
        tl.store(moments + rows + row, mean, mask=row < rows)
        v = tl.where(inside, v - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(v * v, 1)[:, None] / columns + EPS)
    tl.store(moments + row, scale, mask=row < rows)
    n = v * scale * tl.load(weight + column, mask=here, other=0.0).to(WIDE)
    if shift is not None:
        n += tl.load(shift + column, mask=here, other=0.0).to(WIDE)
    tl.store(normed + offset, n, mask=inside)


@triton.jit
def _plus(a, b, c, d):
    return a + c, b + d


@triton.jit
def _load(x, here, FULL: tl.constexpr, WIDE: tl.constexpr):
    return (tl.load(x) if FULL else tl.load(x, mask=here, other=0.0)).to(WIDE)


@triton.jit
def _gradient(g, n, along, mean, scale, skip, grad_x, place, here, FULL: tl.constexpr, WIDE: tl.constexpr):
    """Store and return the gradient of a part of a row."""
    g = (g - n * along - mean) * scale
    if skip is not None:
        g += _load(skip + place, here, FULL, WIDE)
    if FULL:
        tl.store(grad_x + place, g)
    else:
        tl.store(grad_x + place, g, mask=here)
    return g


@triton.jit
def _leave(sums, column, columns, of_weight, of_shift, of_bias, CENTERED: tl.constexpr, BIASED: tl.constexpr):
    place = sums + tl.program_id(0).to(tl.int64) * columns + column
    many = tl.num_programs(0).to(tl.int64) * columns
    tl.store(place, of_weight, mask=column < columns)
    if CENTERED:
        tl.store(place + many, of_shift, mask=column < columns)
    if BIASED:
        tl.store(place + (2 * many if CENTERED else many), of_bias, mask=column < columns)


@triton.jit
def _backward(
    grad,
    skip,
    y,
    weight,
    moments,
    grad_x,
    sums,
    rows,
    columns,
    CENTERED: tl.constexpr,
    BIASED: tl.constexpr,
    STAGES: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    REST: tl.constexpr,
):
    c = tl.arange(0, BLOCK)
    here = c < columns
    w = tl.load(weight + c, mask=here, other=0.0).to(WIDE)
    of_weight, of_shift, of_bias = tl.zeros((BLOCK,), WIDE), tl.zeros((BLOCK,), WIDE), tl.zeros((BLOCK,), WIDE)
    if REST:
        d = BLOCK + tl.arange(0, REST)
        there = d < columns
        v = tl.load(weight + d, mask=there, other=0.0).to(WIDE)
        rest_weight, rest_shift, rest_bias = tl.zeros((REST,), WIDE), tl.zeros((REST,), WIDE), tl.zeros((REST,), WIDE)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        at = tl.cast(row, tl.int64) * columns
        g, n = _load(grad + at + c, here, REST > 0, WIDE), _load(y + at + c, here, REST > 0, WIDE)
        scale = tl.load(moments + row + tl.arange(0, 1))  # in blocks of one, as only these are loaded ahead
        mean = tl.load(moments + rows + row + tl.arange(0, 1)) if CENTERED else tl.zeros((1,), WIDE)
        n = (n - mean) * scale  # not 0 beyond the last column, but g is, and nothing of both is stored there
        of_weight += g * n
        of_shift += g
        g *= w
        along, total = g * n, g
        if REST:
            h, o = _load(grad + at + d, there, False, WIDE), (_load(y + at + d, there, False, WIDE) - mean) * scale
            rest_weight += h * o
            rest_shift += h
            h *= v
            along = tl.sum(tl.reshape(along, (REST, BLOCK // REST)), 1) + h * o
            total = tl.sum(tl.reshape(total, (REST, BLOCK // REST)), 1) + h
        along, total = tl.reduce((along, total), 0, _plus)  # at once, as a program waits for each sum
        along /= columns
        total = total / columns if CENTERED else 0.0
        of_bias += _gradient(g, n, along, total, scale, skip, grad_x, at + c, here, REST > 0, WIDE)
        if REST:
            rest_bias += _gradient(h, o, along, total, scale, skip, grad_x, at + d, there, False, WIDE)
    _leave(sums, c, columns, of_weight, of_shift, of_bias, CENTERED, BIASED)
    if REST:
        _leave(sums, d, columns, rest_weight, rest_shift, rest_bias, CENTERED, BIASED)


@triton.jit
def _totals(sums, out, programs, columns, PROGRAMS: tl.constexpr, COLUMNS: tl.constexpr):
    program = tl.arange(0, PROGRAMS)[:, None]
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    place = (tl.program_id(1) * programs + program) * columns + column
    parts = tl.load(sums + place, mask=(program < programs) & (column < columns), other=0.0)
    tl.store(out + tl.program_id(1) * columns + column, tl.sum(parts, 0)[None, :], mask=column < columns)


def forward(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, weight: Tensor, shift: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """y and n of the formula (`add_norm`), [..., h], and of each row one over the deviation and perhaps the mean.

    Without a residual y is x.
    """
    flat = as_rows(x)
    normed = torch.empty_like(flat)
    y, other = (flat, None) if residual is None else (torch.empty_like(flat), as_rows(residual))
    rows, columns = flat.shape
    moments = torch.empty(1 + (shift is not None), rows, dtype=accumulation_dtype(x.dtype), device=x.device)
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
            moments,
            rows,
            columns,
            EPS=eps,
            WIDE=launch.wide(x.dtype),
            ROWS=height,
            BLOCK=block,
            num_warps=launch.warps(height * block),
        )
    return y.view(x.shape), normed.view(x.shape), moments


@functools.lru_cache
def _blocks(columns: int, of_a_warp: int) -> tuple[int, int, int]:
    """The two blocks of a row, the second 0 if one is mostly full, and warps; a thread has 4 bytes of each at least."""
    whole = triton.next_power_of_2(columns)
    block, warps = whole // 2, max(1, min(32, whole // 2 // of_a_warp))
    rest = max(triton.next_power_of_2(max(1, columns - block)), 64 * warps)
    if rest > block // 2:
        return whole, 0, max(1, min(32, whole // of_a_warp))
    return block, rest, warps


def backward(
    grad: Tensor, skip: Tensor | None, y: Tensor, weight: Tensor, moments: Tensor, biased: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of x (and of the residual), weight, shift and bias from those of n and, if there is one, of y."""
    flat, centered = as_rows(y), len(moments) == 2
    grad_x = torch.empty_like(flat)
    rows, columns = flat.shape
    block, rest, warps = _blocks(columns, WARP_COLUMNS)
    programs = min(rows, launch.multiprocessors(y.device) * max(1, WARPS // warps))
    kinds = 1 + centered + biased
    sums = torch.empty(kinds, programs, columns, dtype=accumulation_dtype(y.dtype), device=y.device)
    totals = weight.new_empty(kinds, columns)
    with launch.on_device_of(y):
        _backward[(programs,)](
            as_rows(grad),
            None if skip is None else as_rows(skip),
            flat,
            weight,
            moments,
            grad_x,
            sums,
            rows,
            columns,
            CENTERED=centered,
            BIASED=biased,
            STAGES=STAGES,
            WIDE=launch.wide(y.dtype),
            BLOCK=block,
            REST=rest,
            num_warps=warps,
        )
        parts = triton.next_power_of_2(programs)
        shape = {"PROGRAMS": parts, "COLUMNS": SUMMED, "num_warps": launch.warps(parts * SUMMED)}
        _totals[(triton.cdiv(columns, SUMMED), kinds)](sums, totals, programs, columns, **shape)
    of_weight, *others = totals.unbind()
    of_shift = others.pop(0) if centered else None
    return grad_x.view(y.shape), of_weight, of_shift, others[0] if biased else None
