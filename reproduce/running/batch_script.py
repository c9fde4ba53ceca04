"""`reproduce ID --fidelity measured --scale ... --launcher slurm --print-script`: the same command as a Slurm job."""

import shlex
import sys
from collections.abc import Sequence

from benchmarks.records.errors import UsageError
from ptdp_core.launch.slurm import script
from reproduce.experiment.parameters import ranks_of
from reproduce.running.runner import Plan

PER_NODE = 8


def batch_script(plans: Sequence[Plan], launcher: str, scale: str | None, command: Sequence[str]) -> str:
    """A script that runs `command` on an allocation with a task for every rank of the largest point.

    Raises `UsageError` for what is not measured, or on no scale in particular: a script cannot know its devices.
    """
    if launcher != "slurm":
        raise UsageError(f"--print-script with --launcher {launcher}; needs --launcher slurm")
    if any(plan.fidelity != "measured" for plan in plans):
        raise UsageError("--print-script is for measured runs; add --fidelity measured")
    if scale is None:
        raise UsageError("--print-script needs the devices of the allocation: add --scale cpu, gpu or gpus")
    words = list(command)
    words = words[words.index("reproduce") + 1 :]
    again = [sys.executable, "-m", "reproduce", *(word for word in words if word != "--print-script")]
    ranks = max(ranks_of(point.parameters) for plan in plans for point in plan.points)
    return script("ptdp", ranks, PER_NODE, scale != "cpu", f"exec {shlex.join(again)}")
