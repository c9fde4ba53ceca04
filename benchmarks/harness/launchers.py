"""Ways to start the ranks of a measurement, behind one interface, that of `benchmarks.harness.ranks.run_ranks`.

`Launcher("torchrun")(function, ranks, args, device)` returns a list of what `function(beat, *args)` returned on rank 0,
1, ...

- local: the engine's own launcher, on this machine
- torchrun: PyTorch's launcher, on this machine, at the port MASTER_PORT if that is set, else at a free one
- slurm: srun, inside an allocation; the script of `reproduce ... --launcher slurm --print-script` uses it
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import elastic, srun
from results.records.errors import UnavailableError, UsageError

LAUNCHERS = ("local", "torchrun", "slurm")
TIMEOUT_S = 300.0  # how long a rank waits for another one before it fails
LIMIT_S = 1800.0  # how long a whole job may take


@dataclass(frozen=True)
class Launcher:
    """Starts ranks. `folder` is a place for temporary files that all ranks can see.

    Raises `UsageError` for an unknown name, `UnavailableError` where this launcher cannot work.
    """

    name: str = "local"
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.name not in LAUNCHERS:
            raise UsageError(f"unknown launcher {self.name!r}; there are: {', '.join(LAUNCHERS)}")
        if self.name == "torchrun":
            elastic.check_port()
        if self.name == "slurm" and "SLURM_JOB_ID" not in os.environ:
            raise UnavailableError(
                "launcher slurm works inside an allocation, and SLURM_JOB_ID is not set; print a script that asks for "
                "one with --launcher slurm --print-script, and submit that"
            )

    def __call__(self, function: Callable[..., Any], ranks: int, args: Sequence[Any], device: str) -> list[Any]:
        """Return the results of `function(beat, *args)` by rank. Raises `RankError` for the rank that failed first."""
        if self.name == "torchrun":
            return elastic.launch(function, ranks, args, device=device, timeout=TIMEOUT_S, limit=LIMIT_S)
        if self.name == "slurm":
            limits = {"timeout": TIMEOUT_S, "limit": LIMIT_S}
            return srun.launch(function, ranks, args, device=device, folder=self.folder, **limits)
        from benchmarks.harness.ranks import run_ranks  # imported here, as it imports torch

        return run_ranks(function, ranks, args, device)
