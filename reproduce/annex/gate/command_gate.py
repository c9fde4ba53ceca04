"""`reproduce gate`: has head changed what is exact, and is it slower than base? (`reproduce.annex.gate`)"""

import argparse
import random
import time
from datetime import UTC, datetime
from pathlib import Path

from reproduce.annex.gate import project as projects
from reproduce.annex.gate import trees
from reproduce.annex.gate.trees import BASE, HEAD
from reproduce.commands import options
from results import ROOT
from results.records import write_record
from results.records.documents import print_document
from results.records.errors import UsageError
from results.records.storage import IS_CHECKOUT, atomic_write_bytes

OWN = ROOT if IS_CHECKOUT else Path()  # the project unless --project names one: an installed copy has no history
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
HELP = """Exact checks first (the project's own command, or counts of what a step does on base and on head): a
difference ends the check with 6. Then base and head run side by side, in pairs of launches, within the budget.
--project is any git checkout whose pyproject.toml names workloads (docs/gate.md); default: this one, or this folder.

  regressed      slower by more than 3%: exit code 6
  ok             not slower by 10% or more: 0; between 3% and 10% either verdict may fall, or none
  improved       faster by more than 3%: 0
  inconclusive   none of these could be shown in the budget, or the machine is too loaded: 7

2: a REF that is no commit, or changes that no commit holds (commit them, or pass --head HEAD). 3: a side that does not
build, a head that does not run, no Linux. 9: the same commit twice, or too short a budget. What base cannot run is "not
compared". The exact checks alone: reproduce gate exact. Whether the gate works on this machine: reproduce gate trials.

"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `reproduce gate`."""
    parser.add_argument("--base", required=True, metavar="REF", help="the commit to compare with, such as origin/main")
    parser.add_argument("--head", metavar="REF", help="the commit to check (default: HEAD, if nothing differs from it)")
    add_measured(parser, budget="10m", of="all included", summary="result")
    parser.add_argument("--seed", type=int, help="of the random orders and swaps (default: random, and said)")
    parser.add_argument("--keep-going", action="store_true", help="take times even if the exact checks fail")
    options.add(parser, "json")


def add_measured(parser: argparse.ArgumentParser, budget: str, of: str, summary: str) -> None:
    """The options of what is measured, for how long, and where the result goes."""
    parser.add_argument(
        "--project", type=options.path_of, metavar="DIR", help="a git checkout with [tool.ptdp.gate] in pyproject.toml"
    )
    parser.add_argument("--budget", default=budget, metavar="TIME", help=f"such as 90s or {budget} (default), {of}")
    named = "default: the suite of the project; or the id of a test with a benchmark fixture; repeatable"
    parser.add_argument("--benchmark", action="append", default=[], metavar="NAME", help=named)
    parser.add_argument(
        "--summary", type=options.path_to_write, metavar="FILE", help=f"append the {summary} to this Markdown file, too"
    )
    options.add(parser, "results")


def run(parsed: argparse.Namespace, project: Path = OWN) -> int:
    """Check, print, write the record; the exit code. Raises `ReproduceError` for what cannot be checked."""
    trees.require_linux()
    clock, started = time.monotonic(), datetime.now(UTC)
    from reproduce.annex.gate import report  # imported here, as numpy takes a while
    from reproduce.annex.gate import run as gate

    measured = projects.of(parsed.project or project, parsed.benchmark)
    budget_s, progress = budget(parsed.budget), options.teller(parsed.quiet)
    seed = random.SystemRandom().randrange(2**31) if parsed.seed is None else parsed.seed
    if seed < 0:
        raise UsageError(f"--seed {seed}: needs a whole number from 0 on; try --seed 1")
    trees.require_different(measured.folder, measured.sources, parsed.base, parsed.head)
    refs = {BASE: parsed.base, HEAD: parsed.head or "HEAD"}
    with trees.built(measured.folder, refs, measured.build) as built:
        result = gate.check(measured, built, seed, budget_s, progress, parsed.keep_going, started=clock)
    progress("")
    text, document = report.text(result), report.document(result)
    if result.timed:
        path = parsed.results / report.ID / "measured" / "record.json"
        write_record(report.record(result, parsed.command, started), path)
        document["record"] = str(path)
    if parsed.json:
        print_document("gate", 1, document)
    else:
        print(f"{text}\n\nrecord: {path}" if result.timed else text)
    append_summary(parsed.summary, text)
    return result.code


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


def append_summary(summary: Path | None, text: str) -> None:
    """Append a result to a Markdown file, if one was asked for."""
    if summary:
        before = summary.read_bytes() if summary.exists() else b""
        atomic_write_bytes(summary, before + f"{text}\n".encode())
