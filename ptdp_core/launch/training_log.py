"""The log of a training run: one line per step on the terminal, and one JSON object per step in a file.

Each object has the run's id, because a resumed run may append to the same file.
"""

import contextlib
import errno
import json
import math
import os
import resource
import secrets
import statistics
import sys
import time
from pathlib import Path
from typing import IO, Any

import torch

from ptdp_core.engine.errors import not_writable
from ptdp_core.engine.files import lock
from ptdp_core.engine.fp8 import is_native
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.settings_file import to_mapping
from ptdp_core.engine.trainer import TrainStep
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration, parameters
from ptdp_core.interrupts import leave_lost_terminal


class TrainingLog(contextlib.AbstractContextManager["TrainingLog"]):
    """Writes the log of a run, on one rank.

    FLOP/s are per device, by two formulas: `eq3` is the paper's Equation 3, which counts a recomputed forward pass
    whether there is one or not, and `model` leaves that pass out. Raises `ValueError` if another run writes to the same
    log file, and `EngineUnavailableError` if the file cannot be written.
    """

    def __init__(self, settings: Settings, device: torch.device, out: IO[str] | None = None) -> None:
        self.settings, self.device, self.out = settings, device, out or sys.stdout
        self.run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        self.file: IO[bytes] | None = None
        if settings.run.log:
            self.file = lock("log", Path(settings.run.log))
        self.board: Any = None
        if settings.run.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(settings.run.tensorboard)
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.validation: float | None = None
        n, B = settings.parallel.n, settings.parallel.B
        self.tokens = B * settings.model.seq
        self.eq3 = flops_per_iteration(settings.model, B) / n
        self.model = model_flops_per_iteration(settings.model, B) / n

    def begin(self, step: int, training: int, validation: int) -> None:
        """Print the header: the model, the layout and the data, with the number of sequences to train and validate on.

        `step` is the number of steps that were done before, in an earlier run.
        """
        s, model, par, engine = self.settings, self.settings.model, self.settings.parallel, self.settings.engine
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"
        held_out = f", {validation:,} held out" if validation else ""
        every = f" every {s.run.save_every} steps" if s.run.save_every else " at the end"
        self._say(
            f"run       {self.run_id}, steps {step + 1} to {s.run.steps}"
            + (f"; checkpoints in {s.run.save}{every}" if s.run.save else "; no checkpoints")
            + (f"; log {s.run.log}" if s.run.log else "")
        )
        self._say(
            f"model     {parameters(model) / 1e6:.1f}M parameters: {model.layers} layers, hidden {model.hidden}, "
            f"{model.heads} heads, sequences of {model.seq}, vocabulary {model.vocab}"
        )
        self._say(
            f"parallel  p={par.p} t={par.t} d={par.d} v={par.v} b={par.b} B={par.B} m={par.m} {par.schedule} "
            f"{engine.exchange} data_parallel={par.data_parallel} recompute={par.recompute}"
            + (" sequence_parallel" if par.sequence_shards > 1 else "")
            + (f" c={par.c} context_exchange={par.context_exchange}" if par.c > 1 else "")
            + (f" e={par.e}" if par.e > 1 else "")
        )
        self._say(
            f"engine    {engine.dtype} on {par.n} x {device}, {engine.kernels} kernels, attention {par.attention}, "
            f"dropout {engine.dropout:g}{self._of_fp8()}"
        )
        self._say(f"data      {s.run.data}: {training:,} sequences to train on{held_out}")
        self._write({"event": "begin", "step": step, "settings": to_mapping(s)})

    def _of_fp8(self) -> str:
        """What linears multiply in, if not in the run's precision."""
        if (recipe := self.settings.parallel.fp8_recipe) == "none":
            return ""
        return f", linears in FP8 ({recipe}, {'native' if is_native(recipe, self.device) else 'rounding emulated'})"

    def step(self, result: TrainStep, seconds: float) -> None:
        """Log one step, which took `seconds` of wall-clock time on this rank."""
        row: dict[str, Any] = {
            "event": "step",
            "step": result.step,
            "loss": result.loss,
            "gradient_norm": result.norm,
            "lr": result.lr,
            "loss_scale": result.scale,
            "skipped": result.skipped,
            "step_time_s": seconds,
            "tokens_per_s": self.tokens / seconds,
            "eq3_flops_per_s": self.eq3 / seconds,
            "model_flops_per_s": self.model / seconds,
            "peak_memory_bytes": peak_memory(self.device),
        }
        dropped = ""
        if self.settings.parallel.capacity_factor:
            row["dropped"], dropped = result.dropped, f"  dropped {result.dropped}"
        self._write(row)
        self.losses.append(result.loss)
        self.seconds.append(seconds)
        self._plot(result.step, {name: row[name] for name in ("loss", "gradient_norm", "lr", "tokens_per_s")})
        if result.step % self.settings.run.log_every == 0:
            self._say(
                f"step {result.step:5d}  loss {result.loss:.4f}  norm {result.norm:.3f}  lr {result.lr:.2e}  "
                f"{seconds * 1e3:.1f} ms  {row['tokens_per_s']:.0f} tokens/s  eq3 {self.eq3 / seconds / 1e9:.2f} "
                f"model {self.model / seconds / 1e9:.2f} GFLOP/s/device  {row['peak_memory_bytes'] / 2**20:.0f} MiB"
                + dropped
                + ("  skipped: not finite" if result.skipped else "")
            )

    def evaluation(self, step: int, loss: float, sequences: int) -> None:
        """Log the loss on held-out sequences after a step."""
        self.validation = loss
        self._say(f"step {step:5d}  validation loss {loss:.4f} on {sequences} held-out sequences")
        self._write({"event": "evaluation", "step": step, "loss": loss, "sequences": sequences})
        self._plot(step, {"validation_loss": loss})

    def end(self, saved: str) -> None:
        """Sum up the run; `saved` is its newest checkpoint, if any."""
        parts = []
        if self.losses:
            median = statistics.median(self.seconds)
            parts.append(
                f"{len(self.losses)} steps in {sum(self.seconds):.1f} s (median {median * 1e3:.1f} ms, "
                f"{self.tokens / median:.0f} tokens/s), loss {self.losses[0]:.4f} to {self.losses[-1]:.4f}"
            )
        if self.validation is not None:
            parts.append(f"validation loss {self.validation:.4f}")
        parts.append(f"saved {saved}" if saved else "nothing saved")
        self._say(f"done      {'; '.join(parts)}")
        self._write({"event": "end", "steps": len(self.losses), "saved": saved, "validation_loss": self.validation})

    def _plot(self, step: int, values: dict[str, float]) -> None:
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def note(self, text: str, **values: Any) -> None:
        """Log an event other than a step, with `values` as further fields of its JSON object."""
        self._say(text)
        self._write({"event": "note", "text": text, **values})

    def _say(self, text: str) -> None:
        try:
            print(text, file=self.out, flush=True)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            leave_lost_terminal()  # a run that ends for this saves first, and one that ignores it goes on

    def _write(self, row: dict[str, Any]) -> None:
        """Append a line to the log file. If it cannot be written in full, for want of space, nothing of it stays."""
        if self.file is None:
            return
        # JSON has neither NaN nor infinity.
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        data = memoryview((json.dumps({"run": self.run_id, **clean}, allow_nan=False) + "\n").encode())
        end = os.fstat(self.file.fileno()).st_size
        try:
            while data:
                data = data[self.file.write(data) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                self.file.truncate(end)
            raise not_writable("log", self.settings.run.log, error) from None

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()
        if self.board is not None:
            self.board.close()


def peak_memory(device: torch.device) -> int:
    """The most bytes that were allocated on the GPU, or, on a CPU, resident in this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # `ru_maxrss` is in bytes on macOS, in KiB on Linux
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
