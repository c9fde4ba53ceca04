"""Checkpoints by global name with `torch.distributed.checkpoint`: readable at any other (p, t, d, v).

Every rank writes 1/d of what its model-parallel rank holds: master parameters and Adam's moments, as rectangles of the
global tensors, without padding. A checkpoint is a folder `step_<n>`: it is written under another name, gets a
manifest with the size of each file, and is renamed last. So a crash leaves the previous one as it was.
"""

import contextlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from ptdp_core.engine.optimizer import Segment
from ptdp_core.engine.pieces import LoadPlanner, Pieces, SavePlanner, rectangles
from ptdp_core.engine.trainer import Trainer

MANIFEST = "manifest.json"
STATE = "state.json"


def _pieces(trainer: Trainer, *, saving: bool) -> dict[str, Pieces]:
    """What this rank writes (its share, each value once in the world), or what it has to read (all it owns)."""
    out: dict[str, Pieces] = {}
    shares = {id(e): _share(trainer, b) for b in trainer.buffer.buckets for e in b.entries}
    for segment in trainer.optimizer.segments:
        shard, start, stop = segment.entry.shard, segment.start, segment.stop
        if saving:
            if not shard.counts(trainer.groups.tp.rank):
                continue
            first, end = shares[id(segment.entry)]
            start, stop = max(start, first), min(stop, end)
        for name, tensor in _tensors(trainer, segment):
            pieces = out.setdefault(f"{name}.{shard.parameter.name}", Pieces(shard.parameter.shape))
            offset = segment.entry.start
            for at, size, begin in rectangles(shard, start - offset, stop - offset):
                begin += offset - segment.start
                pieces.held[torch.Size(at)] = tensor[begin : begin + math.prod(size)].view(size)
    return {name: pieces for name, pieces in out.items() if pieces.held}


def _share(trainer: Trainer, bucket: Any) -> tuple[int, int]:
    size = (bucket.stop - bucket.start) // trainer.groups.dp.size
    start = bucket.start + trainer.groups.dp.rank * size
    return start, start + size


def _tensors(trainer: Trainer, segment: Segment) -> Iterator[tuple[str, torch.Tensor]]:
    state = trainer.optimizer.adam.state[segment.master]
    yield "parameter", segment.master.detach()
    yield "exp_avg", state["exp_avg"]
    yield "exp_avg_sq", state["exp_avg_sq"]


@dataclass(frozen=True)
class Progress:
    """Where a run stands: all that a checkpoint holds besides tensors. Random streams follow from seed and step."""

    step: int
    consumed: int
    seed: int
    updates: int
    scale: float
    good_steps: int

    @classmethod
    def of(cls, trainer: Trainer, consumed: int) -> "Progress":
        scale = trainer.optimizer.scale
        return cls(trainer.done, consumed, trainer.rng.seed, trainer.optimizer.updates, scale.value, scale.good)


