"""`reproduce bench gpu`: everything that half an hour on one GPU should verify."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reproduce.commands import options
from results.records import errors
from results.records.documents import print_document

if TYPE_CHECKING:
    from reproduce.running.gpu_session import SessionStep, StepOutcome

HELP = """Tests that need a GPU, kernels under compute-sanitizer, matrix products, operators, training steps with
profiles, calibration, the artifacts that one GPU can do, training and saving under torchrun on NCCL, FSDP2, text from a
checkpoint: steps of at most 10 minutes each, in this order. The same command goes on where it stopped; what has passed
is not run again. Logs and results are in DIR/gpu.

examples:
  reproduce bench gpu
  reproduce bench gpu --toy --results /tmp/trial    the same steps on a CPU, at toy sizes: minutes

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce bench gpu`."""
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy sizes: shows that all steps work")
    parser.add_argument("--step", metavar="NAME", action="append", help="only this step; repeatable")
    parser.add_argument("--list", action="store_true", help="print the steps and their commands, and run nothing")
    options.add_results(parser)
    options.add_json(parser)


def run(parsed: Namespace) -> int:
    """Run the steps; done if all that could run have passed."""
    import shlex

    from reproduce.running import gpu_session

    folder = parsed.results.absolute() / ("gpu-toy" if parsed.toy else "gpu")
    steps = gpu_session.steps(folder, parsed.toy)
    names = tuple(step.name for step in steps)
    for name in parsed.step or ():
        if name not in names:
            hint = errors.did_you_mean(name, names)
            raise errors.UsageError(f"unknown step {name!r}{hint}; there are {', '.join(names)}")
    steps = [step for step in steps if not parsed.step or step.name in parsed.step]
    outcomes = {} if parsed.list else _outcomes(parsed, steps, folder)
    if parsed.json:
        rows = [{**vars(step), "outcome": outcomes.get(step.name) and vars(outcomes[step.name])} for step in steps]
        print_document("bench-gpu", 1, {"folder": str(folder), "steps": rows})
    elif parsed.list:
        print("\n".join(f"{step.name:10} {step.title}\n           {shlex.join(step.command)}" for step in steps))
    else:
        statuses = [outcome.status for outcome in outcomes.values()]
        counts = (f"{statuses.count(status)} {status}" for status in gpu_session.STATUSES)
        print(f"{', '.join(counts)}; logs: {folder}")
    return errors.DONE if all(outcome.good for outcome in outcomes.values()) else errors.POINTS_FAILED


def _outcomes(parsed: Namespace, steps: "Sequence[SessionStep]", folder: Path) -> "Mapping[str, StepOutcome]":
    """Run the steps. Raises `UnavailableError` where there is no GPU for them."""
    from reproduce.running import gpu_session, measured

    if not parsed.toy and not measured.gpus_found():
        raise errors.UnavailableError("no GPU that PyTorch can use; needs one; try --toy, which runs on the CPU")
    progress = sys.stderr if parsed.json else sys.stdout
    return gpu_session.run(
        steps, folder, lambda text: print(text, file=progress, flush=True) if not parsed.quiet else None
    )
