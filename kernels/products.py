"""Products of fp32 matrices on a CPU by oneDNN, where one of them is large; all others are PyTorch's.

PyTorch's own are MKL's there, which uses AVX-512 on Intel's processors only. oneDNN, which PyTorch brings along, uses
it on all: on an AMD EPYC it takes half the time (measured). Its calls take the host some microseconds more.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

LEAST = 1 << 16  # elements of a large matrix; of half as many a product of 64 rows takes both the same time


class Products(NamedTuple):
    """x W^T + bias of `linear(x, W, bias)`, and a b of `product(a, b)`; autograd knows no gradient of oneDNN's."""

    linear: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    product: Callable[[Tensor, Tensor], Tensor]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return out


PYTORCH = Products(functional.linear, torch.mm)
ONEDNN = Products(_linear, lambda a, b: _linear(a, b.t(), None))


def products_with(matrix: Tensor) -> Products:
    """How to multiply by this matrix, or into it."""
    if matrix.numel() < LEAST or matrix.dtype != torch.float32 or matrix.device.type != "cpu":
        return PYTORCH
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return ONEDNN if there else PYTORCH
