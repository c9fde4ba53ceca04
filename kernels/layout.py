"""Conventions of all operators: the dtype that they compute in, and how they view a tensor of many dimensions."""

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that operators compute in: float64 for float64, otherwise float32, as 16 bits are too few for sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def rows(x: Tensor) -> Tensor:
    """View x [..., h] as [n, h], contiguous."""
    return x.contiguous().view(-1, x.shape[-1])


def matrices(x: Tensor) -> Tensor:
    """View x [..., q, k] as [n, q, k], contiguous."""
    return x.contiguous().view(-1, x.shape[-2], x.shape[-1])


def stacked_matrices(x: Tensor) -> Tensor:
    """Reshape x [..., q, k] to [n, m, q, k], where m is the last leading dimension; a view where strides allow it.

    There are two leading dimensions, because a mask [b, 1, q, k] that is expanded over heads cannot become
    [b * a, q, k] without a copy.
    """
    m = x.shape[-3] if x.ndim > 2 else 1
    return x.reshape(-1, m, x.shape[-2], x.shape[-1])
