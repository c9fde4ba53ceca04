"""Chooses tile sizes, dtypes and the device for launches of Triton kernels. Imports Triton."""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import functools
from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.layout import accumulation_dtype

TILE = 2048  # elements per program: 16 for each thread of four warps, two 16-byte loads of half precision
MAX_BLOCK = 8192  # a longer row is read in several blocks
CHUNK = 128  # rows that one program sums
_HERE = nullcontext()
MAX_ROWS = 2**31 - TILE  # row numbers are 32 bits in the kernels


def wide(dtype: torch.dtype) -> tl.dtype:
    """The Triton dtype that kernels compute in, for tensors of `dtype`."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Make the device of `x` the current one, on which Triton launches."""
    return torch.cuda.device(x.device) if x.is_cuda and x.get_device() != torch.cuda.current_device() else _HERE


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """The multiprocessors of a GPU; on a CPU few, so that tests have programs of several rows."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def block(columns: int) -> int:
    """The number of columns in a block, a power of two: the whole row if it fits."""
    return min(MAX_BLOCK, triton.next_power_of_2(columns))


def rows_per_tile(rows: int, columns_per_tile: int) -> int:
    """The number of rows of a program, a power of two, with which it has about `TILE` elements.

    Raises `ValueError` for more rows than the kernels can count.
    """
    if rows > MAX_ROWS:
        raise ValueError(f"rows={rows} exceeds {MAX_ROWS}, the limit of the Triton kernels; try compiled")
    return max(1, min(TILE // columns_per_tile, triton.next_power_of_2(rows)))


def warps(elements: int) -> int:
    """Warps for a program with `elements` elements: 16 elements per thread."""
    return max(1, min(16, elements // 512))


def tiles(x: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """Grid and tile of an elementwise kernel over `x` [rows, columns]."""
    return _tiles(*x.shape, TILE)


@functools.lru_cache
def _tiles(rows: int, columns: int, tile: int) -> tuple[tuple[int, int], dict[str, int]]:
    width = min(1024, triton.next_power_of_2(columns))
    height = rows_per_tile(rows, width)
    grid = (triton.cdiv(rows, height), triton.cdiv(columns, width))
    return grid, {"ROWS": height, "COLUMNS": width, "num_warps": warps(height * width)}


def column_sums(x: Tensor) -> tuple[tuple[int, int], Tensor, dict[str, int]]:
    """Grid, partial sums [chunks, columns] and tile of a kernel over `x` that also sums its columns."""
    grid, tile = _chunks(*x.shape, CHUNK, TILE)
    return grid, torch.empty(grid[0], x.size(1), dtype=accumulation_dtype(x.dtype), device=x.device), tile


@functools.lru_cache
def _chunks(rows: int, columns: int, most: int, tile: int) -> tuple[tuple[int, int], dict[str, int]]:
    width = min(128, triton.next_power_of_2(columns))
    chunk = min(most, triton.next_power_of_2(rows))
    height = min(8, chunk, rows_per_tile(rows, width))
    grid = (triton.cdiv(rows, chunk), triton.cdiv(columns, width))
    # Twice the elements, for 8 per thread instead of 16: the derivative and the sums need registers, too.
    return grid, {"CHUNK": chunk, "ROWS": height, "COLUMNS": width, "num_warps": warps(2 * height * width)}
