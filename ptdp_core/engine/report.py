"""What a training run says about itself: one line per step on the terminal, one JSON object per step in a file.

Each object carries the run's id, so that runs that went on in the same file can be told apart.
"""

import contextlib
import json
import math
import os
import resource
import secrets
import sys
import time
from pathlib import Path
from typing import IO, Any

import torch

from ptdp_core.engine.errors import not_writable
from ptdp_core.engine.files import lock
from ptdp_core.engine.settings import Settings, to_mapping
from ptdp_core.engine.trainer import TrainStep
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration, parameters


class Report(contextlib.AbstractContextManager["Report"]):
    """Writes the log of a run, on one rank. FLOP/s are per device and named by their formula: `eq3` is the paper's
    (it counts the recomputed forward pass, whether there is one or not), `model` leaves that out.

    Raises `ValueError` if another run writes to the same log file.
    """

    def __init__(self, settings: Settings, device: torch.device, out: IO[str] | None = None) -> None:
        self.settings, self.device, self.out = settings, device, out or sys.stdout
        self.run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        self.file: IO[bytes] | None = None
        if settings.run.log:
            self.file = lock("log", Path(settings.run.log))
        n, B = settings.parallel.n, settings.parallel.B
        self.tokens = B * settings.model.seq
        self.eq3 = flops_per_iteration(settings.model, B) / n
        self.model = model_flops_per_iteration(settings.model, B) / n

    def begin(self, step: int) -> None:
        """Name the run."""
        s, par = self.settings, self.settings.parallel
        self._say(
            f"p={par.p} t={par.t} d={par.d} v={par.v} b={par.b} B={par.B} m={par.m} {par.schedule} "
            f"{s.engine.exchange} data_parallel={par.data_parallel} recompute={par.recompute} {s.engine.dtype} "
            f"on {self.device.type}; {parameters(s.model) / 1e6:.1f}M parameters; from step {step}; "
            f"run {self.run_id}"
        )
        self._write({"event": "begin", "step": step, "settings": to_mapping(s)})

    def step(self, result: TrainStep, seconds: float) -> None:
        """One step, which took `seconds` of wall-clock time on this rank."""
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
        self._write(row)
        if result.step % self.settings.run.log_every == 0:
            self._say(
                f"step {result.step:5d}  loss {result.loss:.4f}  norm {result.norm:.3f}  lr {result.lr:.2e}  "
                f"{seconds * 1e3:.1f} ms  {row['tokens_per_s']:.0f} tokens/s  eq3 {self.eq3 / seconds / 1e9:.2f} "
                f"model {self.model / seconds / 1e9:.2f} GFLOP/s/device  {row['peak_memory_bytes'] / 2**20:.0f} MiB"
                + ("  skipped: not finite" if result.skipped else "")
            )

    def note(self, text: str, **values: Any) -> None:
        """An event other than a step."""
        self._say(text)
        self._write({"event": "note", "text": text, **values})

    def _say(self, text: str) -> None:
        print(text, file=self.out, flush=True)

    def _write(self, row: dict[str, Any]) -> None:
        """Append a line: all of it, or, where there is no space, nothing."""
        if self.file is None:
            return
        # JSON has no NaN.
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


def peak_memory(device: torch.device) -> int:
    """Most bytes allocated on the GPU, or resident in this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
