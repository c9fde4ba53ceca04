"""Checkpoints by global name: readable at any other (p, t, d, v).

A checkpoint holds the master parameters and Adam's two moments, as rectangles of the global tensors, without padding.
So one of the ZeRO-3 baseline can be loaded by PTD-P, and the other way round.

A checkpoint is written under a temporary name and synchronised to disk, gets a manifest with the checksum of each file,
and is renamed last (`folder`), so that a crash leaves the previous checkpoint as it was. It also records the
settings and the data of its run: loading it into a run with another model, batch size, seed or data is refused.
"""

import json
import math
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist

from ptdp_core.engine.checkpoint import folder as folders
from ptdp_core.engine.checkpoint.folder import INDEX, STATE
from ptdp_core.engine.checkpoint.shards import Written, read_index, read_pieces, write_index, write_shard
from ptdp_core.engine.checkpoint.state import Progress, changes_since, read_state
from ptdp_core.engine.checkpoint.tensors import Pieces, Staging, rectangles
from ptdp_core.engine.errors import DivergedError, EngineUnavailableError, not_writable
from ptdp_core.engine.files import LOCK, check_writable, lock, write_durably
from ptdp_core.engine.optimizer import Optimizer
from ptdp_core.engine.settings_file import to_mapping
from ptdp_core.layout import chunk_parameters

if TYPE_CHECKING:
    from ptdp_core.engine.trainer import Trainer
    from ptdp_core.engine.zero3 import Zero3Optimizer, Zero3Trainer

T = TypeVar("T")
KINDS = 3  # of tensors for each parameter: itself, and Adam's two moments
# Errors that keep their type when all ranks raise what went wrong on one of them.
SHARED_ERRORS = (ValueError, EngineUnavailableError, DivergedError)


def _pieces(optimizer: "Optimizer | Zero3Optimizer", *, saving: bool) -> dict[str, Pieces]:
    """The pieces of global tensors that this rank writes or reads, by the name in the checkpoint."""
    out: dict[str, Pieces] = {}
    for shard, start, stop, tensors in optimizer.slices(saving=saving):
        for offsets, size, begin in rectangles(shard, start, stop):
            for kind, flat in tensors.items():
                pieces = out.setdefault(f"{kind}.{shard.parameter.name}", Pieces(shard.parameter.shape))
                part = flat[begin - start : begin - start + math.prod(size)]
                pieces.held[offsets] = part.view(size)
    return out


def progress_of(trainer: "Trainer | Zero3Trainer", consumed: int) -> Progress:
    """The present state of a trainer that has consumed so many samples."""
    scale = trainer.optimizer.scale
    return Progress(trainer.done, consumed, trainer.rng.seed, trainer.optimizer.updates, scale.value, scale.good)


