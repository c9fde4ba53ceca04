"""Training data: a memory-mapped stream of tokens, cut into sequences, drawn in an order that all layouts share.

The seed fixes sample i of a run: each epoch is a permutation of all sequences. Step k (from 0) trains on samples k*B to
(k+1)*B - 1; microbatch j of data-parallel rank r has b of them, starting at number (j*d + r)*b. So every layout sees
the same batches, and a run can be resumed from the number of samples consumed alone.

Sources: by default bytes of the Python standard library's source; a text file or a folder of them (bytes too);
Megatron's `.bin/.idx` pairs; and `.tokens` files, into which the first two are converted.
"""

import contextlib
import hashlib
import os
import struct
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ptdp_core.config import ParallelConfig
from ptdp_core.engine.errors import not_writable
from ptdp_core.engine.pipeline import Batch
from results import opening

MAGIC = b"PTDPTOK1"
HEADER = struct.Struct("<8sBxxxIQ")  # magic, bytes per token, vocabulary, number of tokens
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"
WIDTHS = {1: "<u1", 2: "<u2", 4: "<u4"}
MEGATRON_DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}
DEFAULT_BYTES = 16 << 20
BYTE_VOCAB = 256
BLOCK = 1 << 22  # tokens that are checked at a time
MAX_CHECKED = 1 << 32  # tokens of a file that are compared with the vocabulary before training
FINGERPRINT_BLOCKS, FINGERPRINT_BLOCK = 64, 4096


@dataclass(frozen=True)
class Tokens:
    """A stream of token ids, as a read-only memory map of the file `path`."""

    path: Path
    ids: np.ndarray
    vocab: int | None  # None: unknown until read


def open_tokens(path: str | Path) -> Tokens:
    """Open a `.tokens` file, or a Megatron pair by its `.bin`, `.idx` or common prefix. `ValueError` if corrupt."""
    path = Path(path)
    if path.suffix == ".tokens":
        return _open_own(path)
    prefix = path.with_suffix("") if path.suffix in (".bin", ".idx") else path
    return _open_megatron(prefix)


def _open_own(path: Path) -> Tokens:
    """Open a `.tokens` file: a `HEADER`, then little-endian unsigned integers of 1, 2 or 4 bytes."""
    with opening.open_regular(path) as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size or not head.startswith(MAGIC):
        raise _corrupt(path, "has no valid header")
    _, width, vocab, count = HEADER.unpack(head)
    if width not in WIDTHS:
        raise _corrupt(path, f"has {width} bytes per token")
    _check_size(path, HEADER.size + width * count)
    ids = np.memmap(path, dtype=WIDTHS[width], mode="r", offset=HEADER.size, shape=(count,))
    return Tokens(path, ids, vocab)


def _open_megatron(prefix: Path) -> Tokens:
    """Open a Megatron pair: `prefix`.idx with the type and the sequences' lengths, `prefix`.bin with the tokens."""
    index, path = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    if not index.exists():
        raise ValueError(
            f"data={str(prefix)!r} has no index {index.name}; needs both files of a Megatron pair in one folder; "
            f"try copying {index.name} there"
        )
    with opening.open_regular(index) as file:
        head = file.read(34)
    if len(head) < 34 or not head.startswith(MEGATRON_MAGIC):
        raise _corrupt(index, "is no Megatron index")
    version, code, sequences, _ = struct.unpack("<QBQQ", head[9:])
    if version != 1 or code not in MEGATRON_DTYPES:
        raise _corrupt(index, f"has version {version} and data type code {code}")
    if index.stat().st_size < 34 + 4 * sequences:
        raise _corrupt(index, "is shorter than its number of sequences asks for")
    if sequences == 0:
        raise _corrupt(index, "lists no sequences")
    sizes = np.memmap(index, dtype="<i4", mode="r", offset=34, shape=(sequences,))
    dtype = np.dtype(MEGATRON_DTYPES[code])
    _check_size(path, int(sizes.sum(dtype=np.int64)) * dtype.itemsize)
    return Tokens(path, np.memmap(path, dtype=dtype, mode="r"), None)


def _check_size(path: Path, expected: int) -> None:
    size = path.stat().st_size if path.exists() else 0
    if size != expected:
        raise _corrupt(path, f"has {size} bytes, where {expected} are expected")


def _corrupt(path: Path, why: str) -> ValueError:
    return ValueError(
        f"data={str(path)!r} {why}; needs an intact token file; try making it again from its text, or another --data"
    )


