"""The function of `dropout_mask.keep_mask` inside Triton kernels, bit for bit."""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import triton
import triton.language as tl

from kernels.dropout_mask import KEEP_BITS

_KEEP_SHIFT = tl.constexpr(32 - KEEP_BITS)


@triton.jit
def _mix(x):
    """`dropout_mask._mix`, on uint32, where a shift to the right brings in zeros by itself."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def keep_mask(seed, row, column, THRESHOLD: tl.constexpr):
    """The mask [rows, columns] of the elements that survive dropout.

    `seed` points at an int64; `row` [rows, 1] and `column` [1, columns] are the elements' indices; `THRESHOLD` is
    `dropout_mask.drop_threshold(p)`.
    """
    word = tl.load(seed)
    low = word.to(tl.uint32)
    high = (word >> 32).to(tl.uint32)
    first = _mix(_mix(row.to(tl.uint32) ^ low) + high)
    second = _mix(first ^ high)
    bits = column.to(tl.uint32) * 0x9E3779B1 + first
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D
    bits = bits ^ second
    bits = (bits ^ (bits >> 15)) * 0x846CA68B
    bits = bits ^ (bits >> 16)
    return (bits >> _KEEP_SHIFT) >= THRESHOLD
