"""Triton kernels of the weighted sum of rows by their places: a program has a row of the sum. No atomics."""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch

COLUMNS, WARP_COLUMNS = 2048, 512  # that a program reads at once, and that each of its warps does


@triton.jit
def _forward(rows, weights, places, y, columns, K: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), WIDE)
        for k in tl.static_range(K):
            row = tl.load(places + n * K + k) * columns
            v = tl.load(rows + row + column, mask=column < columns, other=0.0).to(WIDE)
            total += v if weights is None else v * tl.load(weights + n * K + k).to(WIDE)
        tl.store(y + n * columns + column, total, mask=column < columns)


@triton.jit
def _backward(
    grad,
    rows,
    weights,
    places,
    grad_rows,
    grad_weights,
    columns,
    K: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n = tl.program_id(0).to(tl.int64)
    for k in tl.static_range(K):
        row = tl.load(places + n * K + k) * columns
        w = tl.load(weights + n * K + k).to(WIDE)
        product = tl.zeros((BLOCK,), WIDE)
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            here = column < columns
            g = tl.load(grad + n * columns + column, mask=here, other=0.0).to(WIDE)
            product += g * tl.load(rows + row + column, mask=here, other=0.0).to(WIDE)
            tl.store(grad_rows + row + column, g * w, mask=here)
        tl.store(grad_weights + n * K + k, tl.sum(product, 0))


def forward(rows: Tensor, weights: Tensor | None, places: Tensor) -> Tensor:
    """y [n, h] of rows [p, h] and their places [n, k], with weights [n, k] or without."""
    rows = rows.contiguous()
    y = rows.new_empty(len(places), rows.size(1))
    _launch(_forward, rows, None if weights is None else weights.contiguous(), places, y)
    return y


def backward(grad: Tensor, rows: Tensor, weights: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of rows and weights from that of y."""
    rows, weights = rows.contiguous(), weights.contiguous()
    gradients = torch.empty_like(rows), torch.empty_like(weights)
    _launch(_backward, grad.contiguous(), rows, weights, places, *gradients)
    return gradients


def _launch(kernel, *tensors: Tensor | None) -> None:
    first, places = tensors[0], next(x for x in tensors if x is not None and x.dtype == torch.int64)
    assert first is not None
    columns = first.size(1)
    block = min(COLUMNS, triton.next_power_of_2(columns))
    shape = {"WIDE": launch.wide(first.dtype), "BLOCK": block, "num_warps": max(1, block // WARP_COLUMNS)}
    with launch.on_device_of(first):
        kernel[(len(places),)](*tensors, columns, K=places.size(1), **shape)
