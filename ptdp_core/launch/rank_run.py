"""A training run as one of its ranks runs it: data, steps, checkpoints, log, and an orderly end on SIGTERM."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerAction, profile

from kernels import select
from ptdp_core.engine.checkpoint.checkpoints import Checkpoints
from ptdp_core.engine.data import Batches, Sequences, fingerprint, open_tokens
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.optimizer import on_host
from ptdp_core.engine.settings import RunSettings, Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.launch.defaults import decided, fitted, set_up, smallest_memory
from ptdp_core.launch.outcome import Trained
from ptdp_core.launch.training_log import TrainingLog

if TYPE_CHECKING:
    from ptdp_core.engine.zero3 import Zero3Trainer


class Termination:
    """Handles SIGTERM, which asks a rank to save and end, from its construction until the process ends.

    So does SIGHUP, unless it is ignored or blocked: torchrun passes it on; of our launcher's, only SIGTERM arrives.

    Each rank may get the signal at another time; `agreed` lets all of them end after the same step.
    """

    def __init__(self) -> None:
        self._asked = False
        # gloo, for a flag on the host; a separate group, apart from the collectives of a save in the background.
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        signal.signal(signal.SIGTERM, self._ask)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._ask)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def _ask(self, *_: object) -> None:
        self._asked = True

    def agreed(self) -> bool:
        """Whether any rank has been asked to end; the same on all of them, which call this together."""
        flag = torch.tensor(int(self._asked))
        if self._group is not None:
            dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self._group)
        return bool(flag.item())


def train(beat: Callable[[], None], settings: Settings, log_to_stderr: bool = False) -> Trained:
    """Train on this rank as configured. `beat` is called after each step, and before and after what takes long."""
    device = local_device(settings.engine.device)
    set_up(device)
    settings, recomputation = fitted(decided(settings, device), smallest_memory(device))
    groups = Groups.create(settings.parallel, device) if settings.parallel.n > 1 else Groups.alone(device)
    termination = Termination()
    out = sys.stderr if log_to_stderr else sys.stdout
    with ExitStack() as stack:
        report = stack.enter_context(TrainingLog(settings, device, out)) if groups.rank == 0 else None
        tokens = open_tokens(settings.run.data)
        sequences = Sequences(tokens, settings.model.seq, settings.model.vocab, settings.engine.seed)
        training, validation = sequences.split(settings.run.validation)
        trainer = _trainer(settings, groups)
        batches = Batches(training, settings.parallel, groups.replica, device)
        evaluation = _Evaluation(trainer, validation, settings, groups, report) if validation else None
        saver = None
        if settings.run.save or settings.run.load:
            saver = _Saver(trainer, settings, fingerprint(tokens), report)
        beat()
        consumed = saver.start() if saver else 0
        if report:
            report.begin(trainer.done, training.count, validation.count if validation else 0)
            if recomputation:
                report.note(f"memory    {recomputation}")
        beat()
        profiler = stack.enter_context(_profiler(settings.run, trainer.done, groups.rank))
        losses: list[float] = []
        terminated = False
        while trainer.done < settings.run.steps:
            terminated = termination.agreed()
            if terminated:
                break
            start = time.perf_counter()
            result = trainer.step(batches.step(consumed))
            if profiler:
                profiler.step()
            consumed += settings.parallel.B
            losses.append(result.loss)
            if report:
                report.step(result, time.perf_counter() - start)
            beat()
            if evaluation and evaluation.is_due():
                evaluation.run()
                beat()
            if saver and saver.is_due():
                saver.save(consumed)
                beat()
        if evaluation and not terminated:
            evaluation.finish()
        trained = Trained(losses, trainer.done, saver.finish(consumed) if saver else "", terminated)
        if report:
            report.end(trained.saved)
        return trained


def _trainer(settings: Settings, groups: Groups) -> "Trainer | Zero3Trainer":
    """The trainer that the settings ask for: PTD-P's or the ZeRO-3 baseline's."""
    operators = select(settings.kernels, groups.device)
    if settings.parallel.data_parallel != "zero3":
        return Trainer(settings, groups, operators)
    from ptdp_core.engine.zero3 import Zero3Trainer  # imports FSDP2, which takes a second

    return Zero3Trainer(settings, groups, operators)


def _profiler(run: RunSettings, done: int, rank: int) -> AbstractContextManager[profile | None]:
    """What writes this rank's trace of the run's last step, if one is asked for; the step before warms it up.

    Its steps have the numbers that the log says, from 1 on in the whole run.
    """
    if not run.profile or run.steps <= done:
        return nullcontext()
    actions = {run.steps - 1: ProfilerAction.WARMUP, run.steps: ProfilerAction.RECORD_AND_SAVE}

    def action(step: int) -> Any:  # a ProfilerAction
        return actions.get(step, ProfilerAction.NONE)

    made = profile(
        schedule=action,
        on_trace_ready=lambda made: made.export_chrome_trace(str(Path(run.profile) / f"rank{rank}.json.gz")),
    )
    made.step_num, made.current_action = done + 1, action(done + 1)
    return made


class _Evaluation:
    """Evaluates a run's loss on held-out sequences, always the same ones, when that is due."""

    def __init__(
        self,
        trainer: "Trainer | Zero3Trainer",
        validation: Sequences,
        settings: Settings,
        groups: Groups,
        report: TrainingLog | None,
    ) -> None:
        self.trainer, self.every, self.B, self.report = trainer, settings.run.eval_every, settings.parallel.B, report
        self.batches = Batches(validation, settings.parallel, groups.replica, groups.device)
        self.count = max(1, min(settings.run.eval_batches, validation.count // self.B))
        self.evaluated_step = -1

    def is_due(self) -> bool:
        """Whether to evaluate after this step."""
        return bool(self.every) and self.trainer.done % self.every == 0

    def run(self) -> None:
        """Evaluate, and report."""
        losses = [self.trainer.evaluate(self.batches.step(number * self.B)) for number in range(self.count)]
        (loss,) = on_host(torch.stack(losses).mean().unsqueeze(0))
        self.evaluated_step = self.trainer.done
        if self.report:
            self.report.evaluation(self.trainer.done, loss, self.count * self.B)

    def finish(self) -> None:
        """Evaluate after the last step, unless that has been done."""
        if self.evaluated_step < self.trainer.done:
            self.run()


class _Saver:
    """Loads and saves a run's checkpoints when that is due, and notes it in the log."""

    def __init__(
        self, trainer: "Trainer | Zero3Trainer", settings: Settings, data: str, report: TrainingLog | None
    ) -> None:
        self.run, self.trainer, self.report = settings.run, trainer, report
        self.checkpoints = Checkpoints(
            self.run.save, trainer, background=self.run.async_save, data=data, keep=self.run.keep
        )
        self.saved_step, self.saved = 0, ""

    def start(self) -> int:
        """Lock the folder, load the checkpoint to go on from, if any, and return the samples consumed until then."""
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
