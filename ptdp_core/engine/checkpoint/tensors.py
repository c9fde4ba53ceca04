"""A rank's parts of global tensors, as rectangles, their copies on the host, and what torch saves them with.

Flat buffers are cut without regard to rows. So a rank's part of a matrix is at most three rectangles: the end of a row,
whole rows, and the beginning of a row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from ptdp_core.layout import ShardSpec


class Pieces:
    """The rectangles of one global tensor that are on this rank, by the global offsets at which they begin."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = torch.Size(shape)
        self.held: dict[torch.Size, torch.Tensor] = {}

    def chunks(self) -> list[ChunkStorageMetadata]:
        """The offsets and sizes of the rectangles, as torch describes them."""
        return [ChunkStorageMetadata(offsets, tensor.size()) for offsets, tensor in self.held.items()]

    def at(self, index: MetadataIndex) -> torch.Tensor:
        """The rectangle that a write or read item of a plan refers to."""
        assert index.offset is not None
        return self.held[index.offset]


class Staging:
    """Buffers in the host's memory, made at the first save and kept for the next ones.

    For a GPU they are pinned: it then copies at the full rate of its link, and the host does not wait. The copies are
    queued on the compute stream, so that the next optimizer step, which overwrites the state, comes after them. (No GPU
    has run this yet.)
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._buffers: dict[tuple[str, torch.Size], torch.Tensor] = {}
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


class SavePlanner(dcp.DefaultSavePlanner):
    """torch's planner, for a flat dictionary of `Pieces`. Its methods are those that torch calls."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def create_local_plan(self) -> SavePlan:
        """List this rank's rectangles for writing."""
        items = []
        for name, pieces in self.state_dict.items():
            for chunk, tensor in zip(pieces.chunks(), pieces.held.values(), strict=True):
                data = TensorWriteData(chunk, TensorProperties.create_from_tensor(tensor), pieces.shape)
                items.append(WriteItem(MetadataIndex(name, chunk.offsets), WriteItemType.SHARD, tensor_data=data))
        self.plan = SavePlan(items)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        """The rectangle to write."""
        return self.state_dict[index.fqn].at(index)


class Writer(dcp.FileSystemWriter):
    """torch's writer of files, which raises the operating system's error where torch raises one of its own.

    When a write fails, for want of space, torch still tries to end its archive, finds that it is too short, and raises
    a `RuntimeError` about that. The cause hangs on that error only on the rank that had it, and is lost on the way to
    the others.
    """

    def write_data(self, plan: SavePlan, planner: dcp.SavePlanner) -> Any:
        """Write this rank's file; its method is one that torch calls. Raises `OSError` if that fails."""
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, OSError):
                cause = cause.__cause__ or cause.__context__
            if cause is None:
                raise
            raise cause from None


class LoadPlanner(dcp.DefaultLoadPlanner):
    """torch's planner, for a flat dictionary of `Pieces`, which need not have all tensors of the checkpoint.

    Its methods are those that torch calls.
    """

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Keep what torch tells: our pieces, and the metadata of the checkpoint."""
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """List what to read: the parts of saved rectangles that overlap this rank's rectangles."""
        assert self.metadata is not None
        items = []
        for name, pieces in self.state_dict.items():
            saved = self.metadata.state_dict_metadata[name]
            assert isinstance(saved, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(name, saved, pieces.chunks())
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The rectangle to read into."""
        return self.state_dict[index.fqn].at(index)


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
