"""Files of a training run: written durably, checked by a checksum, and used by one run at a time."""

import fcntl
import json
import os
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, NamedTuple

from ptdp_core.engine.errors import not_writable
from results import opening

CHUNK = 1 << 20
LOCK = ".lock"  # in a folder that belongs to one run at a time


class FileSum(NamedTuple):
    """Size in bytes and CRC-32 of a file when it was written."""

    size: int
    crc32: str


def checksum(path: Path) -> str:
    """CRC-32 of a file, as eight hexadecimal digits. It detects accidental damage, not tampering."""
    value = 0
    with opening.open_regular(path) as file:
        while data := file.read(CHUNK):
            value = zlib.crc32(data, value)
    return f"{value:08x}"


def read_json(path: Path, most: int = opening.TEXT) -> Any:
    """The content of a JSON file of at most `most` bytes.

    Raises `ValueError` with the reason, which begins with a verb, if it has none.
    """
    try:
        return json.loads(opening.read_text(path, most))
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except (OSError, ValueError) as error:  # ValueError also for text that is not UTF-8, and a number too long
        raise ValueError(f"cannot be read: {error.strerror if isinstance(error, OSError) else error}") from None


def write_durably(path: Path, parts: Iterable[bytes | memoryview]) -> FileSum:
    """Write a file of these parts, synchronise its contents to disk, and return its sum. Raises `OSError`.

    `synchronise` of its folder makes its name durable, too.
    """
    size = crc32 = 0
    with path.open("wb") as file:
        for part in parts:
            size += file.write(part)
            crc32 = zlib.crc32(part, crc32)
        file.flush()
        os.fsync(file.fileno())
    return FileSum(size, f"{crc32:08x}")


def synchronise(folder: Path) -> None:
    """Synchronise a folder to disk, so that the names of its files survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_place(setting: str, path: Path) -> None:
    """Raise `ValueError` if the folder that a path is to be in is missing. It is not made: it may be a misspelling."""
    if not path.parent.is_dir():
        raise ValueError(
            f"{setting}={str(path)!r}: there is no folder {path.parent}; needs one that is there; "
            f"try mkdir -p {path.parent}"
        )


def check_writable(setting: str, folder: Path) -> None:
    """Create a folder in one that is there, if it does not exist, and check that files can be written to it.

    Raises `ValueError` or `EngineUnavailableError`, naming the setting, if they cannot.
    """
    check_place(setting, folder)
    try:
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise not_writable(setting, folder, error) from None


def lock(setting: str, path: Path) -> IO[bytes]:
    """Open a file for appending, and lock it until it is closed or the process ends, killed or not.

    Raises `ValueError` if another run has locked it, and `EngineUnavailableError` if it cannot be written.
    """
    try:
        file = path.open("ab", buffering=0)
    except OSError as error:
        raise not_writable(setting, path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        place = path.parent if path.name == LOCK else path
        raise ValueError(
            f"{setting}={str(place)!r} is in use by another run; needs a place of its own for each run; "
            f"try another {setting}, or wait for that run to end"
        ) from None
    return file
