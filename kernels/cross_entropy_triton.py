"""Triton kernels of the loss: a program reads a row of logits once, and another writes the gradient over a block."""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch
from kernels.layout import accumulation_dtype


@triton.jit
def _logits(row, column, columns, valid, WIDE: tl.constexpr):
    """Load a block of a row, -inf where it is padding; the load's mask is of all columns, which several share."""
    x = tl.load(row + column, mask=column < columns, other=-float("inf")).to(WIDE)
    return tl.where(column < valid, x, -float("inf"))


@triton.jit
def _sums(logits, labels, out, rows, columns, valid, first, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    peak = tl.full((), -float("inf"), WIDE)
    total = tl.zeros((), WIDE)
    for start in range(0, valid, BLOCK):
        x = _logits(logits + row * columns, start + column, columns, valid, WIDE)
        new_peak = tl.maximum(peak, tl.max(x, 0))
        total = total * tl.exp(peak - new_peak) + tl.sum(tl.exp(x - new_peak), 0)
        peak = new_peak
    label = tl.load(labels + row) - first
    of_label = tl.load(logits + row * columns + label, mask=(label >= 0) & (label < valid), other=0.0).to(WIDE)
    tl.store(out + row, peak)
    tl.store(out + rows + row, total)
    tl.store(out + 2 * rows + row, of_label)  # 0 where another rank has it


@triton.jit
def _gradient(logits, labels, log_sums, grad, columns, valid, first, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    address = logits + row * columns + column
    x = _logits(logits + row * columns, column, columns, valid, WIDE)
    label = tl.load(labels + row) - first
    p = tl.exp(x - tl.load(log_sums + row))
    tl.store(address, tl.where(column == label, p - 1.0, p) * tl.load(grad + row), mask=column < columns)


def sums(logits: Tensor, labels: Tensor, first: int, vocab: int) -> Tensor:
    """The largest logit of each row, the sum of exponentials less it, and the label's logit, or 0: [3, N].

    The logits [N, V/t] are entries `first` and following of a vocabulary of `vocab`.
    """
    rows, columns = logits.shape
    out = torch.empty(3, rows, dtype=accumulation_dtype(logits.dtype), device=logits.device)
    tile = _tile(logits)
    with launch.on_device_of(logits):
        _sums[(rows,)](logits, labels, out, rows, columns, _valid(columns, first, vocab), first, **tile)
    return out


def gradient(logits: Tensor, labels: Tensor, log_sums: Tensor, grad: Tensor, first: int, vocab: int) -> None:
    """Write the gradient of the logits over them, from the logarithms of the sums and the losses' gradients [N]."""
    rows, columns = logits.shape
    tile = _tile(logits)
    with launch.on_device_of(logits):
        _gradient[(rows, triton.cdiv(columns, tile["BLOCK"]))](
            logits, labels, log_sums, grad, columns, _valid(columns, first, vocab), first, **tile
        )


def _valid(columns: int, first: int, vocab: int) -> int:
    """How many of a rank's entries of the vocabulary are no padding."""
    return max(0, min(columns, vocab - first))


def _tile(logits: Tensor) -> dict[str, object]:
    block = launch.block(logits.size(1))
    return {"WIDE": launch.wide(logits.dtype), "BLOCK": block, "num_warps": launch.warps(block)}
