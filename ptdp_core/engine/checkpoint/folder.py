"""Checkpoints as folders `step_<n>` in the folder of a run: lists, checks, completes and removes them.

A checkpoint is whole if all its files are as they were saved. Its manifest names each file with size and checksum, and
has a checksum of its own. Manifest, state and index are checked every time; the contents of the shards, which may be
terabytes, only when the checkpoint is loaded, by all ranks together. This module imports no torch.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from ptdp_core.engine.files import FileSum, checksum, read_json, synchronise, write_durably

MANIFEST, STATE, INDEX = "manifest.json", "state.json", "tensors.json"
NAME = re.compile(r"step_(\d{8})")
ALWAYS_CHECKED = (STATE, INDEX)
OLD_INDEX = ".metadata"  # of `torch.distributed.checkpoint`, in whose format earlier releases saved


def checkpoint_path(folder: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return folder / f"step_{step:08d}"


def partial_path(path: Path) -> Path:
    """The temporary name of a checkpoint while it is written or removed."""
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
    write_durably(partial / MANIFEST, [json.dumps({"files": rows, "crc32": _sum_of(rows)}, indent=1).encode()])
    synchronise(partial)
    shutil.rmtree(path, ignore_errors=True)
    os.replace(partial, path)
    synchronise(path.parent)


def _sum_of(rows: object) -> str:
    """The CRC-32 of the manifest's rows, as eight hexadecimal digits; equal rows have equal checksums."""
    return f"{zlib.crc32(json.dumps(rows, sort_keys=True).encode()):08x}"


def manifest(path: Path) -> dict[str, FileSum] | None:
    """The files of a checkpoint; None if the manifest is missing or damaged."""
    try:
        data = read_json(path / MANIFEST)
        files = {name: FileSum(*row) for name, row in data["files"].items()}
        whole = data["crc32"] == _sum_of(data["files"]) and all(Path(name).name == name for name in files)
        return files if whole else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used, or None if it seems whole. The contents of the shards are not read."""
    files = manifest(path)
    if files is None:
        return f"has a {MANIFEST} that is missing or damaged"
    if OLD_INDEX in files:
        return "is in the format of release 1.0 (reproduce weights upgrade saves it anew)"
    for name, saved in files.items():
        file = path / name
        if not os.path.isfile(file):  # a pipe or a device would never end
            return f"lacks {name}"
        if file.stat().st_size != saved.size:
            return f"has {name} with {file.stat().st_size} bytes, where {saved.size} were saved"
    return damage(path, ALWAYS_CHECKED)


def damage(path: Path, names: Iterable[str]) -> str | None:
    """What is wrong with the contents of these files of a checkpoint, or None if they are as they were saved."""
    files = manifest(path) or {}
    for name in names:
        if name not in files:
            return f"lacks {name}"
        if checksum(path / name) != files[name].crc32:
            return f"has {name} with other contents than were saved"
    return None


def newest(folder: Path, before: str = "~") -> Path | None:
    """The newest checkpoint in a folder that seems whole (see `problem`) and whose name sorts below `before`."""
    paths = [path for path in checkpoints_in(folder) if path.name < before]
    return next((path for path in reversed(paths) if problem(path) is None), None)


def resolve(path: str | Path, setting: str = "load") -> Path:
    """A checkpoint that seems whole: `path` if it is one, otherwise the newest one in the folder `path`.

    Raises `ValueError` if there is none, naming the `setting` that asked for it; for a damaged checkpoint the error
    says what is wrong, and names an earlier whole one.
    """
    path = Path(path)
    if NAME.fullmatch(path.name):
        if reason := problem(path):
            raise not_whole(path, reason, newest(path.parent, path.name), setting)
        return path
    checkpoint = newest(path)
    if checkpoint is None:
        seen = "".join(f"; {each.name} {problem(each)}" for each in checkpoints_in(path)[-1:])
        raise ValueError(
            f"{setting}={str(path)!r} holds no whole checkpoint; needs step_* inside; "
            f"try the folder of a run's save{seen}"
        )
    return checkpoint


def not_whole(path: Path, reason: str, earlier: Path | None, setting: str = "load") -> ValueError:
    """The error for a checkpoint that cannot be loaded; its fix is to load an `earlier` one, if there is any."""
    fix = f"{setting}={str(earlier)!r}, the newest before it" if earlier else "another: there is none before it"
    return ValueError(f"{setting}={str(path)!r} {reason}; needs a whole checkpoint; try {fix}")


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint to `damaged-step_<n>`, so that it is no longer listed, and return its new path."""
    renamed = path.with_name(f"damaged-{path.name}")
    shutil.rmtree(renamed, ignore_errors=True)
    os.replace(path, renamed)
    return renamed


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints that seem whole; 0 keeps all."""
    whole = [path for path in checkpoints_in(folder) if problem(path) is None]
    for path in whole[:-keep] if keep else []:
        os.replace(path, partial_path(path))  # renamed first, so that a crash leaves no half that is listed
        shutil.rmtree(partial_path(path))


def remove_partial(folder: Path) -> None:
    """Remove the partial checkpoints of earlier runs that were killed while saving."""
    for path in folder.glob(".*.partial"):
        shutil.rmtree(path, ignore_errors=True)