class Checkpoints:
    """Saves and loads the checkpoints of a run. `folder` holds one subfolder per checkpoint."""

    def __init__(self, folder: str | Path, trainer: Trainer, *, background: bool = False) -> None:
        self.folder, self.trainer, self.background = Path(folder), trainer, background
        self.alone = not dist.is_initialized()
        # A group of its own: a save in the background must not mix with the training's collectives.
        self.group = None if self.alone else dist.new_group(backend="gloo")
        self.is_writer = trainer.groups.rank == 0
        self._thread = ThreadPoolExecutor(1) if background else None
        self._pending: Future[None] | None = None

    def save(self, consumed: int) -> Path:
        """Save the state after the last step; in the background if asked for (tensors are copied first)."""
        self.wait()
        progress = Progress.of(self.trainer, consumed)
        path = self.folder / f"step_{progress.step:08d}"
        pieces: dict[str, Any] = dict(_pieces(self.trainer, saving=True))
        if self._thread is None:
            self._write(path, pieces, progress)
        else:
            for held in pieces.values():
                held.held = {at: tensor.to("cpu", copy=True) for at, tensor in held.held.items()}
            self._pending = self._thread.submit(self._write, path, pieces, progress)
        return path

    def wait(self) -> None:
        """Wait for a save in the background; raises what went wrong in it."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, path: Path, pieces: dict[str, Any], progress: Progress) -> None:
        temporary = path.with_name(f".{path.name}.partial")
        try:
            if self.is_writer:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            self._barrier()
            with quietly():
                dcp.save(
                    pieces,
                    storage_writer=dcp.FileSystemWriter(temporary),
                    planner=SavePlanner(),
                    process_group=self.group,
                    no_dist=self.alone,
                )
            if self.is_writer:
                (temporary / STATE).write_text(json.dumps(progress.__dict__, indent=1))
                sizes = {f.name: f.stat().st_size for f in sorted(temporary.iterdir())}
                (temporary / MANIFEST).write_text(json.dumps(sizes, indent=1))
                shutil.rmtree(path, ignore_errors=True)
                os.replace(temporary, path)
            self._barrier()
        except (Exception, CheckpointException) as error:  # the latter is no Exception
            if self.is_writer:
                shutil.rmtree(temporary, ignore_errors=True)
            raise RuntimeError(
                f"saving {path} failed: {_first_line(error)}; the checkpoints before it are as they were "
                f"(newest: {newest(self.folder) or 'none'})"
            ) from error

    def _barrier(self) -> None:
        if not self.alone:
            dist.barrier(group=self.group)

    def load(self, path: str | Path) -> Progress:
        """Restore a checkpoint (or the newest usable one in a folder), whatever layout it was saved at."""
        path = resolve(path)
        progress = Progress(**json.loads((path / STATE).read_text()))
        pieces: dict[str, Any] = dict(_pieces(self.trainer, saving=False))
        saved = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        for name, held in pieces.items():
            size = getattr(saved.get(name), "size", None)
            if size is None or tuple(size) != tuple(held.shape):
                found = tuple(size) if size else "nothing"
                raise ValueError(
                    f"load={str(path)!r} has {name} as {found}; needs {tuple(held.shape)}; "
                    "try the model sizes it was saved with"
                )
        with quietly():
            dcp.load(
                pieces,
                storage_reader=dcp.FileSystemReader(path),
                planner=LoadPlanner(),
                process_group=self.group,
                no_dist=self.alone,
            )
        self.trainer.restore(progress.step, progress.seed)
        self.trainer.optimizer.restore(progress.updates, progress.scale, progress.good_steps)
        return progress


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """torch warns that a single process saves as a single process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _first_line(error: BaseException) -> str:
    """The cause inside DCP's wrapper, on one line."""
    failures = getattr(error, "failures", None)
    if failures:
        rank, wrapped = next(iter(failures.items()))
        cause = wrapped[0] if isinstance(wrapped, tuple) else wrapped
        return f"rank {rank}: {type(cause).__name__}: {cause}".splitlines()[0]
    return (f"{type(error).__name__}: {error}".splitlines() or [""])[0]


def problem(path: Path) -> str | None:
    """Why a checkpoint cannot be used; None if nothing is wrong with its files."""
    try:
        sizes = json.loads((path / MANIFEST).read_text())
    except (OSError, ValueError):
        return f"has no readable {MANIFEST}"
    for name, size in sizes.items():
        file = path / name
        if not file.exists():
            return f"lacks {name}"
        if file.stat().st_size != size:
            return f"has {name} with {file.stat().st_size} bytes, where {size} were saved"
    return None


def newest(folder: Path, before: str = "~") -> Path | None:
    """The newest usable checkpoint in a folder."""
    found = sorted(p for p in folder.glob("step_*") if p.name < before)
    return next((p for p in reversed(found) if problem(p) is None), None)


def resolve(path: str | Path) -> Path:
    """A usable checkpoint: `path` itself, or the newest in it. `ValueError` naming what is wrong and the one before."""
    path = Path(path)
    if path.name.startswith("step_"):
        if wrong := problem(path):
            raise ValueError(
                f"load={str(path)!r} {wrong}; needs a whole checkpoint; try {newest(path.parent, path.name) or 'none'}"
            )
        return path
    found = newest(path)
    if found is None:
        raise ValueError(f"load={str(path)!r} holds no usable checkpoint; needs step_* inside; try without load")
    return found
