"""Checkpoints of release 1.0, which `torch.distributed.checkpoint` (DCP) wrote, saved anew in today's format.

Their index is a pickle, which could run any program. So of all that it names only the few classes which say where a
tensor lies are looked up; what else such an index has is read as a record that does nothing, and any other name is
refused; so are instructions that ask for memory or time without end. This module goes when 1.0 is no longer supported.
"""

import io
import pickle
import pickletools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ptdp_core.engine.checkpoint import folder as folders
from ptdp_core.engine.checkpoint.shards import write_index, write_shard
from ptdp_core.engine.checkpoint.tensors import Pieces
from ptdp_core.engine.errors import not_writable
from ptdp_core.engine.files import write_durably

DCP = "torch.distributed.checkpoint"
LOOKED_UP = {
    *((f"{DCP}.metadata", name) for name in ("Metadata", "TensorStorageMetadata", "ChunkStorageMetadata")),
    (f"{DCP}.metadata", "MetadataIndex"),
    (f"{DCP}.filesystem", "_StorageInfo"),
    *(("torch", name) for name in ("Size", "float32", "float64", "float16", "bfloat16")),
}
RECORDS = {
    *((f"{DCP}.metadata", name) for name in ("TensorProperties", "_MEM_FORMAT_ENCODING", "StorageMeta")),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # in Python 3.13
    ("builtins", "getattr"),  # Python 3.11.0 to 3.11.3 write so a member of an enumeration
}


class _Record:
    """What was pickled of an object that is not needed: it takes any arguments and any state."""

    def __new__(cls, *arguments: object) -> "_Record":
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """A class that the index names. Raises `UnpicklingError` for one that no checkpoint needs."""
        if (module, name) in RECORDS:
            return _Record
        if (module, name) not in LOOKED_UP:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no checkpoint needs")
        return super().find_class(module, name)


def _index(data: bytes) -> Any:
    """The index of a checkpoint. Raises `UnpicklingError` for what DCP does not write.

    A few bytes could ask for any amount of memory (PUT), or for tuples of tuples that take for ever to hash.
    """
    kept, last = list[str](), ""  # the instructions that made what is kept for later, and the one before
    for instruction, argument, at in pickletools.genops(data):
        name = instruction.name
        if name.endswith("PUT") or ("GET" in name and kept[int(str(argument))].startswith("TUPLE")):
            raise pickle.UnpicklingError(f"it has the instruction {name} at byte {at}, which no checkpoint needs")
        if name == "MEMOIZE":
            kept.append(last)
        last = name
    return _Unpickler(io.BytesIO(data)).load()


def upgrade(source: Path, save: Path) -> Path:
    """Save the checkpoint `source` of release 1.0, or the newest in a folder of them, into the folder `save`.

    Returns its new folder. Raises `ValueError` if there is none, if it is damaged, or if its index cannot be read, and
    `EngineUnavailableError` if `save` cannot be written; nothing is left there then.
    """
    steps = [source] if folders.NAME.fullmatch(source.name) else folders.checkpoints_in(source)
    path = next((step for step in reversed(steps) if (step / folders.OLD_INDEX).is_file()), None)
    if path is None:
        raise ValueError(f"{str(source)!r} holds no checkpoint of release 1.0; needs step_* with {folders.OLD_INDEX}")
    if reason := folders.damage(path, files := folders.manifest(path) or (folders.STATE,)):
        raise folders.not_whole(path, reason, None, "upgrade")
    new = folders.checkpoint_path(save, folders.step_of(path))
    partial = folders.partial_path(new)
    if new.exists() or partial.exists():
        raise ValueError(f"--save {save} holds {new.name} already; needs another folder")
    try:
        partial.mkdir(parents=True)
        shard = write_shard(partial, 0, _tensors(path, list(files)))
        sums = {shard.name: shard.sum, folders.INDEX: write_index(partial, [shard])}
        sums[folders.STATE] = write_durably(partial / folders.STATE, [(path / folders.STATE).read_bytes()])
        folders.complete(new, sums)
    except Exception as error:  # a pickle that no run wrote can end in any error
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise not_writable("save", save, error) from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{str(path)!r} cannot be read: {reason}; needs a run's checkpoint") from None
    return new


def _tensors(path: Path, files: list[str]) -> Iterator[tuple[str, Pieces]]:
    """The tensors of a checkpoint by name, one after the other, each in the rectangles that were saved."""
    index = _index((path / folders.OLD_INDEX).read_bytes())
    stored = {(at.fqn, tuple(at.offset)): place for at, place in index.storage_data.items()}
    for name, saved in index.state_dict_metadata.items():
        pieces = Pieces(tuple(saved.size))
        for chunk in saved.chunks:
            place = stored[name, tuple(chunk.offsets)]
            if place.relative_path not in files:
                raise LookupError(f"it looks for {name} outside of the checkpoint's files")
            with open(path / place.relative_path, "rb") as file:
                file.seek(place.offset)
                part = torch.load(io.BytesIO(file.read(place.length)), map_location="cpu", weights_only=True)
            pieces.held[tuple(chunk.offsets)] = part
        yield name, pieces
