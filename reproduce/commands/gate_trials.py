"""`reproduce gate trials`: how often is the timing gate wrong, and how often does it not decide? (`gate.trials`)"""

import argparse
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gate import project as projects
from benchmarks.gate import run as gate
from benchmarks.gate import trees, trials
from benchmarks.gate.project import OWN
from reproduce.commands import options
from reproduce.commands.gate import append_summary, budget, progress_line
from results import ROOT
from results.records.errors import UsageError
from results.records.storage import atomic_write_bytes

HELP = f"""Runs the timing gate on the commit HEAD against itself, and against itself with a patch that really makes it
slower (benchmarks/gate/slowed.patch), in turn; of another --project against itself with every iteration stretched by
{trials.STRETCHED:.0%}. Verdicts are appended to DIR/gate_trials/measured/record.json after each trial: the same command
goes on until there are --runs trials of this commit on this class of machine. Of a project trials.md beside it has the
table, and badge.json what shields.io makes a badge of. It ends with 1 if a verdict on this class of machine is wrong,
and with 7 if none of {trials.UNDECIDED} trials or more decided.

examples:
  reproduce gate trials --runs 20 --budget 3m

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `reproduce gate trials`."""
    parser.add_argument(
        "--project", type=options.path_of, metavar="DIR", help="a git checkout with [tool.ptdp.gate] in pyproject.toml"
    )
    parser.add_argument("--runs", type=int, default=4, metavar="N", help="trials of this commit in all (default: 4)")
    parser.add_argument("--budget", default="2m", metavar="TIME", help="of each trial, such as 90s or 2m (default)")
    parser.add_argument(
        "--benchmark",
        action="append",
        default=[],
        metavar="NAME",
        help="pipeline_step or simulator (default); repeatable",
    )
    parser.add_argument(
        "--summary", type=options.path_of, metavar="FILE", help="append the table to this Markdown file, too"
    )
    options.add_results(parser)


def run(parsed: argparse.Namespace, project: Path = ROOT) -> int:
    """Run the trials that are missing, and print verdicts by class of machine. Raises `ReproduceError`."""
    trees.require_linux()
    budget_s = budget(parsed.budget)
    measured = projects.read(parsed.project) if parsed.project else replace(OWN, folder=project)
    project, names = measured.folder, parsed.benchmark or (["simulator"] if measured.own_checks else [])
    benchmarks = gate.select(measured, names)
    if measured.own_checks and (slow := [name for name in names if name not in ("pipeline_step", "simulator")]):
        raise UsageError(f"--benchmark {slow[0]}: slowed.patch does not slow it; try pipeline_step or simulator")
    path, started, commit = trials.record_path(parsed.results), datetime.now(UTC), trees.resolve(project, "HEAD")
    machine = trials.Machine.here()
    points = trials.earlier(path)
    done = len(trials.of(points, machine, commit)) // len(benchmarks)
    if done < parsed.runs:
        with trials.built(measured, commit) as kinds:
            for number in range(done + 1, parsed.runs + 1):
                kind = trials.next_kind(trials.of(trials.earlier(path), machine, commit))
                added = trials.trial(kind, kinds[kind], measured, benchmarks, budget_s, progress_line(parsed.quiet))
                trials.append(path, added, parsed.command, started)
                if sys.stderr.isatty():
                    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
                for point in added:
                    print(f"{number} of {parsed.runs}  {kind:9}  {point.label}{_slowdown(point)}", flush=True)
    points = trials.earlier(path)
    here = [point for point in points if trials.machine_of(point) == machine]
    lines = trials.table(points)
    if trials.never_decides(here):
        lines += ["", f"The gate never decides on this class of machine: no verdict in {len(here)} trials."]
    if measured.own_checks:  # whose slowed head is a patch, not stretched iterations
        print("\n".join(["", *lines, "", f"record: {path}"]))
    else:
        page = "\n".join(["# How often the gate errs", "", *lines, ""])
        atomic_write_bytes(path.with_name("trials.md"), page.encode())
        atomic_write_bytes(path.with_name("badge.json"), json.dumps(trials.badge(here)).encode())
        print("\n".join(["", *lines, "", f"files: {path.parent}/  (record.json, trials.md, badge.json)"]))
    append_summary(parsed.summary, "\n".join(lines))
    return trials.code(here)


def _slowdown(point: "trials.PointResult") -> str:
    """The slow-down with its interval, and what it took, as far as there are any."""
    value = {name: metric.value or 0.0 for name, metric in point.metrics.items()}
    text = f" {value['slowdown']:+.1%}" if "slowdown" in value else ""
    if {"slowdown_lower", "slowdown_upper"} <= value.keys():
        text += f" ({value['slowdown_lower']:+.1%} to {value['slowdown_upper']:+.1%})"
    return f"{text}, {point.parameters['pairs']} pairs, {value['duration']:.0f} s"
