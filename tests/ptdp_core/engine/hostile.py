"""Checkpoints that somebody edited, with a manifest that fits: no checksum gives them away."""

import io
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import torch

from ptdp_core.engine.checkpoint.folder import MANIFEST, METADATA


class Runs:
    """Unpickling this runs a command that leaves the file `trace`."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.trace}'",)


def seal(checkpoint: Path) -> None:
    """Give a checkpoint the manifest that fits its files as they are now."""
    document = json.loads((checkpoint / MANIFEST).read_text())
    for name in document["files"]:
        data = (checkpoint / name).read_bytes()
        document["files"][name] = [len(data), f"{zlib.crc32(data):08x}"]
    document["crc32"] = f"{zlib.crc32(json.dumps(document['files'], sort_keys=True).encode()):08x}"
    (checkpoint / MANIFEST).write_text(json.dumps(document))


def metadata_of(checkpoint: Path) -> Any:
    """The metadata as torch reads it."""
    return pickle.loads((checkpoint / METADATA).read_bytes())


def put_metadata(checkpoint: Path, metadata: Any) -> None:
    """Write other metadata: an object, or the bytes of a pickle."""
    data = metadata if isinstance(metadata, bytes) else pickle.dumps(metadata)
    (checkpoint / METADATA).write_bytes(data)
    seal(checkpoint)


def put_in_a_shard(checkpoint: Path, value: Any) -> None:
    """Append what torch saves of `value` to a shard, and let the first tensor be looked for there."""
    metadata, buffer = metadata_of(checkpoint), io.BytesIO()
    torch.save(value, buffer)
    place = next(iter(metadata.storage_data.values()))
    with (checkpoint / place.relative_path).open("ab") as shard:
        place.offset, place.length = shard.tell(), len(buffer.getvalue())
        shard.write(buffer.getvalue())
    put_metadata(checkpoint, metadata)
