"""Triton kernels that find a matrix's largest element, and round it to FP8 in rows or transposed.

NaN stays NaN, and an infinity makes the scale one, so that no overflow is hidden.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.fp8_cast import TINY

PROGRAMS, SIDE = 512, 64  # partial maxima, and the side of a tile that is transposed


@triton.jit
def _largest(x, partial, elements, BLOCK: tl.constexpr):
    peak = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, elements, tl.num_programs(0) * BLOCK):
        place = start + tl.arange(0, BLOCK)
        peak = tl.maximum(peak, tl.abs(tl.load(x + place, mask=place < elements, other=0.0).to(tl.float32)))
    tl.store(partial + tl.program_id(0), tl.max(peak, 0))


@triton.jit
def _cast(
    x,
    partial,
    plain,
    turned,
    scale,
    rows,
    columns,
    parts,
    MOST: tl.constexpr,
    LEAST: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    part = tl.arange(0, PARTS)
    s = tl.maximum(tl.max(tl.load(partial + part, mask=part < parts, other=0.0), 0) / MOST, LEAST)
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(scale, s)
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    inside = (row < rows) & (column < columns)
    v = tl.load(x + row.to(tl.int64) * columns + column, mask=inside, other=0.0).to(tl.float32) / s
    if plain is not None:
        tl.store(plain + row.to(tl.int64) * columns + column, v.to(plain.dtype.element_ty), mask=inside)
    if turned is not None:
        place = turned + tl.trans(column).to(tl.int64) * rows + tl.trans(row)
        tl.store(place, tl.trans(v.to(turned.dtype.element_ty)), mask=tl.trans(inside))


def cast(x: Tensor, dtype: torch.dtype, rows: bool, transposed: bool) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """See `fp8_cast`."""
    x = x.contiguous()
    n, m = x.shape
    block = min(4096, triton.next_power_of_2(n * m))
    parts = min(PROGRAMS, triton.cdiv(n * m, block))
    partial, scale = (torch.empty(size, dtype=torch.float32, device=x.device) for size in ((parts,), ()))
    plain = torch.empty(n, m, dtype=dtype, device=x.device) if rows else None
    turned = torch.empty(m, n, dtype=dtype, device=x.device) if transposed else None
    with launch.on_device_of(x):
        _largest[(parts,)](x, partial, n * m, BLOCK=block, num_warps=launch.warps(block))
        _cast[(triton.cdiv(n, SIDE), triton.cdiv(m, SIDE))](
            x,
            partial,
            plain,
            turned,
            scale,
            n,
            m,
            parts,
            MOST=torch.finfo(dtype).max,
            LEAST=TINY,
            PARTS=triton.next_power_of_2(parts),
            BLOCK=SIDE,
            num_warps=launch.warps(SIDE * SIDE),
        )
    return plain, turned, scale
