"""`reproduce bench`: microbenchmarks, measured and kept; and all that one GPU should verify."""

import math
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

from benchmarks.harness.benchmark_list import BENCHMARKS, record_path, results_of
from ptdp_core import interrupts
from reproduce.annex import part
from reproduce.commands import options
from results.records import errors
from results.records.documents import print_document
from results.records.errors import DONE, NothingSelectedError
from results.visible import visible

if TYPE_CHECKING:
    from pathlib import Path

    from reproduce.annex.bench.gpu_session import SessionStep, StepOutcome

MEANINGS = {
    "list": "the microbenchmarks: of the engine, its kernels and messages, and the simulator",
    "run": "measure with microbenchmarks, and keep every sample",
    "gpu": "all that one GPU should verify, in the minutes there are; --toy for a CPU",
    "gpus": "the same of two to eight GPUs of a node",
}
RUN_HELP = """\
examples:
  reproduce bench run gemm --quick
  reproduce bench run p2p collectives --device cuda
  reproduce plot gemm

"""
GPU_HELP = """\
Steps ordered by what they are worth: does it work, is it right, training steps and those of peers, kernels, the paper's
artifacts, a calibration, a trace. Each is a process of its own with its own limit. With --minutes it stops in time,
with a table, and the same command goes on where it stopped; what has passed is not run again. Logs and results are in
DIR/{folder}; all that anybody needs of them is DIR/{folder}.zip, with the predictions sealed before: --import reads it.
Neither git nor ip is needed, a compiler for kernels and compiled peers only; --needs lists packages.

examples:
  reproduce bench {folder} --minutes 10
  reproduce bench {folder} --toy --results /tmp/trial    the same steps on a CPU, tiny
  reproduce bench {folder} --import {folder}.zip

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The actions of `reproduce bench`, each with its options; without one it lists the benchmarks."""
    parser.set_defaults(action=list_benchmarks, json=False)
    actions = parser.add_subparsers(metavar="ACTION", title="actions")
    for name, add, action, epilog in (
        ("list", lambda parser: options.add(parser, "json"), list_benchmarks, ""),
        ("run", _add_run, measure, RUN_HELP),
        *((name, _add_gpu, run_session, GPU_HELP.format(folder=name)) for name in ("gpu", "gpus")),
    ):
        described = actions.add_parser(
            name, help=MEANINGS[name], description=MEANINGS[name], epilog=f"{epilog}{options.where_exit_codes_are()}",
            formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False,
        )  # fmt: skip
        options.add(described, "debug", "quiet", default=SUPPRESS)
        add(described)
        described.set_defaults(action=action, table=name)


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
        line = f"{benchmark.name:{width}}  {benchmark.title}{section}"
        print(fill(line, 80, subsequent_indent=" " * (width + 2), break_on_hyphens=False))
    print(f"\nnext: {parsed.program} bench run {next(iter(BENCHMARKS))} --quick")
    return DONE


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="benchmarks to run, or all; gpu_step/NAME: a point")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--quick", action="store_true", help="small sizes and few samples: a trial")
    options.add(parser, "json", "results")


def measure(parsed: Namespace) -> int:
    """Run the benchmarks, print them, and write DIR/benchmarks/NAME/record.json; the exit code."""
    if not parsed.names:
        raise NothingSelectedError(
            f"nothing selected: name benchmarks ({parsed.program} bench list shows them), or all"
        )
    names = list(BENCHMARKS) if parsed.names == ["all"] else list(dict.fromkeys(parsed.names))
    from reproduce.annex.bench import benchmark_run
    from reproduce.annex.bench.table import table
    from results.records import write_record

    found = {name: benchmark_run.find(name) for name in names}  # all of them before the first one runs
    device, records = benchmark_run.choose_device(parsed.device), []
    tell = options.teller(parsed.quiet)
    for index, name in enumerate(names):
        try:
            record = benchmark_run.run(found[name][0], device, parsed.quick, parsed.command, tell, found[name][1])
        except KeyboardInterrupt:
            rest = f"{parsed.program} {shlex.join(['bench', 'run', *names[index:]])}"
            print(f"reproduce: interrupted in {name}; the rest, with the same options: {rest}", file=sys.stderr)
            return interrupts.settle()
        tell("")
        path = record_path(parsed.results, record.id)
        write_record(record, path)
        records.append(record)
        if not parsed.json:
            text = str(path) if parsed.quiet else f"{table(record, get_terminal_size().columns)}\nfile: {path}\n"
            print(text, flush=True)
    statuses = [{point.status for point in results_of(record)} for record in records]
    code = errors.POINTS_FAILED if any("failed" in status for status in statuses) else errors.DONE
    if not code and any("ok" not in status for status in statuses):
        code = errors.NOTHING_SELECTED
    if parsed.json:
        print_document("benchmarks-run", 1, {"exit_code": code, "benchmarks": [r.to_json() for r in records]})
    elif not parsed.quiet:
        print(f"next: {parsed.program} plot {records[-1].id}")
    return code