def fingerprint(tokens: Tokens) -> str:
    """A text that identifies a stream of tokens by its contents, not by its path.

    It is the number of tokens and a hash of blocks spread evenly over the stream.
    """
    count = len(tokens.ids)
    digest = hashlib.sha256(str(count).encode())
    for start in np.linspace(0, max(0, count - FINGERPRINT_BLOCK), FINGERPRINT_BLOCKS, dtype=np.int64):
        digest.update(tokens.ids[start : start + FINGERPRINT_BLOCK].astype("<i8").tobytes())
    return f"{count} tokens, sha256 {digest.hexdigest()[:16]}"


def check_vocabulary(tokens: Tokens, vocab: int) -> None:
    """Raise `ValueError` naming the first token outside the vocabulary: of all, or in 2^32 of them, evenly spread."""
    ids = tokens.ids
    largest = np.iinfo(ids.dtype).max if ids.dtype.kind == "u" else vocab
    if largest < vocab:  # every value of this type is in the vocabulary
        return
    starts = range(0, len(ids), BLOCK)
    for start in starts[:: -(-len(ids) // MAX_CHECKED)]:
        block = ids[start : start + BLOCK]
        if block.max() >= vocab or block.min() < 0:
            position = start + int(np.argmax((block >= vocab) | (block < 0)))
            raise _outside(tokens, position, vocab)


def _outside(tokens: Tokens, position: int, vocab: int) -> ValueError:
    token = int(tokens.ids[position])
    fix = f"vocab={token + 1}, or the tokenizer's own size" if token >= vocab else "a file of unsigned token ids"
    return ValueError(
        f"data={str(tokens.path)!r} holds token {token} at position {position}, outside vocab={vocab}; needs tokens "
        f"0 to vocab-1; try {fix}"
    )


def prepare(data: str, cache: str = "") -> Path:
    """The token file for `data` ('' for the default), made in `cache` if it is not there yet; whole or not at all.

    Raises `ValueError` for data that cannot be read, and `EngineUnavailableError` if the cache cannot be written.
    """
    path = Path(data)
    if data and (path.suffix in (".tokens", ".bin", ".idx") or os.path.exists(f"{data}.idx")):
        if not any(p.exists() for p in (path, Path(f"{data}.idx"))):
            raise ValueError(f"data={data!r} does not exist; needs a file or a folder; try another path")
        return path
    folder = Path(cache or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ptdp"
    try:
        files = list(_text_files(path) if data else _stdlib_files())
        if not files:
            raise ValueError(f"data={data!r} holds no file; needs a text file or a folder of them; try another path")
        key = hashlib.sha256("\n".join(f"{f} {f.stat().st_size}" for f in files).encode()).hexdigest()[:16]
        out = folder / f"bytes-{key}.tokens"
        with contextlib.suppress(ValueError, OSError):  # unless it is there and intact
            return _open_own(out).path
        ids = _bytes_of(files, None if data else DEFAULT_BYTES)
    except OSError as error:
        raise ValueError(
            f"data={data!r} cannot be read: {error}; needs a text file or a folder of them; try another path"
        ) from None
    try:
        write_tokens(out, ids, BYTE_VOCAB)
    except OSError as error:
        raise not_writable("cache", folder, error) from None
    return out


def _text_files(path: Path) -> Iterator[Path]:
    """A file, or all files in a folder, in an order that does not change. Raises `ValueError` if there is none."""
    if not os.path.exists(path):
        raise ValueError(f"data={str(path)!r} does not exist; needs a file or a folder; try another path")
    yield from [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def _stdlib_files() -> Iterator[Path]:
    """The source files of Python's standard library, without packages installed beside it and without its tests."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        if not skipped & set(path.relative_to(root).parts):
            yield path


def _bytes_of(files: Iterable[Path], limit: int | None) -> np.ndarray:
    """The bytes of all files, one after the other, each followed by a zero byte; at most `limit` bytes in all."""
    parts, total = [], 0
    for path in files:
        parts.append(opening.read_bytes(path, most=None) + b"\0")
        total += len(parts[-1])
        if limit is not None and total >= limit:
            break
    return np.frombuffer(b"".join(parts)[:limit], dtype=np.uint8)


def write_tokens(path: Path, ids: np.ndarray, vocab: int) -> None:
    """Write a `.tokens` file under a temporary name, then rename it; each id has as few bytes as `vocab` allows."""
    width = 1 if vocab <= 1 << 8 else 2 if vocab <= 1 << 16 else 4
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(HEADER.pack(MAGIC, width, vocab, len(ids)))
            file.write(ids.astype(f"<u{width}").tobytes())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class Sequences:
    """Sequences of s+1 tokens in a seeded order: sample i is the same for every layout and after every restart.

    Neighbouring sequences share a token: the last label of one is the first token of the next. Raises `ValueError` for
    a stream that is too short, or that has more token ids than `vocab`.
    """

    def __init__(self, tokens: Tokens, seq: int, vocab: int, seed: int) -> None:
        self.tokens, self.seq, self.vocab, self.seed = tokens, seq, vocab, seed
        self.first, self.count = 0, (len(tokens.ids) - 1) // seq
        if self.count < 1:
            raise ValueError(
                f"seq={seq} with {len(tokens.ids)} tokens in {str(tokens.path)!r}; needs at least seq+1 tokens; "
                "try a smaller seq, or more data"
            )
        if tokens.vocab is not None and tokens.vocab > vocab:
            raise ValueError(
                f"vocab={vocab} for data with {tokens.vocab} token ids; needs as many; try vocab={tokens.vocab}"
            )
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def split(self, share: float) -> tuple["Sequences", "Sequences | None"]:
        """The sequences to train on, and those to validate on: the last `share` of them, if any.

        Raises `ValueError` if that leaves none for one of the two.
        """
        if share == 0:
            return self, None
        held_out = round(self.count * share)
        if not 0 < held_out < self.count:
            raise ValueError(
                f"validation={share} of {self.count} sequences in {str(self.tokens.path)!r} is {held_out}; needs some "
                "to train on and some to validate on; try another share, or more data"
            )
        return self._part(0, self.count - held_out), self._part(self.count - held_out, held_out)

    def _part(self, first: int, count: int) -> "Sequences":
        """The `count` sequences from number `first` of the stream on, in an order of their own."""
        part = Sequences(self.tokens, self.seq, self.vocab, self.seed)
        part.first, part.count = first, count
        return part

    def __getitem__(self, i: int) -> torch.Tensor:
        """Sample i, [s+1] int64. Raises `ValueError` for a token that is not in the vocabulary."""
        epoch, position = divmod(i, self.count)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.count)
            self._epoch = epoch
        start = (self.first + int(self._order[position])) * self.seq
        ids = self.tokens.ids[start : start + self.seq + 1].astype(np.int64)
        outside = np.flatnonzero((ids < 0) | (ids >= self.vocab))
        if outside.size:
            raise _outside(self.tokens, start + int(outside[0]), self.vocab)
        return torch.from_numpy(ids)

    def microbatch(self, first: int, b: int, device: torch.device) -> Batch:
        """Tokens and labels [b, s] of samples first ... first+b-1."""
        return _tokens_and_labels(torch.stack([self[first + i] for i in range(b)]).to(device))


class Batches:
    """The microbatches of one replica, step by step.

    While a step runs, a thread reads the tokens of the next one. They are copied to the device once per step, from
    pinned memory: for a copy from pageable memory the host would wait until the device has done all queued work,
    including the receives of an overlapped exchange.
    """

    def __init__(self, sequences: Sequences, parallel: ParallelConfig, dp_rank: int, device: torch.device) -> None:
        self.sequences, self.parallel, self.dp_rank, self.device = sequences, parallel, dp_rank, device
        self._reader = ThreadPoolExecutor(1)
        self._next: tuple[int, Future[torch.Tensor]] | None = None

    def step(self, consumed: int) -> Callable[[int], Batch]:
        """A function from j to the tokens and labels [b, s] of this replica's microbatch j in one step.

        The step trains on the B samples from number `consumed` on. A rank that never calls the function reads nothing.
        """
        b, rows = self.parallel.b, torch.empty(0)

        def batch(j: int) -> Batch:
            nonlocal rows
            if not rows.numel():  # the first call of the step
                rows = self._take(consumed)
            return _tokens_and_labels(rows[j * b : (j + 1) * b])

        return batch

    def _take(self, consumed: int) -> torch.Tensor:
        """The m*b sequences of this replica in a step, [m*b, s+1] on the device; starts to read the next step's."""
        if self._next is None or self._next[0] != consumed:
            self._next = consumed, self._reader.submit(self._read, consumed)
        rows = self._next[1].result()
        following = consumed + self.parallel.B
        self._next = following, self._reader.submit(self._read, following)
        return rows.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else rows

    def _read(self, consumed: int) -> torch.Tensor:
        """The m*b sequences of this replica in the step that begins with sample `consumed`, [m*b, s+1] on the host."""
        b, d = self.parallel.b, self.parallel.d
        first = (consumed + (j * d + self.dp_rank) * b for j in range(self.parallel.m))
        return torch.stack([self.sequences[start + i] for start in first for i in range(b)])


def _tokens_and_labels(rows: torch.Tensor) -> Batch:
    """Tokens and labels [b, s] of rows [b, s+1]: the label of a token is the token after it."""
    return rows[:, :-1], rows[:, 1:]
