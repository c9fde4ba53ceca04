"""Triton kernels that find a matrix's largest element, and round it to FP8 in rows or transposed.

NaN stays NaN, and an infinity makes the scale one, so that no overflow is hidden.
"""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.fp8_cast import TINY, Cast

PROGRAMS, LARGEST_BLOCK, LARGEST_WARPS = 1024, 4096, 8  # partial maxima, and elements that a program reads at once
HEIGHT, WIDTH, WARPS = 128, 64, 8  # of a tile that is transposed: 128 bytes in a column, too


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
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    part = tl.arange(0, PARTS)
    peak = tl.max(tl.load(partial + part, mask=part < parts, other=0.0), 0)
    s = tl.maximum(tl.div_rn(peak, MOST), LEAST)  # `/` may round otherwise
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(scale, s)
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS))[:, None]
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (column < columns)
    v = tl.load(x + row.to(tl.int64) * columns + column, mask=inside, other=0.0).to(tl.float32) / s
    if plain is not None:
        tl.store(plain + row.to(tl.int64) * columns + column, v.to(plain.dtype.element_ty), mask=inside)
    if turned is not None:
        place = turned + tl.trans(column).to(tl.int64) * rows + tl.trans(row)
        tl.store(place, tl.trans(v.to(turned.dtype.element_ty)), mask=tl.trans(inside))


def cast(x: Tensor, dtype: torch.dtype, rows: bool, transposed: bool, into: Cast | None = None) -> Cast:
    """See `fp8_cast`."""
    x = x.contiguous()
    n, m = x.shape
    block = min(LARGEST_BLOCK, triton.next_power_of_2(n * m))
    parts = min(PROGRAMS, triton.cdiv(n * m, block))
    partial = torch.empty(parts, dtype=torch.float32, device=x.device)
    if into is None:
        plain = torch.empty(n, m, dtype=dtype, device=x.device) if rows else None
        turned = torch.empty(m, n, dtype=dtype, device=x.device) if transposed else None
        into = plain, turned, partial.new_empty(())
    height, width = (min(most, triton.next_power_of_2(size)) for most, size in ((HEIGHT, n), (WIDTH, m)))
    with launch.on_device_of(x):
        _largest[(parts,)](x, partial, n * m, BLOCK=block, num_warps=max(1, min(LARGEST_WARPS, block // 256)))
        _cast[(triton.cdiv(m, width), triton.cdiv(n, height))](
            x,
            partial,
            *into,
            n,
            m,
            parts,
            MOST=torch.finfo(dtype).max,
            LEAST=TINY,
            PARTS=triton.next_power_of_2(parts),
            ROWS=height,
            COLUMNS=width,
            num_warps=max(1, min(WARPS, height * width // 256)),
        )
    return into