def _add_gpu(parser: ArgumentParser) -> None:
    parser.add_argument("--minutes", type=options.positive, metavar="N", help="stop in so many minutes")
    parser.add_argument("--toy", action="store_true", help="on a CPU, at toy sizes: shows that all steps work")
    parser.add_argument("--step", metavar="NAME", action="append", help="only this step; repeatable")
    parser.add_argument("--list", action="store_true", help="print the steps and their commands, and run nothing")
    parser.add_argument("--needs", action="store_true", help="print what the steps need beside torch, and run nothing")
    parser.add_argument(
        "--import", dest="archive", metavar="FILE", type=options.path_of, help="write the records of an archive to DIR"
    )
    parser.add_argument("--seal", action="store_true", help="predict all steps of today's sources, before any is taken")
    options.add(parser, "results", "json")


def run_session(parsed: Namespace) -> int:
    """Run the steps, or tell of them; done if all that could run have passed."""
    from reproduce.annex.bench import gpu_archive, gpu_session

    if parsed.archive:
        return _import(parsed)
    if parsed.seal:
        from results.records import write_record

        write_record(gpu_archive.seal(parsed.command), gpu_archive.SEALED)
        print(f"file: {gpu_archive.SEALED}")
        return DONE
    folder = parsed.results.absolute() / (f"{parsed.table}-toy" if parsed.toy else parsed.table)
    steps = gpu_session.steps(folder, parsed.toy, parsed.table)
    names = tuple(step.name for step in steps)
    for name in parsed.step or ():
        if name not in names:
            hint = errors.did_you_mean(name, names)
            raise errors.UsageError(f"unknown step {name!r}{hint}; there are {', '.join(names)}")
    steps = [step for step in steps if not parsed.step or step.name in parsed.step]
    if parsed.needs:
        for need, users in gpu_session.wheels(steps).items():
            print(f"{need:18} {'all' if len(users) == len(steps) else ', '.join(users)}")
        return DONE
    outcomes = {} if parsed.list else _outcomes(parsed, steps, folder)
    if parsed.json:
        rows = [
            {"name": step.name, "title": step.title, "command": step.command,
             "outcome": outcomes.get(step.name) and vars(outcomes[step.name])} for step in steps
        ]  # fmt: skip
        print_document("bench-gpu", 1, {"folder": str(folder), "steps": rows})
    elif parsed.list:
        print("\n".join(f"{step.name:26} {step.title}\n    {shlex.join(step.command)}" for step in steps))
    else:
        _print_outcomes(outcomes)
        print(f"logs: {folder}\nfile: {folder}.zip")
    return errors.DONE if all(outcome.good for outcome in outcomes.values()) else errors.POINTS_FAILED


def _print_outcomes(outcomes: "Mapping[str, StepOutcome]") -> None:
    from reproduce.annex.bench import gpu_session
    from reproduce.annex.bench.table import WIDTH

    for name, outcome in outcomes.items():
        if outcome.status != gpu_session.NO_TIME:
            head = f"{visible(name):26} {outcome.status:8} {outcome.seconds:5.0f} s  "
            print(fill(head + visible(outcome.said)[:100], WIDTH, subsequent_indent=" " * len(head)))
    if left := [visible(name) for name, outcome in outcomes.items() if outcome.status == gpu_session.NO_TIME]:
        left_out = f"no time was left for {', '.join(left)}; the same command goes on with them"
        print(fill(left_out, WIDTH, break_on_hyphens=False))
    statuses = [outcome.status for outcome in outcomes.values()]
    print(", ".join(f"{statuses.count(status)} {status}" for status in gpu_session.STATUSES))


def _import(parsed: Namespace) -> int:
    """Write the records of an archive to their places, and print how its steps ended and how they were predicted."""
    from reproduce.annex.bench import gpu_archive

    imported = gpu_archive.read(parsed.archive, parsed.results)
    gpu_archive.save(imported)
    if parsed.json:
        steps = imported.steps.items()
        rows = [{"name": name, "title": name, "command": [], "outcome": vars(row)} for name, row in steps]
        print_document("bench-gpu", 1, {"folder": str(parsed.results), "steps": rows, "scores": imported.scores})
        return DONE
    _print_outcomes(imported.steps)
    for line in (*(f"note: {remark}" for remark in imported.remarks), "", *gpu_archive.score_lines(imported.scores)):
        print(line)
    print(*(f"file: {path}" for path in imported.records), sep="\n")
    return DONE


def _outcomes(parsed: Namespace, steps: "Sequence[SessionStep]", folder: "Path") -> "Mapping[str, StepOutcome]":
    """Run the steps, and make the archive. Raises `UnavailableError` where there is no GPU for them."""
    from reproduce.annex.bench import gpu_archive, gpu_session

    if not parsed.toy and not part("measured", "fidelity").gpus_found():
        raise errors.UnavailableError("no GPU that PyTorch can use; needs one; try --toy, which runs on the CPU")
    progress = sys.stderr if parsed.json else sys.stdout

    def tell(text: str) -> None:
        if not parsed.quiet:
            print(text, file=progress, flush=True)

    try:
        return gpu_session.run(steps, folder, tell, 60 * parsed.minutes if parsed.minutes else math.inf)
    finally:
        if (folder / gpu_archive.SESSION).exists():
            gpu_archive.write(folder, folder.with_suffix(".zip"))
