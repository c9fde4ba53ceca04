"""Dropout masks that are computed from a seed, wherever they are needed, and never stored.

Every call of a fused operator draws one seed from the default generator of its device: what restores that generator,
such as activation recomputation, gets the same seed and so the same mask. Backward computes the mask again.

The mask is computed inside the kernels, from (seed, row, column) of the input seen as [rows, columns]: the functions
here and in `dropout_mask_triton` are the same, bit for bit. The hash is two multiply-xorshift rounds of 32 bits, keyed
before and between them by two keys of the row. Correlations over distances in row and column, over neighbouring seeds
and of triples stay below what 10^8 elements can show. A counter-based generator such as Philox would do no better for
dropout, at several times the integer operations: more time than moving the data takes.

The reference leaves all this to PyTorch's dropout, which draws a mask and stores it, as the paper's unfused code did.
"""

import torch
from torch import Tensor

Keys = tuple[Tensor, Tensor, Tensor]  # [1, columns], [rows, 1], [rows, 1]; int32

KEEP_BITS = 24  # p is rounded to multiples of 2^-24, the spacing of float32 below 1


def draw_seed(x: Tensor) -> Tensor:
    """A seed [1] int64 on the device of `x`, from its default generator; the host does not wait for it."""
    return torch.randint(2**63 - 1, (1,), dtype=torch.int64, device=x.device)


def drop_threshold(p: float) -> int:
    """The integer below which an element's `KEEP_BITS` random bits have to be for it to be dropped."""
    return round(p * 2**KEEP_BITS)


def mask_keys(seed: Tensor, rows: int, columns: int) -> Keys:
    """The keys that a mask of [rows, columns] is computed from: one per column, two per row. `seed` is int64 [1].

    They are not computed in `keep_mask`, because a compiler that sees both computes the keys again for every element.
    """
    low, high = seed.to(torch.int32), (seed >> 32).to(torch.int32)
    row = _indices(rows, seed)[:, None]
    first = _mix(_mix(row ^ low) + high)
    return _indices(columns, seed)[None, :] * _signed(0x9E3779B1), first, _mix(first ^ high)


def keep_mask(keys: Keys, p: float) -> Tensor:
    """The bool mask [rows, columns] of the elements that survive dropout with probability `p`.

    It consists of plain integer operators, which `torch.compile` fuses into the user of the mask; eagerly it is slow.
    """
    column, first, second = keys
    bits = column + first
    bits = (bits ^ _shift(bits, 16)) * _signed(0x7FEB352D)
    bits = bits ^ second
    bits = (bits ^ _shift(bits, 15)) * _signed(0x846CA68B)
    bits = bits ^ _shift(bits, 16)
    return _shift(bits, 32 - KEEP_BITS) >= drop_threshold(p)


def _indices(count: int, like: Tensor) -> Tensor:
    """0 to count - 1 as int32 on the device of `like`; counted in int64, so that numbers above 2^31 wrap around."""
    return torch.arange(count, dtype=torch.int64, device=like.device).to(torch.int32)


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32 bits in which every input bit flips about half of the output bits."""
    x = (x ^ _shift(x, 16)) * _signed(0x7FEB352D)
    x = (x ^ _shift(x, 15)) * _signed(0x846CA68B)
    return x ^ _shift(x, 16)


def _shift(x: Tensor, count: int) -> Tensor:
    """Shift right without copies of the sign: int32 stands for uint32, which PyTorch hardly computes with."""
    return (x >> count) & ((1 << (32 - count)) - 1)


def _signed(constant: int) -> int:
    """The int32 with the bits of a uint32 `constant`."""
    return constant - 2**32 if constant >= 2**31 else constant
