"""Batch scripts for Slurm with one task per rank. They are printed, for the user to read, change and submit."""

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ptdp_core.fields import largest_divisor
from results.records import errors

if TYPE_CHECKING:
    from ptdp_core.engine.settings import Settings

SCRIPT = """#!/bin/bash
#SBATCH --job-name=ptdp
#SBATCH --nodes={nodes}
#SBATCH --ntasks={ranks}
#SBATCH --ntasks-per-node={per_node}
{cores}
{options}
# Submit it from the folder that its paths start from, with the Python environment of this project active: Slurm starts
# it in that folder, with that environment.
# One task per rank. srun starts them, ends all when one fails, and numbers them; torch reads torchrun's names.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
{threads}
{command}
"""
TRAINING = """#SBATCH --requeue
#SBATCH --open-mode=append
# Time for one more step and saving it, before the job is preempted or its time is over.
#SBATCH --signal=TERM@300
"""
UNSAVED = """#SBATCH --no-requeue
# Nothing is saved, and a job that ends begins anew; to have it queued again and go on: --set save=FOLDER.
"""
# Slurm by itself queues a job again where it is preempted or a node fails, not where its time is over. The signal sent
# before goes to the ranks alone, which save and end; one to the script, too, comes from scancel, or from preemption.
AGAIN = """trap 'signalled=yes' TERM
{command} &
wait $!; code=$?
if [ -n "$signalled" ]; then wait; exit {code}; fi
if [ $code -eq {code} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code"""
TRAINING_TIME = "24:00:00"
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
TIME = re.compile(r"\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2}")
NAME = re.compile(r"[\w.,+@-]+")


@dataclass(frozen=True)
class BatchJob:
    """What a batch script asks Slurm for besides its tasks; the cluster's defaults hold for fields that are None.

    `per_node` is the number of ranks on a node. Raises `ValueError` for a time or a name that Slurm would not take.
    """

    nodes: int | None = None
    per_node: int | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        if self.time is not None and not TIME.fullmatch(self.time):
            raise ValueError(
                f"time={self.time!r} is no time; needs minutes or [days-]hours:minutes:seconds; try 2:00:00"
            )
        for name, value in (("partition", self.partition), ("account", self.account)):
            if value is not None and not NAME.fullmatch(value):
                raise ValueError(f"{name}={value!r} is no name; needs letters, digits and . , + @ _ -; try {name}=main")

    def shape(self, ranks: int) -> tuple[int, int]:
        """The number of nodes, and of ranks on each of them. Raises `ValueError` if they cannot all be full."""
        usual = largest_divisor(ranks, 8 if self.per_node is None or self.per_node < 1 else self.per_node)
        if self.nodes is not None and (self.nodes < 1 or ranks % self.nodes):
            full = ranks // usual
            raise ValueError(f"nodes={self.nodes} does not divide p*t*d={ranks}; needs full nodes; try --nodes {full}")
        per_node = self.per_node
        if per_node is None:
            per_node = ranks // self.nodes if self.nodes else min(8, ranks)
        if per_node < 1 or ranks % per_node:
            raise ValueError(
                f"per_node={per_node} does not divide p*t*d={ranks}; needs full nodes; try --per-node {usual}"
            )
        if self.nodes is not None and self.nodes * per_node != ranks:
            raise ValueError(f"nodes={self.nodes} with per_node={per_node} for p*t*d={ranks}; needs one of them to go")
        return ranks // per_node, per_node


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a printed batch script."""
    group = parser.add_argument_group("in a printed batch script")
    group.add_argument("--nodes", type=int, metavar="N", help="nodes (default: as many as the ranks fill)")
    group.add_argument("--per-node", type=int, metavar="N", help="ranks per node (default: 8, or all of fewer)")
    group.add_argument("--time", help="limit of the job, such as 2:00:00")
    group.add_argument("--partition", help="partition to submit to")
    group.add_argument("--account", help="account to charge")


def job_of(arguments: argparse.Namespace, printed: bool) -> BatchJob:
    """The job that the options ask for. Raises `ValueError` for an option without a script that is `printed`."""
    values = {name: getattr(arguments, name) for name in BatchJob.__dataclass_fields__}
    given = [name for name, value in values.items() if value is not None]
    if given and not printed:
        option = f"--{given[0].replace('_', '-')}"
        raise ValueError(
            f"{option} is for a printed batch script; needs the option that prints it; try without {option}"
        )
    return BatchJob(**values)


def without_options(words: Sequence[str], flag: str) -> list[str]:
    """A command line without this flag, and without ranks and the options of a printed batch script."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_options(parser)
    parser.add_argument("--ranks")
    parser.add_argument(flag, action="store_true")
    return parser.parse_known_args(words)[1]


def sbatch(settings: "Settings", arguments: Sequence[str], job: BatchJob) -> str:
    """The script for a run of p*t*d ranks with these command-line arguments.

    If the run saves, it goes on from what is saved: the user may submit the script again, and it queues itself again
    once its time is over. What it is told to begin with counts only the first time.
    """
    run, resume = settings.run, ""
    if run.save:
        resume = "${SLURM_RESTART_COUNT:+ --resume auto}" if run.load else " --resume auto"
    command = as_rank(["python", "-m", "ptdp.train", *arguments]).rstrip() + f"{resume}\n"
    quoted = command.replace("'", "'\\''")
    on_gpus = settings.engine.device != "cpu"
    srun = f"srun --kill-on-bad-exit=1 bash -c '{quoted}'"
    if run.save:
        srun = AGAIN.format(command=srun, code=errors.TERMINATED)
    job = replace(job, time=job.time or TRAINING_TIME)
    return script(settings.parallel.n, job, on_gpus, srun, TRAINING if run.save else UNSAVED)


def script(ranks: int, job: BatchJob, on_gpus: bool, command: str, options: str = "") -> str:
    """A script that runs `command` on an allocation of `ranks` tasks; `options` are more lines for sbatch."""
    nodes, per_node = job.shape(ranks)
    lines = [f"#SBATCH --gpus-per-node={per_node}"] if on_gpus else []
    for name in ("time", "partition", "account"):
        if value := getattr(job, name):
            lines.append(f"#SBATCH --{name}={value}")
    options = "".join(f"{line}\n" for line in lines) + options
    cores, threads = GPU_RANK if on_gpus else CPU_RANK
    return SCRIPT.format(
        nodes=nodes,
        ranks=ranks,
        per_node=per_node,
        cores=cores,
        threads=threads.format(per_node=per_node),
        options=options,
        command=command,
    )


def as_rank(command: Sequence[str]) -> str:
    """The command as bash runs it in a task of srun: as one rank, with the environment variables that torch reads."""
    return RANK.format(command=shlex.join(command))
