"""Writes files whole or not at all, and computes digests of files and configurations."""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from results import ROOT

IS_CHECKOUT = (ROOT / "pyproject.toml").is_file()
# An installed copy keeps no results beside its code: they go below the folder that a command is called in.
DEFAULT_RESULTS = ROOT / "results" / "runs" if IS_CHECKOUT else Path.cwd() / "ptdp-results"
DEFAULT_RESULTS_TEXT = "results/runs of the project" if IS_CHECKOUT else "ptdp-results in the current folder"

_FREE_SPACE = "free some space, or name another folder by --results or --out"
_HINTS = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
}


class StorageError(OSError):
    """The file `path` could not be written. An older file at that place is unchanged."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause) or type(cause).__name__)
        self.path = path

    def __str__(self) -> str:
        hint = _HINTS.get(self.errno or 0, "needs a folder that can be written; try another --results or --out")
        return f"cannot write {self.path}: {self.strerror}; {hint}"

    def __reduce__(self) -> tuple[Any, ...]:  # OSError's own would call __init__ with (errno, strerror)
        return StorageError, (self.path, OSError(self.errno, self.strerror))


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to `path`, whole or not at all; folders that are missing above it are made.

    A reader sees the old file or the new one. Whatever interrupts the write, Ctrl-C included, leaves the old
    one and no temporary file. Raises `StorageError`.
    """
    path = Path(path)
    # The temporary file lies in the same folder, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise StorageError(path, error) from error
        raise


def json_lines(value: Any, depth: int, indent: str = "", ascii: bool = False) -> str:
    """JSON text in which items stand on lines of their own down to level `depth`, all else inline: diffs read well.

    Raises `ValueError` for NaN and infinities.
    """
    if not depth or not value or not isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=ascii, allow_nan=False)
    inner, further = indent + " ", (depth - 1, indent + " ", ascii)
    if isinstance(value, Mapping):
        named = ((json.dumps(key, ensure_ascii=ascii), item) for key, item in value.items())
        lines, ends = [f"{inner}{name}: {json_lines(item, *further)}" for name, item in named], "{}"
    else:
        lines, ends = [f"{inner}{json_lines(item, *further)}" for item in value], "[]"
    return f"{ends[0]}\n" + ",\n".join(lines) + f"\n{indent}{ends[1]}"


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write the files, given by name, into a folder and return their paths. Each is written whole or not at all.

    Raises `StorageError`.
    """
    paths = [folder / name for name in files]
    for path in paths:
        atomic_write_bytes(path, files[path.name])
    return paths


def digest_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, as `sha256sum` prints it."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def digest_files(paths: Iterable[str | os.PathLike[str]]) -> str:
    """SHA-256 over the names and contents of several files. Neither their order nor the checkout's place matters.

    A file outside the project counts under its base name.
    """
    named = {}
    for path in {Path(path).resolve() for path in paths}:
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
        if name in named:
            raise ValueError(f"paths={name!r} names two files outside the project; needs different base names")
        named[name] = digest_file(path)
    return fingerprint(named)


def fingerprint(mapping: Mapping[str, Any]) -> str:
    """SHA-256 of `mapping` as canonical JSON: sorted keys, no spaces, no NaN (ValueError).

    Note that 1, 1.0 and True differ, and that a tuple and a list do not.
    """
    text = json.dumps(mapping, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
