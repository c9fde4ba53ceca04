"""`reproduce gate`: has head changed what is exact, and is it slower than base? (`benchmarks.gate`)"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gate import project as projects
from benchmarks.gate import trees
from benchmarks.gate.trees import BASE, HEAD, Tree
from reproduce.commands import options
from results import ROOT
from results.records import write_record
from results.records.documents import print_document
from results.records.errors import REGRESSED, UsageError
from results.records.storage import atomic_write_bytes

if TYPE_CHECKING:
    from benchmarks.gate.run import CheckResult, ExactFinding

UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
HELP = """First the exact checks of head against its own committed reference (reproduce gate exact); a
difference ends the check with 6. Then times: base and head run side by side in this session, in pairs of launches in
random order, at most as long as the budget.

--project checks any git checkout whose pyproject.toml names workloads (docs/gate.md); without it, this project's own.
Exact checks are a command of the project's, or counts of what a step does on base and on head (calls, allocations,
files, imports): more of anything ends the check with 6.

verdicts:
  regressed      slower by more than 3%: exit code 6
  ok             not slower by 10% or more: 0; between 3% and 10% either verdict may fall, or none
  improved       faster by more than 3%: 0
  inconclusive   none of these could be shown in the budget, or the machine is too loaded: 7

Base and head are commits. Without --head it is HEAD, and sources that differ from it are refused with 2: commit them,
or pass --head HEAD. A REF that is no commit: 2. A side that does not build, or a head that does not run, or a system
other than Linux: 3. The same commit twice, or a budget too short for anything: 9. What base cannot run is
"not compared", with the reason, and no failure. Both run under this interpreter, unless their dependencies differ.

Whether the gate works on this machine: reproduce gate trials.

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `reproduce gate`."""
    parser.add_argument("--base", required=True, metavar="REF", help="the commit to compare with, such as origin/main")
    parser.add_argument("--head", metavar="REF", help="the commit to check (default: HEAD, if nothing differs from it)")
    parser.add_argument(
        "--project", type=options.path_of, metavar="DIR", help="a git checkout with [tool.ptdp.gate] in pyproject.toml"
    )
    parser.add_argument("--budget", default="10m", metavar="TIME", help="such as 90s or 10m (default), all included")
    parser.add_argument(
        "--benchmark", action="append", default=[], metavar="NAME", help="default: the suite of the project; repeatable"
    )
    parser.add_argument("--seed", type=int, help="of the random orders and swaps (default: random, and said)")
    parser.add_argument(
        "--summary", type=options.path_of, metavar="FILE", help="append the result to this Markdown file, too"
    )
    options.add_json(parser)
    options.add_results(parser)


def run(parsed: argparse.Namespace, project: Path = ROOT) -> int:
    """Check, print, write the record; the exit code. Raises `ReproduceError` for what cannot be checked."""
    trees.require_linux()
    clock, started = time.monotonic(), datetime.now(UTC)
    from benchmarks.gate import run as gate  # imported here, as numpy takes a while

    measured = projects.read(parsed.project or project)
    project, budget_s, benchmarks = measured.folder, budget(parsed.budget), gate.select(measured, parsed.benchmark)
    seed = random.SystemRandom().randrange(2**31) if parsed.seed is None else parsed.seed
    trees.require_different(project, measured.sources, parsed.base, parsed.head)
    with trees.built(project, {BASE: parsed.base, HEAD: parsed.head or "HEAD"}) as built:
        exact = gate.exact(measured, built, benchmarks)
        if exact.failed:
            return _print_exact(parsed, built, exact)
        progress = progress_line(parsed.quiet)
        result = gate.check(built, benchmarks, seed, budget_s, progress, clock, exact.lacking)
    return _print(parsed, result, exact, started)


def budget(text: str) -> float:
    """Seconds of '90s', '10m', '1h' or '90'. Raises `UsageError` for anything else."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS_S else (text, "s")
    try:
        seconds = float(number) * UNITS_S[unit]
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--budget {text}: needs a time above zero, with s, m or h; try --budget 10m")
    return seconds


def progress_line(quiet: bool) -> Callable[[str], None]:
    """One line that changes, on a terminal; nothing in a log."""
    if quiet or not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[Kcheck: {text} ", end="", file=sys.stderr, flush=True)


def _print_exact(parsed: argparse.Namespace, built: dict[str, Tree], exact: "ExactFinding") -> int:
    """What the exact checks found, which ends the check: times would add nothing."""
    text = f"**regressed**: {built[HEAD]} {exact.headline}\n\n{exact.text}"
    if parsed.json:
        sides = {side: {"ref": tree.ref, "commit": tree.commit} for side, tree in built.items()}
        document = {"verdict": "regressed", "exit_code": REGRESSED, **sides, "exact": exact.as_json()}
        print_document("gate", 1, document)
    else:
        print(text)
    append_summary(parsed.summary, text)
    return REGRESSED


def _print(parsed: argparse.Namespace, result: "CheckResult", exact: "ExactFinding", started: datetime) -> int:
    from benchmarks.gate import report

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    text = "\n\n".join([report.headline(result), report.body(result), *([exact.text] if exact.text else [])])
    path = parsed.results / report.ID / "measured" / "record.json"
    write_record(report.record(result, parsed.command, started), path)
    if parsed.json:
        outcome = {"exit_code": result.code, "exact": exact.as_json(), "record": str(path)}
        print_document("gate", 1, report.document(result) | outcome)
    else:
        print(f"{text}\n\nrecord: {path}")
    append_summary(parsed.summary, text)
    return result.code


def append_summary(summary: Path | None, text: str) -> None:
    """Append a result to a Markdown file, if one was asked for."""
    if summary:
        before = summary.read_bytes() if summary.exists() else b""
        atomic_write_bytes(summary, before + f"{text}\n".encode())
