"""The one way to open what users name: regular files only, and no more bytes than a limit, also once unpacked.

A pipe would never end, `/dev/zero` neither, and 100 KB of gzip can be gigabytes. Whatever is refused is an `OSError`,
as is a file that is missing: those who read say what they need in its place.
"""

import errno
import os
import stat
from collections.abc import Container
from pathlib import Path
from typing import BinaryIO

MIB = 1 << 20
TOML = MIB  # which Python parses at a megabyte a second
TEXT = 32 * MIB  # configurations, tables, logs, records
TRACE = 512 * MIB
ARCHIVE = 16 * MIB  # of several files, four times as much unpacked
UNPACKED = 16 * MIB  # at least as much may come out of a packed file, and at most
RATIO = 100  # times what is in it: traces are packed to a tenth or a thirtieth

Name = str | os.PathLike[str]


def open_regular(path: Name, within: Path | None = None) -> BinaryIO:
    """Open a regular file to read, which lies in the folder `within` if that is given. Raises `OSError`."""
    if within is not None and not Path(path).resolve().is_relative_to(within.resolve()):
        raise OSError(errno.EACCES, f"lies outside of {within}", os.fspath(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # of a pipe that nobody writes: at once
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    kind = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(kind, os.strerror(kind) if stat.S_ISDIR(mode) else "is no regular file", os.fspath(path))


def read_bytes(path: Name, most: int | None = TEXT, within: Path | None = None) -> bytes:
    """The bytes of a regular file of at most `most`, if that is not None. Raises `OSError`."""
    with open_regular(path, within) as file:
        if most is None:
            return file.read()
        # A file of /proc has no size before it is read. As much memory is set aside as bytes are asked for.
        size = os.fstat(file.fileno()).st_size or most
        too_large = size > most or len(data := file.read(size + 1)) > most
    if too_large:
        raise _too_large(path, most)
    return data


def read_text(
    path: Name, most: int | None = TEXT, encoding: str = "utf-8", within: Path | None = None, errors: str = "strict"
) -> str:
    """The text of a regular file, its lines ended by newlines. Raises `OSError`, and `UnicodeDecodeError`."""
    text = read_bytes(path, most, within).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_packed(path: Name, most: int = TRACE) -> bytes:
    """The bytes of a regular file, unpacked if they are gzip's. Raises `OSError`, and `zlib.error` for damaged ones."""
    data = read_bytes(path, most)
    if not data.startswith(b"\x1f\x8b"):
        return data
    import zlib

    most, parts, size = min(most, max(UNPACKED, RATIO * len(data))), [], 0
    while data.startswith(b"\x1f\x8b"):  # one packed part after the other
        unpacker = zlib.decompressobj(wbits=31)
        parts.append(unpacker.decompress(data, most + 1 - size))
        size += len(parts[-1])
        if size > most:
            raise _too_large(path, most)
        if not unpacker.eof:
            raise zlib.error("ends too early")
        data = unpacker.unused_data
    return b"".join(parts)


def read_archive(path: Name, names: Container[str], most: int = ARCHIVE) -> dict[str, bytes]:
    """The files of a zip archive of at most `most` bytes, all of them among `names`. Raises `OSError`."""
    import io
    import zipfile
    import zlib

    data = read_bytes(path, most)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            found = {entry.filename: entry for entry in entries}
            plain = all(entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries)
            if not plain or len(found) < len(entries) or any(name not in names for name in found):
                raise OSError(errno.EINVAL, "holds what no such archive does", os.fspath(path))
            if sum(entry.file_size for entry in entries) > 4 * most:
                raise _too_large(path, most)
            # By its size: a plain `read` unpacks all there is before it compares.
            return {name: archive.open(entry).read(entry.file_size) for name, entry in found.items()}
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError) as error:
        raise OSError(errno.EINVAL, f"is no whole zip archive ({error})", os.fspath(path)) from None


def _too_large(path: Name, most: int) -> OSError:
    return OSError(errno.EFBIG, f"has more than {most // MIB} MiB", os.fspath(path))
