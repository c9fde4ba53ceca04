"""The shards of a checkpoint, and the index that says which rectangle of which tensor lies where in them.

A shard has the elements of one rank's rectangles, one after the other, as they lie in memory. The index is JSON:

    {tensor: {"type": "float32", "shape": [50, 8], "parts": [[shard, first element, offsets, sizes], ...]}, ...}

So nothing in a checkpoint is a program. It may come from somebody else all the same: what the index says is checked
against the model and the files' sizes before anything is read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import prod
from operator import add, le
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ptdp_core.engine.checkpoint.folder import INDEX, manifest
from ptdp_core.engine.checkpoint.state import SHORT
from ptdp_core.engine.checkpoint.tensors import Pieces
from ptdp_core.engine.files import FileSum, read_json, write_durably
from results import opening

TYPES = {"float32": torch.float32, "float64": torch.float64}
Place = tuple[int, ...]  # offsets or sizes, by dimension
Index = dict[str, dict[str, Any]]


class Rectangle(NamedTuple):
    """A rectangle of a tensor, and the number of its first element in its shard."""

    shard: str
    begin: int
    offsets: Place
    sizes: Place


class Saved(NamedTuple):
    """What a checkpoint has of a tensor."""

    type: torch.dtype
    parts: list[Rectangle]


class Written(NamedTuple):
    """A shard that has been written: its file, the file's sum, and what the index says of it."""

    name: str
    sum: FileSum
    tensors: Index


class _WrongError(ValueError):
    """What is wrong with an index, beginning with a verb."""


def write_shard(folder: Path, rank: int, pieces: Iterable[tuple[str, Pieces]]) -> Written:
    """Write a rank's shard, of pieces by their tensors' names. Raises `OSError`."""
    name, index = f"rank_{rank:05d}.bin", Index()

    def elements() -> Iterator[memoryview]:
        begin = 0
        for tensor_name, piece in pieces:
            parts: list[Rectangle] = []
            for offsets, tensor in piece.held.items():
                parts.append(Rectangle(name, begin, offsets, tuple(tensor.shape)))
                begin += tensor.numel()
                yield tensor.reshape(-1).cpu().numpy().data.cast("B")
            index[tensor_name] = {
                "type": str(tensor.dtype).removeprefix("torch."),
                "shape": piece.shape,
                "parts": parts,
            }

    return Written(name, write_durably(folder / name, elements()), index)


def write_index(folder: Path, shards: Iterable[Written]) -> FileSum:
    """Write the index of all ranks' shards, and return the file's sum. Raises `OSError`."""
    whole = Index()
    for shard in shards:
        for name, saved in shard.tensors.items():
            whole.setdefault(name, saved | {"parts": []})["parts"] += saved["parts"]
    return write_durably(folder / INDEX, [json.dumps(whole).encode()])


def read_index(path: Path, shapes: Mapping[str, Place], count: int) -> dict[str, Saved]:
    """Read where the tensors of these names and global shapes lie in the checkpoint `path`, which has `count` in all.

    Raises `ValueError` if the index is none, or says anything else of a tensor than a run can have saved.
    """
    try:
        tensors, files = read_json(path / INDEX, opening.TRACE), manifest(path) or {}
        if len(tensors) != count:
            raise _WrongError(f"has {len(tensors)} tensors, where the model has {count}")
        return {name: _checked(name, tensors, shape, files) for name, shape in shapes.items()}
    except Exception as error:  # JSON that no run wrote can end in any error
        reason = error if isinstance(error, _WrongError) else f"is none: {SHORT.repr(error)}"
        raise ValueError(
            f"load={str(path)!r} has {INDEX} that {reason}; needs the index of a run's checkpoint; "
            "try another checkpoint"
        ) from None


def _checked(name: str, tensors: Any, shape: Place, files: Mapping[str, FileSum]) -> Saved:
    """What an index says of a tensor: rectangles inside of it that are all stored, with as many elements as it has."""
    if name not in tensors:
        raise _WrongError(f"has no {name}")
    kind, size, rows = (tensors[name][field] for field in ("type", "shape", "parts"))
    if size != list(shape):
        raise _WrongError(f"has {name} as {SHORT.repr(size)}, where the model has {list(shape)}")
    parts = [Rectangle(shard, begin, tuple(offsets), tuple(sizes)) for shard, begin, offsets, sizes in rows]
    for shard, begin, offsets, sizes in parts:
        if any(type(number) is not int or number < 0 for number in (begin, *offsets, *sizes)):
            raise _WrongError(f"has a part of {name} with what is no whole number from 0")
        if not (len(offsets) == len(sizes) == len(shape) and all(map(le, map(add, offsets, sizes), shape))):
            raise _WrongError(f"has a part of {name} that is outside of it")
        if shard not in files or (begin + prod(sizes)) * TYPES[kind].itemsize > files[shard].size:
            raise _WrongError(f"looks for {name} outside of the checkpoint's files")
    if (elements := sum(prod(part.sizes) for part in parts)) != prod(shape):
        raise _WrongError(f"has {elements} elements of {name}, which has {prod(shape)}")
    return Saved(TYPES[kind], parts)


def read_pieces(path: Path, index: Mapping[str, Saved], pieces: Mapping[str, Pieces]) -> None:
    """Fill this rank's rectangles from those of a checkpoint that they overlap. Raises `OSError`."""
    shards: dict[tuple[str, torch.dtype], torch.Tensor] = {}  # mapped into memory, of which only what is used is read
    for name, piece in pieces.items():
        kind, parts = index[name]
        for (own, target), (shard, begin, offsets, sizes) in product(piece.held.items(), parts):
            starts = [*map(max, offsets, own)]
            stops = [min(a + m, b + n) for a, m, b, n in zip(offsets, sizes, own, target.shape, strict=True)]
            if not all(start < stop for start, stop in zip(starts, stops, strict=True)):
                continue
            if (shard, kind) not in shards:
                size = (path / shard).stat().st_size // kind.itemsize
                shards[shard, kind] = torch.from_file(str(path / shard), shared=False, size=size, dtype=kind)
            source = shards[shard, kind][begin : begin + prod(sizes)].view(sizes)
            _within(target, own, starts, stops).copy_(_within(source, offsets, starts, stops))


def _within(x: torch.Tensor, offsets: Place, starts: Iterable[int], stops: Iterable[int]) -> torch.Tensor:
    """The part of x, which begins at these offsets of a global tensor, from `starts` to `stops` there."""
    return x[tuple(slice(a - at, b - at) for at, a, b in zip(offsets, starts, stops, strict=True))]
