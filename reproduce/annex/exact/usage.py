"""Counts on one rank which files, process groups and threads are used, by the function of the project that does.

Nothing is timed. Files are counted below the run's folder only, by the bytes that are asked of them and given to them:
what buffers and the operating system make of that depends on the machine. A file that is mapped into memory is opened,
and not read.
"""

import builtins
import gc
import hashlib
import io
import os
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import torch.distributed as dist

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine import data
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.settings import EngineSettings, RunSettings, Settings
from ptdp_core.launch import local
from ptdp_core.launch.rank_run import train
from reproduce.annex.exact.step_profile import by_function, function_name
from reproduce.annex.exact.watched import outwards

TOKENS = "run.tokens"
SAMPLES = (8, 16)
CALLERS = 2  # how many callers name a count, besides the function itself: a checksum is asked for by two others
MODEL = ModelConfig(layers=4, hidden=16, heads=4, seq=8, vocab=50)
PARALLEL = ParallelConfig(p=2, d=2, B=8, sharded_optimizer=True)
STEPS = 4

# What is counted of calls besides files: where the function is, its name, what is counted, and how many of it.
Amount = Callable[..., int]
CALLS: tuple[tuple[Any, str, str, Amount], ...] = (
    (dist, "new_group", "process groups", lambda *args, **options: 1),
    (zlib, "crc32", "bytes hashed", lambda content, *args: len(content)),
    (hashlib, "sha256", "digests begun", lambda *args, **options: 1),
    (np.random, "default_rng", "random generators", lambda *args, **options: 1),
    (Future, "result", "waits for a thread", lambda *args, **options: 1),
    (ThreadPoolExecutor, "submit", "calls for a thread", lambda *args, **options: 1),
)


class Used:
    """What has been used, by function. `add` may be called by any thread."""

    def __init__(self) -> None:
        self._all: list[tuple[str, str, int]] = []

    def add(self, what: str, amount: int = 1) -> None:
        """Count for the functions that are being called; nothing if none of them is the project's."""
        if name := callers(sys._getframe(1)):
            self._all.append((name, what, amount))

    def by_function(self) -> dict[str, str]:
        """All counts as texts, such as '2 files opened, 96 bytes read'."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, what, amount in self._all:
            counts[name][what] += amount
        return by_function(counts)


def callers(frame: FrameType | None) -> str:
    """The innermost function of the project on the stack after its callers: 'data.open_tokens > data._open_own'."""
    in_run = takewhile(lambda each: each.f_code.co_filename != local.__file__, outwards(frame))
    names = list(islice(filter(None, map(function_name, in_run)), CALLERS + 1))
    return " > ".join(reversed(names))


def _counted_file(of: type) -> Any:
    """One of the classes of `io`, whose files count for their `used` the bytes that are read and written."""

    def method(name: str, what: str) -> Callable[..., Any]:
        def counted(file: Any, *args: Any) -> Any:
            done = getattr(of, name)(file, *args)
            file.used.add(what, done if isinstance(done, int) else len(done or b""))
            return done

        return counted

    methods = {"read": "bytes read", "read1": "bytes read", "readinto": "bytes read", "write": "bytes written"}
    return type(of.__name__, (of,), {name: method(name, what) for name, what in methods.items() if hasattr(of, name)})


_Reader, _Writer, _Unbuffered = map(_counted_file, (io.BufferedReader, io.BufferedWriter, io.FileIO))


def _remembering(paths: dict[int, Any]) -> Callable[..., int]:
    """`os.open`, which remembers the paths of descriptors."""
    plain = os.open

    def remembered(path: Any, *args: Any, **options: Any) -> int:
        descriptor = plain(path, *args, **options)
        paths[descriptor] = path
        return descriptor

    return remembered


def _counted_open(used: Used, folder: Path, paths: dict[int, Any]) -> Callable[..., Any]:
    """`open`, which counts files below a folder and what is read from them and written to them.

    A file is given by its path, or by a descriptor whose path is remembered.
    """
    plain = io.open

    def counted(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
        path = paths.pop(file, None) if isinstance(file, int) else file
        inside = isinstance(path, str | os.PathLike) and folder in Path(path).resolve().parents
        if not inside or "+" in mode:
            return plain(file, mode, buffering, *args, **options)
        used.add("files opened")
        file_mode = mode.replace("b", "").replace("t", "")
        if buffering == 0:
            stream: Any = _Unbuffered(file, file_mode)
        else:
            stream = (_Reader if file_mode == "r" else _Writer)(io.FileIO(file, file_mode))
        stream.used = used
        return stream if "b" in mode else io.TextIOWrapper(stream, *args, **options)

    return counted


def _counting(used: Used, plain: Any, what: str, amount: Amount) -> Callable[..., Any]:
    """A function that is counted when it is called."""

    def counted(*args: Any, **options: Any) -> Any:
        used.add(what, amount(*args, **options))
        return plain(*args, **options)

    return counted


@contextmanager
def counting(folder: Path) -> Iterator[Used]:
    """Count what is used inside, and files below `folder`, from which relative paths go."""
    used, before, folder = Used(), Path.cwd(), folder.resolve()
    with ExitStack() as stack:
        stack.callback(os.chdir, before)
        os.chdir(folder)  # paths, which settings name in checkpoints, are then equally long everywhere
        paths: dict[int, Any] = {}
        stack.enter_context(patch.object(os, "open", _remembering(paths)))
        opened = _counted_open(used, folder, paths)
        for module in (builtins, io):
            stack.enter_context(patch.object(module, "open", opened))
        for owner, name, what, amount in CALLS:
            plain = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, _counting(used, plain, what, amount)))
        yield used


def write_tokens(folder: str) -> None:
    """Write the token file that all runs read."""
    data.write_tokens(Path(folder) / TOKENS, np.arange(2000) % MODEL.vocab, MODEL.vocab)


def of_samples(folder: str, count: int) -> dict[str, str]:
    """What it takes to open the token file and to read so many samples."""
    with counting(Path(folder)) as used:
        sequences = data.Sequences(data.open_tokens(TOKENS), MODEL.seq, MODEL.vocab, seed=0)
        for i in range(count):
            sequences[i]
    return used.by_function()


def of_groups(grid: dict[str, Any]) -> dict[str, str]:
    """The process groups that the first rank of a grid makes; the others only pretend to be there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    parallel = ParallelConfig(**grid, B=grid["d"])
    dist.init_process_group("fake", rank=0, world_size=parallel.n, store=FakeStore())
    try:
        with counting(Path.cwd()) as used:
            Groups.create(parallel)
    finally:
        dist.destroy_process_group()
    return used.by_function()


def of_training(beat: Callable[[], None], folder: str) -> dict[str, str]:
    """What a run on this rank uses that evaluates, and saves in the background after every second step."""
    return _of_run(beat, folder, RunSettings(steps=STEPS, save="first", save_every=2, eval_every=2, validation=0.1))


def of_resuming(beat: Callable[[], None], folder: str) -> dict[str, str]:
    """What a run on this rank uses that goes on for two steps from the checkpoint of `of_training`."""
    return _of_run(beat, folder, RunSettings(steps=STEPS + 2, load="first", save="second", validation=0.1))


def _of_run(beat: Callable[[], None], folder: str, run: RunSettings) -> dict[str, str]:
    run = replace(run, data=TOKENS, async_save=True, eval_batches=1)
    settings = Settings(MODEL, PARALLEL, EngineSettings(device="cpu"), run=run)
    gc.collect()  # closes the files of the run before
    with redirect_stdout(io.StringIO()), counting(Path(folder)) as used:
        train(beat, settings)
    return used.by_function()
