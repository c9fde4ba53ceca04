"""The metadata of a checkpoint, pickled by `torch.distributed.checkpoint` (DCP): which tensors lie where in which file.

Unpickling can run any program, and a checkpoint may come from somebody else. So nothing that the pickle names is
imported or called: the few classes that DCP's metadata consists of are read as records, and any other name is refused.
DCP's own objects are made from the records once these are checked. The shards DCP reads with
`torch.load(weights_only=True)`.
"""

import gc
import io
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from operator import add, le
from pathlib import Path
from typing import IO, Any, NamedTuple

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from ptdp_core.engine.checkpoint.folder import METADATA, FileSum, manifest
from results import opening

SMALL = 1 << 20  # bytes


class _WrongError(ValueError):
    """What is wrong with metadata, beginning with a verb."""


class _Record:
    """What was pickled of an object: it takes any arguments and any state, and does nothing with them."""

    __slots__ = ("state",)
    state: Any

    def __new__(cls, *arguments: object) -> "_Record":
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        self.state = state


_Whole, _Tensor, _Chunk, _Index, _Span = (
    type(f"_{name}", (_Record,), {"__slots__": ()}) for name in ("Whole", "Tensor", "Chunk", "Index", "Span")
)


class _Size(tuple[int, ...]):
    """A shape or a place in a tensor."""

    __slots__ = ()

    def __new__(cls, numbers: Iterable[int]) -> "_Size":
        size = super().__new__(cls, numbers)
        for number in size:
            if type(number) is not int or number < 0:
                raise _WrongError(f"has {type(number).__name__} or a negative number in a shape")
        return size


# All that DCP's metadata names, and what takes its place. An element type is only a name: the model says it.
DCP = "torch.distributed.checkpoint"
CLASSES: dict[tuple[str, str], Any] = {
    (f"{DCP}.metadata", "Metadata"): _Whole,
    (f"{DCP}.metadata", "TensorStorageMetadata"): _Tensor,
    (f"{DCP}.metadata", "ChunkStorageMetadata"): _Chunk,
    (f"{DCP}.metadata", "MetadataIndex"): _Index,
    (f"{DCP}.filesystem", "_StorageInfo"): _Span,
    ("torch", "Size"): _Size,
    **dict.fromkeys((("torch", name) for name in ("float64", "float32", "bfloat16", "float16")), "an element type"),
    (f"{DCP}.metadata", "TensorProperties"): _Record,
    (f"{DCP}.metadata", "_MEM_FORMAT_ENCODING"): _Record,
    (f"{DCP}.metadata", "StorageMeta"): _Record,
    ("torch.serialization", "_get_layout"): _Record,
    ("pathlib", "PosixPath"): _Record,
    ("pathlib._local", "PosixPath"): _Record,  # in Python 3.13
    ("builtins", "getattr"): _Record,  # Python 3.11.0 to 3.11.3 write so a member of an enumeration
}
# The instructions of such a pickle, with the bytes of their argument; those in COUNTED say in a byte how many follow.
ARGUMENTS = {
    **dict.fromkeys((pickle.MARK, pickle.STOP, pickle.MEMOIZE, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE), 0),
    **dict.fromkeys((pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.EMPTY_TUPLE), 0),
    **dict.fromkeys((pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3), 0),
    **dict.fromkeys((pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS), 0),
    **dict.fromkeys((pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD), 0),
    **dict.fromkeys((pickle.PROTO, pickle.BININT1, pickle.BINGET), 1),
    pickle.BININT2: 2,
    **dict.fromkeys((pickle.BININT, pickle.LONG_BINGET), 4),
    pickle.FRAME: 8,
}
COUNTED = (pickle.SHORT_BINUNICODE, pickle.LONG1)
STEPS = {code[0]: 1 + size for code, size in ARGUMENTS.items()} | {code[0]: 0 for code in COUNTED}
MEMOIZE = pickle.MEMOIZE[0]
GETS = frozenset((pickle.BINGET[0], pickle.LONG_BINGET[0]))
TUPLES = frozenset((pickle.TUPLE[0], pickle.TUPLE1[0], pickle.TUPLE2[0], pickle.TUPLE3[0]))


class _Unpickler(pickle.Unpickler):
    """Reads a pickle into records, lists, dictionaries, tuples, numbers and texts."""

    def find_class(self, module: str, name: str) -> Any:
        """What takes the place of a class that the pickle names."""
        if (module, name) not in CLASSES:
            raise _WrongError(f"names {module}.{name}, which no checkpoint needs")
        return CLASSES[module, name]


