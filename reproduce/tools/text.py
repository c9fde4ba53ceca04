"""Text to tokens and back: plain bytes, or byte-level BPE trained on the text itself, so that nothing is downloaded.

`write_corpus` makes Megatron's `.bin/.idx` pair and, for BPE, a `.tokenizer.json` of the package tokenizers beside it.
"""

import importlib.util
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ptdp_core.engine.data import BYTE_VOCAB, MEGATRON_DTYPES, MEGATRON_MAGIC, text_files
from ptdp_core.engine.errors import EngineUnavailableError, not_writable
from ptdp_core.packages import missing

END = "<|endoftext|>"  # BPE's token 0, which ends a document; with bytes as tokens that is the byte 0
MAX_VOCAB = 1 << 16


@dataclass(frozen=True)
class Tokenizer:
    """Converts text to token ids below `size` and back; id 0 ends a document."""

    size: int
    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]


def bytes_tokenizer() -> Tokenizer:
    """The tokenizer whose tokens are the bytes of the text in UTF-8."""
    return Tokenizer(
        BYTE_VOCAB, lambda text: list(text.encode()), lambda ids: bytes(ids).decode("utf-8", errors="replace")
    )


def tokenizer_beside(data: str, vocab: int) -> Tokenizer:
    """The tokenizer with which the token file `data` was made; `vocab` is the model's vocabulary.

    It is read from the `.tokenizer.json` beside the file; without one it is bytes if `vocab` is 256. Otherwise
    `ValueError` is raised.
    """
    prefix = Path(data).with_suffix("") if Path(data).suffix in (".bin", ".idx") else Path(data)
    path = Path(f"{prefix}.tokenizer.json")
    if path.exists():
        return _trained(_package().Tokenizer.from_file(str(path)))
    if vocab != BYTE_VOCAB:
        raise ValueError(
            f"data={data!r} has no {path.name} beside it; needs the tokenizer that its tokens come from; "
            "try making the data with `reproduce data`"
        )
    return bytes_tokenizer()


def write_corpus(sources: Iterable[Path], prefix: Path, vocab: int = BYTE_VOCAB) -> tuple[int, int]:
    """Tokenise text files, or folders of them, into `prefix`.bin and .idx; returns the numbers of documents and tokens.

    Each file is one document. With `vocab` = 256 the tokens are bytes; above that, byte-level BPE is trained on the
    files. Raises `ValueError` for sources that cannot be read or a vocabulary out of range, and
    `EngineUnavailableError` if the pair cannot be written or the package tokenizers is missing.
    """
    if not BYTE_VOCAB <= vocab <= MAX_VOCAB:
        raise ValueError(f"vocab={vocab} is out of range; needs {BYTE_VOCAB} <= vocab <= {MAX_VOCAB}; try vocab=4096")
    try:
        files = [file for source in sources for file in text_files(source, "TEXT")]
        if not files:
            raise ValueError("there is no text file; needs at least one; try another folder")
        bpe = _train(files, vocab) if vocab > BYTE_VOCAB else None
        encode = _trained(bpe).encode if bpe else bytes_tokenizer().encode
        return _write(prefix, ([*encode(_read(file)), 0] for file in files), vocab, bpe)
    except UnicodeDecodeError as error:
        raise ValueError(f"a source is no text: {error}; needs files in UTF-8; try naming text files only") from None


def _read(path: Path) -> str:
    """The text of a file in UTF-8. Raises `ValueError` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be read: {error.strerror}; needs a text file; try another") from None


def _package() -> Any:
    """The package tokenizers. Raises `EngineUnavailableError` where it is not installed."""
    if importlib.util.find_spec("tokenizers") is None:
        raise EngineUnavailableError(f"{missing('tokenizers')}, or vocab=256")
    import tokenizers

    return tokenizers


def _train(files: Iterable[Path], vocab: int) -> Any:
    """Train byte-level BPE with `vocab` tokens on the files."""
    package = _package()
    tokenizer = package.Tokenizer(package.models.BPE())
    tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[END],
        initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_read(file) for file in files), trainer)
    return tokenizer


def _trained(tokenizer: Any) -> Tokenizer:
    """A tokenizer of the package as a `Tokenizer`."""
    return Tokenizer(tokenizer.get_vocab_size(), lambda text: tokenizer.encode(text).ids, tokenizer.decode)


def _write(prefix: Path, documents: Iterator[Sequence[int]], vocab: int, bpe: Any) -> tuple[int, int]:
    """Write the pair document by document under temporary names, then rename; the index last, as readers need it."""
    kind = np.uint8 if vocab <= 1 << 8 else np.uint16
    code = next(code for code, dtype in MEGATRON_DTYPES.items() if dtype is kind)
    names = {suffix: Path(f"{prefix}.{suffix}.{os.getpid()}.tmp") for suffix in ("bin", "tokenizer.json", "idx")}
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        sizes = []
        with names["bin"].open("wb") as file:
            for document in documents:
                file.write(np.asarray(document, dtype=kind).tobytes())
                sizes.append(len(document))
        pointers = np.cumsum([0, *sizes[:-1]], dtype=np.int64) * np.dtype(kind).itemsize
        with names["idx"].open("wb") as file:
            file.write(MEGATRON_MAGIC + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1))
            file.write(np.asarray(sizes, dtype=np.int32).tobytes() + pointers.tobytes())
            file.write(np.arange(len(sizes) + 1, dtype=np.int64).tobytes())
        if bpe is None:
            Path(f"{prefix}.tokenizer.json").unlink(missing_ok=True)
        else:
            bpe.save(str(names["tokenizer.json"]))
        for suffix, temporary in names.items():
            if temporary.exists():
                os.replace(temporary, f"{prefix}.{suffix}")
    except OSError as error:
        raise not_writable("out", prefix, error) from None
    finally:
        for temporary in names.values():
            temporary.unlink(missing_ok=True)
    return len(sizes), sum(sizes)
