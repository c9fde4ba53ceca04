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
{cores}
{options}
# One task per rank. srun starts them, ends all when one fails, and numbers them; torch reads torchrun's names.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
{threads}
cd {folder}
{command}
"""
TRAINING = """#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
# Time for one more step and saving it, before the job is preempted or its time is over.
#SBATCH --signal=TERM@300
"""
RANK = """
export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
exec {command}
"""


# A rank on a CPU is a core; one on a GPU gets an equal share of its node's, for reading data and saving.
CPU_RANK = "#SBATCH --cpus-per-task=1", "export OMP_NUM_THREADS=1"
GPU_RANK = (
    "#SBATCH --exclusive",
    """export SRUN_CPUS_PER_TASK=$((SLURM_CPUS_ON_NODE / {per_node}))
export OMP_NUM_THREADS=$SRUN_CPUS_PER_TASK""",
)


def sbatch(settings: Settings, arguments: Sequence[str], per_node: int, folder: Path | None = None) -> str:
    """The script for a run of p*t*d ranks with these command-line arguments, `per_node` ranks to a node.

    If the run saves, the script goes on from what is saved: Slurm may start it again, or the user submit it again.
    """
    resume = ["--resume", "auto"] if settings.run.save and not settings.run.load else []
    command = as_rank([sys.executable, "-m", "ptdp_core.launch", *arguments, *resume])
    quoted = command.replace("'", "'\\''")
    on_gpus = settings.engine.device != "cpu"
    srun = f"srun --kill-on-bad-exit=1 bash -c '{quoted}'"
    return script("ptdp", settings.parallel.n, per_node, on_gpus, srun, folder, options=TRAINING)


def script(
    name: str, ranks: int, per_node: int, on_gpus: bool, command: str, folder: Path | None = None, options: str = ""
) -> str:
    """A script that runs `command` in `folder` (here), on an allocation of `ranks` tasks, `per_node` to a node.

    `options` are more lines for sbatch.
    """
    per_node = min(per_node, ranks)
    if per_node < 1 or ranks % per_node:
        raise ValueError(f"per_node={per_node} does not divide p*t*d={ranks}; needs full nodes; try --per-node {ranks}")
    cores, threads = GPU_RANK if on_gpus else CPU_RANK
    return SCRIPT.format(
        name=name,
        cores=cores,
        threads=threads.format(per_node=per_node),
        nodes=ranks // per_node,
        ranks=ranks,
        per_node=per_node,
        options=(f"#SBATCH --gpus-per-node={per_node}\n" if on_gpus else "") + options,
        folder=shlex.quote(str(folder or Path.cwd())),
        command=command,
    )


def as_rank(command: Sequence[str]) -> str:
    """The command as a task of srun runs it in bash: as one rank, under the names that torch reads."""
    return RANK.format(command=shlex.join(command))
