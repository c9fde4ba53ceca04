"""`reproduce ID --fidelity measured --scale ... --launcher slurm --print-script`: the same command as a Slurm job."""

import shlex
from collections.abc import Sequence

from benchmarks.records.errors import UsageError
from ptdp_core.launch.slurm import Job, script, without_options
from reproduce.experiment.parameters import ranks_of
from reproduce.running.evaluator import Plan

PRINT = "--print-script"


def check_request(launcher: str, scale: str | None) -> None:
    """Raise `UsageError` for a script on no scale in particular, whose devices are not known, or not for Slurm."""
    if launcher != "slurm":
        raise UsageError(f"{PRINT} with --launcher {launcher}; needs --launcher slurm")
    if scale is None:
        raise UsageError(f"{PRINT} needs the devices of the allocation: add --scale cpu, gpu or gpus")


def batch_script(plans: Sequence[Plan], job: Job, command: Sequence[str]) -> str:
    """A script that runs `command` on an allocation with a task for every rank of the largest point.

    Raises `UsageError` for what is not measured, and for nodes that would not be full.
    """
    if any(plan.fidelity != "measured" for plan in plans):
        raise UsageError(f"{PRINT} is for measured runs; add --fidelity measured")
    words = list(command)
    words = without_options(words[words.index("reproduce") + 1 :], PRINT)
    ranks = max(ranks_of(point.parameters) for plan in plans for point in plan.points)
    again = shlex.join(["python", "-m", "reproduce", *words])
    try:
        return script(ranks, job, plans[0].scale != "cpu", f"exec {again}")
    except ValueError as error:
        raise UsageError(str(error)) from None