class Checkpoints:
    """Saves and loads the checkpoints of a run. `folder` has one subfolder per checkpoint.

    `data` identifies the training data (`data.fingerprint`). The newest `keep` checkpoints stay, and all of them if
    `keep` is 0. With `background`, `save` returns before the files are written. The constructor and all methods are
    collective: every rank calls them. `notes` has one sentence for each thing that a user should know about the last
    load.
    """

    def __init__(
        self,
        folder: str | Path,
        trainer: "Trainer | Zero3Trainer",
        *,
        background: bool = False,
        data: str = "",
        keep: int = 0,
    ) -> None:
        self.folder, self.trainer, self.data, self.keep = Path(folder), trainer, data, keep
        self.alone = not dist.is_initialized()
        # A separate group, because a save in the background must not mix with the training's collectives.
        self.group = None if self.alone else dist.new_group(backend="gloo")
        self._place = (0, 1) if self.alone else (dist.get_rank(self.group), dist.get_world_size(self.group))
        self.is_writer = trainer.groups.rank == 0
        self.notes: list[str] = []
        self._lock: IO[bytes] | None = None
        self._thread = ThreadPoolExecutor(1) if background else None
        self._staging = Staging(trainer.groups.device)
        self._pending: Future[None] | None = None

    def claim(self) -> None:
        """Lock the folder for this run, and remove half-written checkpoints of runs that were killed.

        Raises `ValueError` while another run uses the folder, and `EngineUnavailableError` if it cannot be written.
        """

        def take() -> None:
            if self.is_writer:
                check_writable("save", self.folder)
                self._lock = lock("save", self.folder / LOCK)
                folders.remove_partial(self.folder)

        self._together(take)

    def begin(self, step: int) -> None:
        """Check that a run which starts after `step` steps may save into the folder.

        Raises `ValueError` if the folder holds later checkpoints: they belong to another run, and could not be told
        from those that this run will save.
        """

        def look() -> None:
            paths = folders.checkpoints_in(self.folder)
            if self.is_writer and paths and folders.step_of(paths[-1]) > step:
                raise ValueError(
                    f"save={str(self.folder)!r} holds {paths[-1].name}, and this run starts at step {step}; needs a "
                    "folder without later checkpoints; try --resume auto to go on from there, or another save"
                )

        self._together(look)

    def save(self, consumed: int) -> Path:
        """Save the state after the last step, and return the checkpoint's folder.

        `consumed` is the number of samples trained on so far. If saving in the background, this returns when the
        tensors are copied to the host's memory, on a GPU when these copies are queued. Raises `DivergedError` if the
        state is not finite, and `EngineUnavailableError` if it cannot be written; earlier checkpoints stay as they are.
        """
        self.wait()
        progress = progress_of(self.trainer, consumed)
        path = folders.checkpoint_path(self.folder, progress.step)
        pieces = _pieces(self.trainer.optimizer, saving=True)
        self._together(lambda: _check_finite(pieces, progress.step))
        if self._thread is None:
            self._write(path, pieces, progress)
        else:
            self._staging.copy(pieces)
            self._pending = self._thread.submit(self._write, path, pieces, progress)
        return path

    def wait(self) -> None:
        """Wait until a save in the background is done, and raise its error if it failed."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, path: Path, pieces: Mapping[str, Pieces], progress: Progress) -> None:
        """Write a checkpoint under its temporary name, and rename it last; perhaps in the background's thread."""
        partial_path = folders.partial_path(path)

        def make() -> None:
            if self.is_writer:
                shutil.rmtree(partial_path, ignore_errors=True)
                partial_path.mkdir(parents=True)

        def complete() -> None:
            if self.is_writer:
                state = {"progress": asdict(progress), "settings": to_mapping(self.trainer.settings), "data": self.data}
                sums = {shard.name: shard.sum for shard in shards}
                sums[STATE] = write_durably(partial_path / STATE, [json.dumps(state, indent=1).encode()])
                sums[INDEX] = write_index(partial_path, shards)
                folders.complete(path, sums)
                folders.prune(self.folder, self.keep)

        try:
            self._staging.wait()
            # Every step is over on all ranks before the next one: shards need the folder, and the manifest all shards.
            self._together(make)
            written: list[Written] = []
            self._together(lambda: written.append(write_shard(partial_path, self._place[0], pieces.items())))
            shards = self._gathered(written[0])
            self._together(complete)
        except (EngineUnavailableError, RuntimeError):
            if self.is_writer:
                shutil.rmtree(partial_path, ignore_errors=True)
            raise

    def _shared(self, error: BaseException) -> Exception:
        """The error that all ranks raise for an error of one: a single line that can be pickled.

        If a file could not be written, it names the newest checkpoint that can be used.
        """
        if isinstance(error, SHARED_ERRORS):
            return error
        if isinstance(error, OSError):
            last = folders.newest(self.folder)
            kept = f"the newest checkpoint is {last}" if last else "it holds no checkpoint"
            return EngineUnavailableError(f"{not_writable('save', self.folder, error)}; {kept}")
        return RuntimeError(f"{type(error).__name__}: {' '.join(str(error).split())}")

    def _together(self, work: Callable[[], T]) -> list[T]:
        """Run `work` on every rank, and return the results of all ranks. An error on one rank is raised on all."""
        result: T | None = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as raised:
            error = self._shared(raised)
        rows: list[Any] = [(result, error)]
        if not self.alone:
            rows = [None] * self._place[1]
            dist.all_gather_object(rows, (result, error), group=self.group)
        for _, raised_there in rows:
            if raised_there is not None:
                raise raised_there
        return [row for row, _ in rows]

    def _gathered(self, mine: T) -> list[T]:
        """What each rank has, in the order of ranks, on the writer alone: of thousands of shards it is much."""
        rows: list[Any] = [mine]
        if not self.alone:
            rows = [None] * self._place[1] if self.is_writer else []
            dist.gather_object(mine, rows or None, group=self.group, group_dst=0)
        return rows

    def load(self, source: str | Path) -> Progress:
        """Restore a checkpoint, or the newest whole one in a folder, whatever layout it was saved at.

        Raises `ValueError` if it is damaged, naming the newest whole one before it, if it belongs to another run, or
        if no run can have saved it so.
        """
        self.notes.clear()
        path = self._choose(Path(source))
        saved = read_state(path)
        progress = saved.progress
        changes = changes_since(saved, self.trainer.settings, self.data)
        if changes:
            self.notes.append(f"changed since {path.name} was saved: {', '.join(changes)}")
        self._load_shards(path, _pieces(self.trainer.optimizer, saving=False))
        if progress.step == 0:  # weights from elsewhere: seed and loss scale are this run's own
            progress = progress_of(self.trainer, 0)
        self.trainer.restore(progress.step, progress.seed)
        self.trainer.optimizer.restore(progress.updates, progress.scale, progress.good_steps)
        return progress

    def _load_shards(self, path: Path, pieces: Mapping[str, Pieces]) -> None:
        """Read a checkpoint's tensors into `pieces`. Raises `ValueError` for what no run can have saved."""
        model = self.trainer.settings.model
        count = KINDS * len(chunk_parameters(model, range(model.layers), 1))
        shapes = {name: piece.shape for name, piece in pieces.items()}

        def read() -> None:
            index = read_index(path, shapes, count)
            try:
                read_pieces(path, index, pieces)
            except (OSError, RuntimeError) as error:
                reason = " ".join(str(error).split())
                raise ValueError(
                    f"load={str(path)!r} has shards that cannot be read: {reason}; needs a run's checkpoint; "
                    "try another checkpoint"
                ) from None

        self._together(read)

    def _choose(self, source: Path) -> Path:
        """The checkpoint to load: `source` itself, or the newest whole one in it.

        Damaged checkpoints that are passed over are added to `notes`.
        """
        is_checkpoint = folders.NAME.fullmatch(source.name) is not None
        folder = source.parent if is_checkpoint else source
        paths = self._together(
            lambda: [p for p in folders.checkpoints_in(folder) if not is_checkpoint or p.name <= source.name]
        )
        damaged: list[tuple[Path, str]] = []
        for path in reversed(paths[0]):
            reason = self._problem(path)
            if reason is None:
                break
            damaged.append((path, reason))
        else:
            if damaged:
                raise folders.not_whole(*damaged[0], None)
            return folders.resolve(source)  # raises: there is none
        if is_checkpoint and damaged:
            raise folders.not_whole(*damaged[0], path)
        for damaged_path, reason in damaged:
            self.notes.append(f"passed over {damaged_path}, which {reason}; going on from {path.name}")
            # Only a run that has locked its folder (`claim`) may change it.
            if self.is_writer and self._lock is not None and damaged_path.parent == self.folder:
                folders.set_aside(damaged_path)
        return path

    def _problem(self, path: Path) -> str | None:
        """What is wrong with a checkpoint, or None if it is whole; each rank reads an equal number of its shards."""

        def look() -> str | None:
            reason = folders.problem(path)
            if reason is None:
                rank, size = self._place
                reason = folders.damage(path, sorted(folders.manifest(path) or {})[rank::size])
            return reason

        return next((reason for reason in self._together(look) if reason), None)


def _check_finite(pieces: Mapping[str, Pieces], step: int) -> None:
    """Raise `DivergedError` if anything that would be saved is not finite."""
    for name, piece in pieces.items():
        for tensor in piece.held.values():
            if not torch.isfinite(tensor).all():
                raise DivergedError(
                    f"{name} is not finite after step {step}, and is not saved; needs finite parameters and moments; "
                    "try a smaller lr, and load=<the checkpoint before>"
                )
