"""Text to tokens: the bytes of text files, as Megatron's `.bin/.idx` pair, so that nothing is downloaded."""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ptdp_core.engine.data import MEGATRON_DTYPES, MEGATRON_MAGIC, text_files
from ptdp_core.engine.errors import not_writable
from results import opening


def write_corpus(sources: Iterable[Path], prefix: Path) -> tuple[int, int]:
    """Write text files, or folders of them, into `prefix`.bin and .idx; returns the numbers of documents and tokens.

    Each file is one document; its tokens are its bytes, and a 0 that ends it. Raises `ValueError` for sources that
    cannot be read, and `EngineUnavailableError` if the pair cannot be written.
    """
    try:
        files = [file for source in sources for file in text_files(source, "TEXT")]
        if not files:
            raise ValueError("there is no text file; needs at least one; try another folder")
        return _write(prefix, (_read(file).encode() + b"\0" for file in files))
    except UnicodeDecodeError as error:
        raise ValueError(f"a source is no text: {error}; needs files in UTF-8; try naming text files only") from None


def _read(path: Path) -> str:
    """The text of a file in UTF-8. Raises `ValueError` if it cannot be read."""
    try:
        return opening.read_text(path, most=None)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}; needs a text file; try another") from None


def _write(prefix: Path, documents: Iterator[bytes]) -> tuple[int, int]:
    """Write the pair document by document under temporary names, then rename; the index last, as readers need it."""
    code = next(code for code, dtype in MEGATRON_DTYPES.items() if dtype is np.uint8)
    names = {suffix: Path(f"{prefix}.{suffix}.{os.getpid()}.tmp") for suffix in ("bin", "idx")}
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        sizes = []
        with names["bin"].open("wb") as file:
            for document in documents:
                file.write(document)
                sizes.append(len(document))
        pointers = np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        with names["idx"].open("wb") as file:
            file.write(MEGATRON_MAGIC + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1))
            file.write(np.asarray(sizes, dtype=np.int32).tobytes() + pointers.tobytes())
            file.write(np.arange(len(sizes) + 1, dtype=np.int64).tobytes())
        for suffix, temporary in names.items():
            os.replace(temporary, f"{prefix}.{suffix}")
    except OSError as error:
        raise not_writable("out", prefix, error) from None
    finally:
        for temporary in names.values():
            temporary.unlink(missing_ok=True)
    return len(sizes), sum(sizes)
