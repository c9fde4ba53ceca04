"""A training run as one of its ranks runs it: data, steps, checkpoints, log, and an orderly end on SIGTERM."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist

from kernels import select
from ptdp_core.engine.checkpoint import Checkpoints
from ptdp_core.engine.checkpoint_folder import newest, resolve
from ptdp_core.engine.data import Batches, Sequences, check_vocabulary, fingerprint, open_tokens, prepare
from ptdp_core.engine.files import check_writable
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.report import Report
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.zero3 import Zero3Trainer


@dataclass(frozen=True)
class Trained:
    """What a run did: the loss of each of its steps, the steps done in all, and the last checkpoint, if any."""

    losses: list[float]
    step: int
    saved: str
    terminated: bool  # by SIGTERM, before its last step


class Termination:
    """SIGTERM asks a rank to save and end. Ranks do so after the same step: each may get the signal at another time.

    Once made, it takes the signal until the process ends.
    """

    def __init__(self) -> None:
        self._asked = False
        # On the host, and apart from the collectives of a save in the background.
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        signal.signal(signal.SIGTERM, self._ask)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _ask(self, *_: object) -> None:
        self._asked = True

    def agreed(self) -> bool:
        """Whether any rank has been asked to end; the same on all of them, which call this together."""
        flag = torch.tensor(int(self._asked))
        if self._group is not None:
            dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group)
        return bool(flag.item())


def train(beat: Callable[[], None], settings: Settings) -> Trained:
    """Train on this rank as configured. `beat` is called after each step, and before and after what takes long."""
    device = local_device(settings.engine.device)
    groups = Groups.create(settings.parallel, device) if settings.parallel.n > 1 else Groups.alone(device)
    termination = Termination()
    with ExitStack() as stack:
        report = stack.enter_context(Report(settings, device)) if groups.rank == 0 else None
        tokens = open_tokens(settings.run.data)
        samples = Sequences(tokens, settings.model.seq, settings.model.vocab, settings.engine.seed)
        ops = select(settings.kernels, device)
        trainer = (Zero3Trainer if settings.parallel.data_parallel == "zero3" else Trainer)(settings, groups, ops)
        batches = Batches(samples, settings.parallel, groups.dp.rank, device)
        saver = None
        if isinstance(trainer, Trainer) and (settings.run.save or settings.run.load):
            saver = _Saver(trainer, settings, fingerprint(tokens), report)
        beat()
        consumed = saver.start() if saver else 0
        if report:
            report.begin(trainer.done)
        beat()
        losses: list[float] = []
        terminated = False
        while trainer.done < settings.run.steps:
            terminated = termination.agreed()
            if terminated:
                break
            start = time.perf_counter()
            result = trainer.step(batches.step(consumed))
            consumed += settings.parallel.B
            losses.append(result.loss)
            if report:
                report.step(result, time.perf_counter() - start)
            beat()
            if saver and saver.is_due():
                saver.save(consumed)
                beat()
        saved = saver.finish(consumed) if saver else ""
        return Trained(losses, trainer.done, saved, terminated)


class _Saver:
    """When a run loads and saves its checkpoints, and what it says about that."""

    def __init__(self, trainer: Trainer, settings: Settings, data: str, report: Report | None) -> None:
        self.run, self.trainer, self.report = settings.run, trainer, report
        self.checkpoints = Checkpoints(
            self.run.save, trainer, background=self.run.async_save, data=data, keep=self.run.keep
        )
        self.saved_step, self.saved = 0, ""

    def start(self) -> int:
        """Take the folder and load what the run goes on from; returns the number of samples consumed until there."""
        consumed = 0
        if self.run.save:
            self.checkpoints.claim()
        if self.run.load:
            consumed = self.checkpoints.load(self.run.load).consumed
            for note in self.checkpoints.notes:
                self._note(note)
        if self.run.save:
            self.checkpoints.begin(self.trainer.done)
        self.saved_step = self.trainer.done
        return consumed

    def is_due(self) -> bool:
        """Whether to save after this step."""
        return bool(self.run.save and self.run.save_every) and self.trainer.done % self.run.save_every == 0

    def save(self, consumed: int) -> None:
        """Save the state after this step."""
        path = self.checkpoints.save(consumed)
        self.saved_step, self.saved = self.trainer.done, str(path)
        self._note(f"saving {path} in the background" if self.run.async_save else f"saved {path}")

    def finish(self, consumed: int) -> str:
        """Save what has not been saved yet, wait for it, and return where the newest checkpoint of this run is."""
        if self.run.save and self.saved_step < self.trainer.done:
            self.save(consumed)
        self.checkpoints.wait()
        return self.saved

    def _note(self, text: str) -> None:
        if self.report:
            self.report.note(text)


def preflight(settings: Settings, *, thorough: bool = True) -> Settings:
    """Settings with the token file and the checkpoint filled in, after everything that can be found wrong so far.

    `thorough` reads all tokens, and tries the places to be written to: once per run is enough. Raises `ValueError`
    for data, a checkpoint or a kernel that cannot be used, `UnavailableError` for places.
    """
    run = settings.run
    if settings.engine.dtype == "fp16" and settings.optimizer.loss_scale == 1:
        raise ValueError(
            "dtype='fp16' with loss_scale=1 loses small gradients; needs a loss scale; try loss_scale='dynamic'"
        )
    select(settings.kernels, local_device(settings.engine.device))
    path = prepare(run.data, run.cache)
    tokens = open_tokens(path)
    Sequences(tokens, settings.model.seq, settings.model.vocab, settings.engine.seed)
    load = run.load
    if load == "auto":
        load = run.save if newest(Path(run.save)) else ""
    if load:
        resolve(load)
    if thorough:
        check_vocabulary(tokens, settings.model.vocab)
        if run.log:
            check_writable("log", Path(run.log).parent)
        if run.save:
            check_writable("save", Path(run.save))
    return replace(settings, run=replace(run, data=str(path), load=load))


def cpu_threads(ranks: int) -> int:
    """Threads for each of so many ranks on this machine: what OMP_NUM_THREADS says, or an equal share of the cores."""
    if wanted := os.environ.get("OMP_NUM_THREADS", "").isdecimal() and int(os.environ["OMP_NUM_THREADS"]):
        return wanted
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available // ranks)
