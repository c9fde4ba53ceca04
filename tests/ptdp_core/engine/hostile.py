"""Checkpoints that somebody edited, with a manifest that fits: no checksum gives them away."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

from ptdp_core.engine.checkpoint.folder import INDEX, MANIFEST


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


def index_of(checkpoint: Path) -> Any:
    """The index of its tensors."""
    return json.loads((checkpoint / INDEX).read_text())


def put(checkpoint: Path, name: str, data: bytes) -> None:
    """Write another file in place of one of a checkpoint's."""
    (checkpoint / name).write_bytes(data)
    seal(checkpoint)


def put_index(checkpoint: Path, index: Any) -> None:
    """Write another index."""
    put(checkpoint, INDEX, json.dumps(index).encode())