def _check_instructions(data: bytes) -> None:
    """Raise `_WrongError` for instructions that DCP's metadata does not consist of.

    A few bytes could ask for any amount of memory (PUT), or for tuples of tuples of tuples that take for ever to hash.
    """
    at, last = 0, 0
    kept: list[int] = []  # the instructions that made what is kept for later
    while at < len(data):
        code = data[at]
        step = STEPS.get(code)
        if step is None:
            raise _WrongError(f"has the instruction {code:#x} at byte {at}")
        if code == MEMOIZE:
            kept.append(last)
        elif code in GETS and kept[int.from_bytes(data[at + 1 : at + step], "little")] in TUPLES:
            raise _WrongError(f"has one tuple in two places, at byte {at}")
        last = code
        at += step or 2 + data[at + 1]


class _Place(NamedTuple):
    """Where a rectangle of a tensor lies: the fields of DCP's own entry, by its names."""

    relative_path: str
    offset: int
    length: int
    transform_descriptors: None = None


class Reader(dcp.FileSystemReader):
    """DCP's reader of the shards of a checkpoint, which is given their metadata and so unpickles none."""

    def __init__(self, path: Path, metadata: Metadata) -> None:
        super().__init__(path)
        self._metadata = metadata

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The metadata that this reader was made with."""
        return self._metadata

    def _slice_file(self, file: IO[bytes], sinfo: Any) -> IO[bytes]:
        """A rectangle's part of a shard; a small one in memory, as `torch.load` asks for it in twenty pieces."""
        if sinfo.length > SMALL:
            return super()._slice_file(file, sinfo)
        file.seek(sinfo.offset)
        return io.BytesIO(file.read(sinfo.length))


def read_metadata(path: Path, shapes: Mapping[str, torch.Size], count: int) -> Metadata:
    """Read where the tensors of these names and global shapes lie in the checkpoint `path`, which has `count` in all.

    Raises `ValueError` if the metadata is none, or says anything else of a tensor than a run can have saved.
    """
    try:
        data = opening.read_bytes(path / METADATA, opening.TRACE)
        with _no_garbage_collection():
            _check_instructions(data)
            whole = _Unpickler(io.BytesIO(data)).load()
            tensors, stored = _fields(whole, _Whole, "state_dict_metadata", "storage_data")
            if len(tensors) != count:
                raise _WrongError(f"has {len(tensors)} tensors, where the model has {count}")
            places = _places(stored, shapes, manifest(path) or {})
            return _metadata(tensors, places, shapes)
    except Exception as error:  # a pickle that no program wrote can end in any error
        reason = error if isinstance(error, _WrongError) else f"cannot be read: {type(error).__name__}: {error}"
        raise ValueError(
            f"load={str(path)!r} has {METADATA} that {reason}; needs the metadata of a run's checkpoint; "
            "try another checkpoint"
        ) from None


def _fields(record: Any, kind: type[_Record], *names: str) -> list[Any]:
    """These fields of a record of that kind."""
    if type(record) is not kind:
        raise _WrongError(f"has {type(record).__name__} where {kind.__name__} belongs")
    return [record.state[name] for name in names]


Places = dict[tuple[str, tuple[int, ...]], _Place]


def _places(stored: Any, shapes: Mapping[str, Any], files: Mapping[str, FileSum]) -> Places:
    """Where each rectangle of the tensors named in `shapes` lies, all within the checkpoint's own files."""
    places = {}
    for index, span in stored.items():
        name, begin = _fields(index, _Index, "fqn", "offset")
        if name not in shapes:
            continue
        file, offset, length = _fields(span, _Span, "relative_path", "offset", "length")
        if span.state.get("transform_descriptors") or not 0 <= offset <= offset + length <= files[file].size:
            raise _WrongError(f"looks for {name} outside of the checkpoint's files")
        places[name, begin] = _Place(file, offset, length)
    return places


def _metadata(tensors: Mapping[str, Any], places: Places, shapes: Mapping[str, torch.Size]) -> Metadata:
    """DCP's own description of these tensors: rectangles that are all stored, with as many elements as the tensors."""
    described: dict[str, Any] = {}
    stored = {}
    for name, shape in shapes.items():
        if name not in tensors:
            raise _WrongError(f"has no {name}")
        size, saved = _fields(tensors[name], _Tensor, "size", "chunks")
        if size != shape:
            raise _WrongError(f"has {name} as {size}, where the model has {tuple(shape)}")
        chunks, elements = [], 0
        for chunk in saved:
            begin, sizes = _fields(chunk, _Chunk, "offsets", "sizes")
            inside = len(begin) == len(sizes) == len(shape) and all(map(le, map(add, begin, sizes), shape))
            if not inside or (name, begin) not in places:
                raise _WrongError(f"has a part of {name} that is outside of it, or is not stored")
            chunks.append(ChunkStorageMetadata(torch.Size(begin), torch.Size(sizes)))
            stored[MetadataIndex(name, begin)] = places[name, begin]
            elements += prod(sizes)
        if elements != prod(shape):
            raise _WrongError(f"has {elements} elements of {name}, which has {prod(shape)}")
        described[name] = TensorStorageMetadata(TensorProperties(), shape, chunks)
    return Metadata(described, storage_data=stored)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Look for no garbage among the records, which are many, and all in use: it would take longer than reading them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
