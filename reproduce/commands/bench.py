"""`reproduce bench`: microbenchmarks, measured and kept; and all that one GPU should verify."""

import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.harness.registry import BENCHMARKS, find
from ptdp_core import interrupts
from reproduce.commands import options
from results.records import errors
from results.records.documents import print_document
from results.records.errors import DONE, NothingSelectedError

if TYPE_CHECKING:
    from pathlib import Path

    from reproduce.running.gpu_session import SessionStep, StepOutcome

MEANINGS = {
    "list": "the microbenchmarks: of the engine, its kernels and messages, and the simulator",
    "run": "measure with microbenchmarks, and keep every sample",
    "gpu": "all that half an hour on one GPU should verify, step by step; --toy for a CPU",
}
RUN_HELP = """\
examples:
  reproduce bench run gemm --quick
  reproduce bench run p2p collectives --device cuda
  reproduce plot gemm

"""
GPU_HELP = """\
Tests that need a GPU, kernels under compute-sanitizer, matrix products, operators, training steps with
profiles, calibration, the artifacts that one GPU can do, training and saving under torchrun on NCCL, FSDP2: steps of at
most 10 minutes each, in this order. The same command goes on where it stopped; what has passed is not run again. Logs
and results are in DIR/gpu.

examples:
  reproduce bench gpu
  reproduce bench gpu --toy --results /tmp/trial    the same steps on a CPU, at toy sizes: minutes

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The actions of `reproduce bench`, each with its options; without one it lists the benchmarks."""
    parser.set_defaults(action=list_benchmarks, json=False)
    actions = parser.add_subparsers(metavar="ACTION", title="actions")
    for name, add, action, epilog in (
        ("list", options.add_json, list_benchmarks, ""),
        ("run", _add_run, measure, RUN_HELP),
        ("gpu", _add_gpu, run_session, GPU_HELP),
    ):
        described = actions.add_parser(
            name, help=MEANINGS[name], description=MEANINGS[name], epilog=f"{epilog}{options.where_exit_codes_are()}",
            formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False,
        )  # fmt: skip
        options.add_usual(described, default=SUPPRESS)
        add(described)
        described.set_defaults(action=action)


def run(parsed: Namespace) -> int:
    """Do what was asked for; the exit code. Raises `ReproduceError`."""
    code: int = parsed.action(parsed)
    return code


def list_benchmarks(parsed: Namespace) -> int:
    """Print a line for each benchmark; the exit code."""
    if parsed.json:
        rows = [{"name": b.name, "title": b.title, "section": b.section} for b in BENCHMARKS.values()]
        print_document("benchmarks-list", 1, {"benchmarks": rows})
        return DONE
    width = max(map(len, BENCHMARKS))
    for benchmark in BENCHMARKS.values():
        section = f" ({benchmark.section})" if benchmark.section else ""
        print(f"{benchmark.name:{width}}  {benchmark.title}{section}")
    print(f"\nnext: {parsed.program} bench run {next(iter(BENCHMARKS))} --quick")
    return DONE


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="benchmarks to run, or all")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--quick", action="store_true", help="small sizes and few samples: a trial")
    options.add_json(parser)
    options.add_results(parser)


def measure(parsed: Namespace) -> int:
    """Run the benchmarks, print them, and write DIR/benchmarks/NAME/record.json; the exit code."""
    if not parsed.names:
        raise NothingSelectedError(
            f"nothing selected: name benchmarks ({parsed.program} bench list shows them), or all"
        )
    names = list(BENCHMARKS) if parsed.names == ["all"] else list(dict.fromkeys(parsed.names))
    for name in names:  # all of them before the first one runs
        find(name)
    from benchmarks.harness import runner
    from benchmarks.harness.table import table
    from results.records import write_record

    device, records = runner.choose_device(parsed.device), []
    tell = options.teller(parsed.quiet)
    for index, name in enumerate(names):
        try:
            record = runner.run(BENCHMARKS[name], device, parsed.quick, parsed.command, tell)
        except KeyboardInterrupt:
            rest = f"{parsed.program} {shlex.join(['bench', 'run', *names[index:]])}"
            print(f"reproduce: interrupted in {name}; the rest, with the same options: {rest}", file=sys.stderr)
            return interrupts.settle()
        tell("")
        path = runner.record_path(parsed.results, name)
        write_record(record, path)
        records.append(record)
        if not parsed.json:
            text = str(path) if parsed.quiet else f"{table(record)}\nfile: {path}\n"
            print(text, flush=True)
    statuses = [{point.status for point in runner.results_of(record)} for record in records]
    code = errors.POINTS_FAILED if any("failed" in status for status in statuses) else errors.DONE
    if not code and any("ok" not in status for status in statuses):
        code = errors.NOTHING_SELECTED
    if parsed.json:
        print_document("benchmarks-run", 1, {"exit_code": code, "benchmarks": [r.to_json() for r in records]})
    elif not parsed.quiet:
        print(f"next: {parsed.program} plot {names[-1]}")
    return code


def _add_gpu(parser: ArgumentParser) -> None:
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy sizes: shows that all steps work")
    parser.add_argument("--step", metavar="NAME", action="append", help="only this step; repeatable")
    parser.add_argument("--list", action="store_true", help="print the steps and their commands, and run nothing")
    options.add_results(parser)
    options.add_json(parser)


def run_session(parsed: Namespace) -> int:
    """Run the steps; done if all that could run have passed."""
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


def _outcomes(parsed: Namespace, steps: "Sequence[SessionStep]", folder: "Path") -> "Mapping[str, StepOutcome]":
    """Run the steps. Raises `UnavailableError` where there is no GPU for them."""
    from reproduce.running import gpu_session, measured

    if not parsed.toy and not measured.gpus_found():
        raise errors.UnavailableError("no GPU that PyTorch can use; needs one; try --toy, which runs on the CPU")
    progress = sys.stderr if parsed.json else sys.stdout
    return gpu_session.run(
        steps, folder, lambda text: print(text, file=progress, flush=True) if not parsed.quiet else None
    )
