"""`reproduce gate trials`: how often is the timing gate wrong, and how often does it not decide? (`gate.trials`)"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reproduce.annex.gate import project as projects
from reproduce.annex.gate import trees
from reproduce.annex.gate.command_gate import OWN, add_measured, append_summary, budget
from reproduce.commands import options
from results.records import errors
from results.records.errors import UsageError
from results.records.storage import write_files

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
    add_measured(parser, budget="2m", of="of each trial", summary="table")
    parser.add_argument(
        "--runs", type=options.positive, default=4, metavar="N", help="trials of this commit in all (default: 4)"
    )


def run(parsed: argparse.Namespace, project: Path = OWN) -> int:
    """Run the trials that are missing, and print verdicts by class of machine. Raises `ReproduceError`."""
    from reproduce.annex.gate import trials  # imported here, as numpy takes a while
    from reproduce.annex.gate.procedure import INCONCLUSIVE
    from results.records import provenance

    trees.require_linux()
    budget_s, progress = budget(parsed.budget), options.teller(parsed.quiet)
    measured = projects.of(parsed.project or project, parsed.benchmark)
    names = list(measured.workloads)
    if measured.slowed and (other := [name for name in names if name not in measured.suite]):
        suite = " or ".join(measured.suite)
        raise UsageError(f"--benchmark {other[0]}: {measured.slowed} does not slow it; try {suite}")
    path, started = trials.record_path(parsed.results), datetime.now(UTC)
    commit, machine = trees.resolve(measured.folder, "HEAD"), trials.machine()
    points = trials.earlier(path)
    tried = trials.tried(points, names[0], {**machine, "commit": commit})
    if len(tried) < parsed.runs:
        with trials.built(measured) as kinds:
            for number in range(len(tried) + 1, parsed.runs + 1):
                kind = min(trials.RIGHT, key=tried.count)
                tried.append(kind)
                added = trials.trial(kind, kinds[kind], measured, budget_s, progress)
                points = trials.append(path, added, provenance.collect(parsed.command, started, packages=("torch",)))
                progress("")
                for point in added:
                    print(f"{number} of {parsed.runs}  {kind:9}  {point.label}{_slowdown(point)}", flush=True)
    here, text = trials.having(points, machine), trials.table(points)
    outcomes = trials.outcomes(here)
    undecided = outcomes[INCONCLUSIVE] == len(here) >= trials.UNDECIDED
    if undecided:
        text += f"\n\nThe gate never decides on this class of machine: no verdict in {len(here)} trials."
    badge = json.dumps(trials.badge(here, measured))
    write_files(
        path.parent, {"trials.md": f"# How often the gate errs\n\n{text}\n".encode(), "badge.json": badge.encode()}
    )
    print(f"\n{text}\n\nfiles: {path.parent}/  (record.json, trials.md, badge.json)")
    append_summary(parsed.summary, text)
    return errors.INTERNAL if outcomes["wrong"] else errors.INCONCLUSIVE if undecided else errors.DONE


def _slowdown(point: "PointResult") -> str:
    """The slow-down with its interval, and what it took, as far as there are any."""
    value = {name: metric.value or 0.0 for name, metric in point.metrics.items()}
    text = f" {value['slowdown']:+.1%}" if "slowdown" in value else ""
    if {"slowdown_lower", "slowdown_upper"} <= value.keys():
        text += f" ({value['slowdown_lower']:+.1%} to {value['slowdown_upper']:+.1%})"
    return f"{text}, {point.parameters['pairs']} pairs, {value['duration']:.0f} s"
