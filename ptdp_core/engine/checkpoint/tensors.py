"""A rank's parts of global tensors, as rectangles, and their copies on the host.

Flat buffers are cut without regard to rows. So a rank's part of a matrix is at most three rectangles: the end of a row,
whole rows, and the beginning of a row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import torch

from ptdp_core.layout import ShardSpec


@dataclass(frozen=True)
class Pieces:
    """The rectangles of one global tensor that are on this rank, by the global offsets at which they begin."""

    shape: tuple[int, ...]
    held: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)


class Staging:
    """Buffers in the host's memory, made at the first save and kept for the next ones.

    For a GPU they are pinned: it then copies at the full rate of its link, and the host does not wait. The copies are
    queued on the compute stream, so that the next optimizer step, which overwrites the state, comes after them. (No GPU
    has run this yet.)
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._buffers: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def copy(self, pieces: Mapping[str, Pieces]) -> None:
        """Replace all tensors of `pieces` by copies. They must not be read before `wait` has returned."""
        for name, piece in pieces.items():
            for offsets, tensor in piece.held.items():
                buffer = self._buffers.get((name, offsets))
                if buffer is None:
                    buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._on_gpu)
                    self._buffers[name, offsets] = buffer
                piece.held[offsets] = buffer.copy_(tensor, non_blocking=True)
        if self._on_gpu:
            self._copied = torch.cuda.Event()
            self._copied.record()

    def wait(self) -> None:
        """Wait until a GPU has made the copies; on a CPU they are there when `copy` returns."""
        if self._copied is not None:
            self._copied.synchronize()


def rectangles(shard: ShardSpec, start: int, stop: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Cut elements [start, stop) of a flattened local parameter into rectangles of the global one, without padding.

    Yields (global offsets, sizes, first element in the flattened local parameter) of at most three rectangles, for each
    expert of a stack.
    """
    if shard.parameter.stacked:
        yield from _stacked_rectangles(shard, start, stop)
        return
    split, length = shard.parameter.split, shard.stop - shard.start
    if len(shard.shape) == 1:
        stop = min(stop, length)
        if start < stop:
            yield (shard.start + start,), (stop - start,), start
        return
    width = shard.shape[1]
    row0, column0 = (shard.start, 0) if split == 0 else (0, shard.start if split == 1 else 0)
    stop = min(stop, length * width) if split == 0 else stop
    while start < stop:
        row, column = divmod(start, width)
        if column or stop - start < width:
            count = min(width - column, stop - start)
            size = (1, count)
        else:
            size = ((stop - start) // width, width)
            count = prod(size)
        yield (row0 + row, column0 + column), size, start
        start += count


def _stacked_rectangles(
    shard: ShardSpec, start: int, stop: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """`rectangles` of the matrices of a stack, each of which gives those of a matrix."""
    matrix = replace(shard, parameter=shard.parameter._replace(stacked=False), shape=shard.shape[1:])
    size = matrix.elements
    for number in range(start // size, -(-stop // size)):
        first = number * size
        for offsets, sizes, begin in rectangles(matrix, max(start - first, 0), min(stop - first, size)):
            yield (shard.first_expert + number, *offsets), (1, *sizes), first + begin
