"""`reproduce bench`: microbenchmarks, measured, kept, followed over commits; and all that one GPU should verify."""

import re
import shlex
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.registry import BENCHMARKS, find
from ptdp_core import interrupts
from reproduce.commands import options
from results import ROOT
from results.records import errors
from results.records.documents import print_document
from results.records.errors import DONE, INCONCLUSIVE, NothingSelectedError, UsageError, did_you_mean
from results.records.storage import write_files

if TYPE_CHECKING:
    from reproduce.running.gpu_session import SessionStep, StepOutcome

MEANINGS = {
    "list": "the microbenchmarks: of the engine, its kernels and messages, and the simulator",
    "run": "measure with microbenchmarks, and keep every sample",
    "history": "a benchmark's values over commits: table, trend, change points",
    "bisect": "the commit that changed a benchmark's value, by git bisect",
    "gpu": "all that half an hour on one GPU should verify, step by step; --toy for a CPU",
}
RUN_HELP = """\
examples:
  reproduce bench run gemm --quick
  reproduce bench run p2p collectives --device cuda
  reproduce plot gemm

"""
HISTORY_HELP = """\
Every `reproduce bench run` is kept, by class of machine and commit, in DIR/benchmarks/NAME/history; no two
machines are mixed. A change point begins a new level of the values, at least 3% away (PELT, from the package ruptures;
pip install 'ptdp[history]'). The figure is in DIR/benchmarks/NAME/history.

examples:
  reproduce bench history simulator_rate
  reproduce bench history gemm --metric speed --point square/1024

"""
BISECT_HELP = """\
Measures the good and the bad commit, each with its own code, in a worktree; then git bisect does in between.
A commit counts as good if its median of three quick runs is nearer to the good one's. What cannot run the benchmark is
skipped. Good and bad have to differ by 5%; the point that differs most is followed, or --point.

examples:
  reproduce bench bisect simulator_rate --good v0.1 --bad HEAD

"""
GPU_HELP = """\
Tests that need a GPU, kernels under compute-sanitizer, matrix products, operators, training steps with
profiles, calibration, the artifacts that one GPU can do, training and saving under torchrun on NCCL, FSDP2, text from a
checkpoint: steps of at most 10 minutes each, in this order. The same command goes on where it stopped; what has passed
is not run again. Logs and results are in DIR/gpu.

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
        ("history", _add_history, show_history, HISTORY_HELP),
        ("bisect", _add_bisect, bisect, BISECT_HELP),
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
    from benchmarks.harness import history, runner
    from benchmarks.harness.table import table
    from results.records import write_record

    device, records = runner.choose_device(parsed.device), []
    tell = options.teller(parsed.quiet)
    for index, name in enumerate(names):
        try:
            record = runner.run(BENCHMARKS[name], device, parsed.quick, parsed.command, tell)
        except KeyboardInterrupt:
            rest = shlex.join([*parsed.program.split(), "bench", "run", *names[index:]])
            print(f"reproduce: interrupted in {name}; the rest, with the same options: {rest}", file=sys.stderr)
            return interrupts.settle()
        tell("")
        path = runner.record_path(parsed.results, name)
        write_record(record, path)
        history.keep(record, parsed.results)
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


def _add_history(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a benchmark (reproduce bench list)")
    parser.add_argument("--metric", help="default: the first column of the benchmark's table")
    parser.add_argument("--point", metavar="KEY", help="the runs of this point, one by one")
    parser.add_argument("--quick", action="store_true", help="the runs with --quick")
    options.add_results(parser)


def show_history(parsed: Namespace) -> int:
    """Print a table and write a figure for each class of machine. Raises `ReproduceError`."""
    from tabulate import tabulate

    from benchmarks.harness import history as storage
    from reproduce.analysis import history
    from reproduce.output import theme

    benchmark = find(parsed.name)
    metric = parsed.metric or benchmark.columns[0]
    scale = "quick" if parsed.quick else "full"
    by_machine = storage.kept(parsed.results, benchmark.name, scale)
    if not by_machine:
        quick = " --quick" if parsed.quick else ""
        raise NothingSelectedError(
            f"no {scale} run of {benchmark.name} is kept in {parsed.results}; "
            f"try reproduce bench run {benchmark.name}{quick}"
        )
    for machine, records in by_machine.items():
        trends = history.trends(records, metric)
        names = [trend.point for trend in trends]
        if not trends:
            raise UsageError(
                f"--metric {metric}: no point of {benchmark.name} has it{did_you_mean(metric, benchmark.columns)}"
            )
        if parsed.point is not None and parsed.point not in names:
            raise UsageError(
                f"--point {parsed.point}: no such point{did_you_mean(parsed.point, names)}; "
                f"there are {', '.join(names)}"
            )
        chosen = [trend for trend in trends if parsed.point in (None, trend.point)]
        headings, rows = history.overview(chosen) if parsed.point is None else history.runs_of(chosen[0])
        print(f"{benchmark.name}, {metric}, on {machine}: {len(records)} runs [measured]\n")
        print(tabulate(rows, headings, tablefmt="pipe", disable_numparse=True), end="\n\n")
        with theme.style():
            files = theme.figure_files(
                history.draw(chosen, benchmark.name, metric, machine), f"{benchmark.name}: history", "trend"
            )
        folder = storage.folder(parsed.results, benchmark.name) / machine
        write_files(folder, files)
        print(f"figure: {folder / 'trend.png'}\n")
    return DONE


def _add_bisect(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a benchmark (reproduce bench list)")
    parser.add_argument("--good", required=True, metavar="REF", help="a commit before the change")
    parser.add_argument("--bad", required=True, metavar="REF", help="a later commit, with the change")
    parser.add_argument("--metric", help="default: the first column of the benchmark's table")
    parser.add_argument("--point", metavar="KEY", help="default: the point that differs most")


def bisect(parsed: Namespace, project: Path = ROOT) -> int:
    """Bisect and print; done if one commit is left. Raises `ReproduceError`."""
    from benchmarks.gate.trees import resolve
    from benchmarks.harness import bisection

    benchmark = find(parsed.name)
    metric = parsed.metric or benchmark.columns[0]
    good, bad = (resolve(project, ref) for ref in (parsed.good, parsed.bad))
    with bisection.worktree(project, good) as tree:
        of_good = bisection.medians(tree, benchmark.name, metric)
        bisection.git(tree, "checkout", "--detach", "--quiet", bad)
        of_bad = bisection.medians(tree, benchmark.name, metric)
        point = bisection.most_different(of_good, of_bad, parsed.point)
        print(f"{point}, {metric}: {of_good[point]:.6g} at {good[:10]}, {of_bad[point]:.6g} at {bad[:10]}", flush=True)
        printed = bisection.find(tree, benchmark.name, metric, point, (good, of_good[point]), (bad, of_bad[point]))
        tried = re.findall(r"^value: (.*)$", printed, re.MULTILINE)
        first = re.search(r"^([0-9a-f]{40}) is the first bad commit$", printed, re.MULTILINE)
        print(*(f"  tried: {text}" for text in tried), sep="\n")
        if not first:
            print(f"not found: {printed.strip().splitlines()[-1]}")
            return INCONCLUSIVE
        print(f"first bad commit: {bisection.git(tree, 'log', '-1', '--format=%h %ad %s', '--date=short', first[1])}")
    return DONE


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


def _outcomes(parsed: Namespace, steps: "Sequence[SessionStep]", folder: Path) -> "Mapping[str, StepOutcome]":
    """Run the steps. Raises `UnavailableError` where there is no GPU for them."""
    from reproduce.running import gpu_session, measured

    if not parsed.toy and not measured.gpus_found():
        raise errors.UnavailableError("no GPU that PyTorch can use; needs one; try --toy, which runs on the CPU")
    progress = sys.stderr if parsed.json else sys.stdout
    return gpu_session.run(
        steps, folder, lambda text: print(text, file=progress, flush=True) if not parsed.quiet else None
    )
