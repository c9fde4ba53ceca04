"""Checkpoints as folders `step_<n>` in the folder of a run: which are there, whether they are whole, which may go.

A checkpoint's manifest names each of its files with size and checksum, and has a checksum of its own. The manifest,
the state and DCP's metadata are checked wherever a checkpoint is looked at; the shards, which may be terabytes, when it
is loaded, by all ranks together. Loads no torch.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from ptdp_core.engine.files import checksum, synchronise, write_durably

MANIFEST, STATE, METADATA = "manifest.json", "state.json", ".metadata"
NAME = re.compile(r"step_(\d{8})")
ALWAYS_CHECKED = (STATE, METADATA)


class FileSum(NamedTuple):
    """What a file was when it was saved."""

    size: int
    crc32: str

    @classmethod
    def of(cls, path: Path) -> "FileSum":
        """Of a file as it is now."""
        return cls(path.stat().st_size, checksum(path))


def checkpoint_path(folder: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return folder / f"step_{step:08d}"


def partial_path(path: Path) -> Path:
    """Where a checkpoint is while it is written or removed."""
    return path.with_name(f".{path.name}.partial")


def step_of(path: Path) -> int:
    """The number of steps after which a checkpoint was saved."""
    match = NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def checkpoints_in(folder: Path) -> list[Path]:
    """All checkpoints in a folder, whole or not, oldest first."""
    return sorted(path for path in folder.glob("step_*") if NAME.fullmatch(path.name))


def complete(path: Path, files: Mapping[str, FileSum]) -> None:
    """Add the manifest to a partial checkpoint with these files, and give it its final name, durably."""
    rows = {name: list(files[name]) for name in sorted(files)}
    partial = partial_path(path)
    write_durably(partial / MANIFEST, json.dumps({"files": rows, "crc32": _sum_of(rows)}, indent=1))
    synchronise(partial)
    shutil.rmtree(path, ignore_errors=True)
    os.replace(partial, path)
    synchronise(path.parent)


def _sum_of(rows: object) -> str:
    return f"{zlib.crc32(json.dumps(rows, sort_keys=True).encode()):08x}"


def manifest(path: Path) -> dict[str, FileSum] | None:
    """The files of a checkpoint; None if the manifest is missing or damaged."""
    try:
        data = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        files = {name: FileSum(*row) for name, row in data["files"].items()}
        return files if data["crc32"] == _sum_of(data["files"]) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used, looking at everything but the contents of its shards; None if it seems whole."""
    files = manifest(path)
    if files is None:
        return f"has a {MANIFEST} that is missing or damaged"
    for name, saved in files.items():
        file = path / name
        if not file.exists():
            return f"lacks {name}"
        if file.stat().st_size != saved.size:
            return f"has {name} with {file.stat().st_size} bytes, where {saved.size} were saved"
    return damage(path, ALWAYS_CHECKED)


def damage(path: Path, names: Iterable[str]) -> str | None:
    """Which of these files of a checkpoint does not have the contents that were saved."""
    files = manifest(path) or {}
    for name in names:
        if name not in files:
            return f"lacks {name}"
        if checksum(path / name) != files[name].crc32:
            return f"has {name} with other contents than were saved"
    return None


def newest(folder: Path, before: str = "~") -> Path | None:
    """The newest checkpoint in a folder that seems whole (see `problem`)."""
    paths = [path for path in checkpoints_in(folder) if path.name < before]
    return next((path for path in reversed(paths) if problem(path) is None), None)


def resolve(path: str | Path) -> Path:
    """A checkpoint that seems whole: `path` itself, or the newest in it. `ValueError` names what is wrong, and one
    before it."""
    path = Path(path)
    if NAME.fullmatch(path.name):
        if wrong := problem(path):
            raise not_whole(path, wrong, newest(path.parent, path.name))
        return path
    checkpoint = newest(path)
    if checkpoint is None:
        raise ValueError(f"load={str(path)!r} holds no whole checkpoint; needs step_* inside; try without load")
    return checkpoint


def not_whole(path: Path, wrong: str, other: Path | None) -> ValueError:
    """The error for a checkpoint that cannot be loaded, with the way back to another one."""
    fix = f"load={str(other)!r}, the newest before it" if other else "without load: there is none before it"
    return ValueError(f"load={str(path)!r} {wrong}; needs a whole checkpoint; try {fix}")


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that nothing takes it for one; for the user to look at or remove."""
    other = path.with_name(f"damaged-{path.name}")
    shutil.rmtree(other, ignore_errors=True)
    os.replace(path, other)
    return other


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints that seem whole; 0 keeps all."""
    whole = [path for path in checkpoints_in(folder) if problem(path) is None]
    for path in whole[:-keep] if keep else []:
        os.replace(path, partial_path(path))  # at once: a crash meanwhile leaves nothing that looks like a checkpoint
        shutil.rmtree(partial_path(path))


def remove_partial(folder: Path) -> None:
    """Remove what an earlier run that was killed while saving has left."""
    for path in folder.glob(".*.partial"):
        shutil.rmtree(path, ignore_errors=True)
