"""`reproduce gate trials`: how often is the timing gate wrong, and how often does it not decide? (`gate.trials`)"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gate import project as projects
from benchmarks.gate import trees
from reproduce.commands import options
from reproduce.commands.gate import append_summary, budget, progress_line
from results import ROOT
from results.records.errors import UsageError
from results.records.storage import atomic_write_bytes

if TYPE_CHECKING:
    from results.records import PointResult

HELP = """Runs the timing gate on the commit HEAD against itself, and, in turn, against itself with a patch that really
makes it slower (`slowed` in the project's [tool.ptdp.gate]), or where there is none with every iteration stretched by
10%. Verdicts are appended to DIR/gate_trials/measured/record.json after each trial: the same command
goes on until there are --runs trials of this commit on this class of machine. Beside it trials.md has the
table, and badge.json what shields.io makes a badge of. It ends with 1 if a verdict on this class of machine is wrong,
and with 7 if none of 4 trials or more decided.

examples:
  reproduce gate trials --benchmark simulator --runs 20 --budget 3m

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `reproduce gate trials`."""
    parser.add_argument(
        "--project", type=options.path_of, metavar="DIR", help="a git checkout with [tool.ptdp.gate] in pyproject.toml"
    )
    parser.add_argument("--runs", type=int, default=4, metavar="N", help="trials of this commit in all (default: 4)")
    parser.add_argument("--budget", default="2m", metavar="TIME", help="of each trial, such as 90s or 2m (default)")
    parser.add_argument(
        "--benchmark", action="append", default=[], metavar="NAME", help="default: the suite of the project; repeatable"
    )
    parser.add_argument(
        "--summary", type=options.path_of, metavar="FILE", help="append the table to this Markdown file, too"
    )
    options.add_results(parser)


def run(parsed: argparse.Namespace, project: Path = ROOT) -> int:
    """Run the trials that are missing, and print verdicts by class of machine. Raises `ReproduceError`."""
    from benchmarks.gate import run as gate  # imported here, as numpy takes a while
    from benchmarks.gate import trials

    trees.require_linux()
    budget_s = budget(parsed.budget)
    measured = projects.read(parsed.project or project)
    benchmarks, slowed = gate.select(measured, parsed.benchmark), measured.suite
    if measured.slowed and (other := [each.name for each in benchmarks if each.name not in slowed]):
        raise UsageError(f"--benchmark {other[0]}: {measured.slowed} does not slow it; try {' or '.join(slowed)}")
    path, started = trials.record_path(parsed.results), datetime.now(UTC)
    commit = trees.resolve(measured.folder, "HEAD")
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
    page = "\n".join(["# How often the gate errs", "", *lines, ""])
    atomic_write_bytes(path.with_name("trials.md"), page.encode())
    atomic_write_bytes(path.with_name("badge.json"), json.dumps(trials.badge(here, measured)).encode())
    print("\n".join(["", *lines, "", f"files: {path.parent}/  (record.json, trials.md, badge.json)"]))
    append_summary(parsed.summary, "\n".join(lines))
    return trials.code(here)


def _slowdown(point: "PointResult") -> str:
    """The slow-down with its interval, and what it took, as far as there are any."""
    value = {name: metric.value or 0.0 for name, metric in point.metrics.items()}
    text = f" {value['slowdown']:+.1%}" if "slowdown" in value else ""
    if {"slowdown_lower", "slowdown_upper"} <= value.keys():
        text += f" ({value['slowdown_lower']:+.1%} to {value['slowdown_upper']:+.1%})"
    return f"{text}, {point.parameters['pairs']} pairs, {value['duration']:.0f} s"
