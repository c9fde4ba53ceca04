"""Batch scripts for Slurm with one task per rank; printed for the user to read, change and submit."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ptdp_core.engine.settings import Settings

SCRIPT = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks={ranks}
#SBATCH --ntasks-per-node={per_node}
#SBATCH --cpus-per-task=1
{gpus}
# One task per rank. srun starts them, ends all when one fails, and numbers them; torch reads torchrun's names.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export OMP_NUM_THREADS=1
cd {folder}
{command}
"""
RANK = """
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
exec {command}
"""


def sbatch(settings: Settings, arguments: Sequence[str], per_node: int, folder: Path | None = None) -> str:
    """The script for a run of p*t*d ranks with these command-line arguments, `per_node` ranks to a node."""
    command = as_rank([sys.executable, "-m", "ptdp_core.launch", *arguments])
    quoted = command.replace("'", "'\\''")
    on_gpus = settings.engine.device != "cpu"
    return script(
        "ptdp", settings.parallel.n, per_node, on_gpus, f"srun --kill-on-bad-exit=1 bash -c '{quoted}'", folder
    )


def script(name: str, ranks: int, per_node: int, on_gpus: bool, command: str, folder: Path | None = None) -> str:
    """A script that runs `command` in `folder` (here), on an allocation of `ranks` tasks, `per_node` to a node."""
    per_node = min(per_node, ranks)
    if ranks % per_node:
        raise ValueError(f"per_node={per_node} does not divide p*t*d={ranks}; needs full nodes; try --per-node {ranks}")
    return SCRIPT.format(
        name=name,
        nodes=ranks // per_node,
        ranks=ranks,
        per_node=per_node,
        gpus=f"#SBATCH --gpus-per-node={per_node}\n" if on_gpus else "",
        folder=shlex.quote(str(folder or Path.cwd())),
        command=command,
    )


def as_rank(command: Sequence[str]) -> str:
    """The command as a task of srun runs it in bash: as one rank, under the names that torch reads."""
    return RANK.format(command=shlex.join(command))
