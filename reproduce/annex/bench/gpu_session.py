"""What one GPU should verify, or several of a node: steps ordered by what they are worth, in the minutes there are.

Each step is a process of its own with its own limit. A step that has passed with the same sources is not run again, and
those never tried come before those that failed, so that the same command goes on where it stopped. How each ended is
kept in `session.json`, its log and its results beside it; `gpu_archive.py` makes one file of all.
"""

import importlib.util
import json
import math
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduce.annex.bench.gpu_cases import CASES, GPUS_CASES, PEERS
from reproduce.running.fidelities import sources_digest
from results import ROOT
from results.records import Metric, errors, read_record
from results.records.storage import atomic_write_bytes

STATUSES = PASSED, SKIPPED, FAILED, TOO_LONG, NO_TIME = "passed", "skipped", "failed", "too long", "no time"
NOT_THERE = (errors.UNAVAILABLE, errors.NOTHING_SELECTED)  # exit codes that say that this machine cannot
LIMIT = 4  # times what a step is expected to take, which is all that it gets
TOY_TAKES = 3  # times as long, on any two cores
SAVING_S = 5.0  # of the session's time are kept for the archive
COMPILERS = ("cc", "gcc", "clang")
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TABLES = tuple(TABLE["steps"])
BEHIND = {
    row["name"]: row["behind"] for row in TABLE["steps"]["gpu"] if "behind" in row
}  # reads what another one leaves


def _rows(table: str) -> Iterator[Mapping[str, Any]]:
    """The rows of the steps of a table, with one for each case and peer."""
    for row in TABLE["steps"][table]:
        if row.get("cases") == "one":
            for case in CASES:
                yield _of_case("one", case.name)
                for name, (of, kind, compiled) in PEERS.items():
                    if of == case.name:
                        yield _of_case("compiled" if compiled else "peers", name, TABLE["needs"].get(kind, ()))
        elif "cases" in row:
            yield from (_of_case("several", case.name, ranks=case.layout.n) for case in reversed(GPUS_CASES))
        else:
            yield row


def _of_case(kind: str, name: str, needs: Sequence[str] = (), ranks: int = 1) -> dict[str, Any]:
    row = TABLE["case"][kind]
    title, needs = row["title"].format(case=name, ranks=ranks), [*needs, *row.get("needs", ())]
    return row | {"name": name, "title": title, "needs": needs, "command": f"{{bench}} {{quick}} gpu_step/{name}"}


@dataclass(frozen=True)
class SessionStep:
    """A command, what it shows, how many seconds it is expected to take, and which packages and programs it needs."""

    name: str
    title: str
    command: tuple[str, ...]
    expected_s: float = 60.0
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """What of its needs is not here, in a line."""
        lacking = [need for need in self.needs if not _there(need)]
        if shutil.which(self.command[0]) is None:
            lacking.append(self.command[0])
        return f"needs {', '.join(dict.fromkeys(lacking))}" if lacking else None


@dataclass(frozen=True)
class StepOutcome:
    """How a step ended, after how long; what it says in a line."""

    status: str
    seconds: float
    said: str

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return self.status in (PASSED, SKIPPED, NO_TIME)


def _there(need: str) -> bool:
    if need == "compiler":
        return any(shutil.which(name) for name in (os.environ.get("CC") or "cc", *COMPILERS))
    return shutil.which(need) is not None or importlib.util.find_spec(need.replace("-", "_")) is not None


def steps(folder: Path, toy: bool, table: str = "gpu") -> list[SessionStep]:
    """The steps of a session that writes its results there, in the order of their worth; `toy`: on a CPU, tiny."""
    found = []
    for row in _rows(table):
        paths = {"python": sys.executable, "folder": str(folder), "here": str(folder / row["name"].replace("/", "-"))}
        words = TABLE["words"]["toy" if toy else "gpu"] | {key: shlex.quote(word) for key, word in paths.items()}
        words |= {key: command.format(**words) for key, command in TABLE["commands"].items()}
        command = tuple(shlex.split(row["command"].format(**words)))
        needs = (*TABLE["wheels"], *row.get("needs", ()))
        found.append(SessionStep(row["name"], row["title"], command, row["seconds"] * (TOY_TAKES if toy else 1), needs))
    return found


def wheels(steps: Sequence[SessionStep]) -> dict[str, list[str]]:
    """The packages and programs that steps need beside torch, and the steps that need each."""
    names = dict.fromkeys(need for step in steps for need in step.needs)
    return {need: [step.name for step in steps if need in step.needs] for need in names}


def sources() -> str:
    """A digest of what the steps run."""
    annex = "reproduce/annex/bench"
    tables = (f"{annex}/gpu_cases.toml", f"{annex}/gpu_session.toml")
    packages = ("kernels", "ptdp_core", "benchmarks", annex, *tables)
    return sources_digest(packages, None, sys.modules[__name__])


def outcomes_of(folder: Path) -> tuple[dict[str, StepOutcome], bool]:
    """How the steps of a session ended; and whether there are others, of other sources, which count no more."""
    try:
        kept = json.loads((folder / "session.json").read_text(encoding="utf-8"))
        rows = {name: StepOutcome(**row) for name, row in kept["steps"].items()}
    except (OSError, ValueError, LookupError, TypeError):
        return {}, False
    return (rows, False) if kept["sources"] == sources() else ({}, bool(rows))


def run(
    steps: Sequence[SessionStep], folder: Path, tell: Callable[[str], None], seconds: float = math.inf
) -> dict[str, StepOutcome]:
    """Run the steps that have not passed, one failing or not, as far as the seconds go; the outcomes of all."""
    end = time.monotonic() + seconds - SAVING_S
    folder.mkdir(parents=True, exist_ok=True)
    outcomes, others = outcomes_of(folder)
    if others:
        tell("what ran here before had other sources: all steps are run again")
    left = [step for step in steps if step.name not in outcomes or outcomes[step.name].status != PASSED]
    for name in [step.name for step in steps if step not in left]:
        tell(f"{name}: passed before")
    untried = [step for step in left if step.name not in outcomes or outcomes[step.name].status == NO_TIME]
    for number, step in enumerate([*untried, *(step for step in left if step not in untried)], 1):
        head = f"[{number}/{len(left)}] {step.name}: {step.title} ..."
        source = BEHIND.get(step.name)
        if source and (source not in outcomes or outcomes[source].status != PASSED):
            outcome = StepOutcome(SKIPPED, 0.0, f"needs what the step {source} leaves")
        else:
            outcome = _run(step, folder, end, lambda head=head: tell(head))  # type: ignore[misc]
        if outcome.status != NO_TIME or step.name not in outcomes:
            outcomes[step.name] = outcome
        if outcome.seconds:
            tell(f"    {outcome.status} after {outcome.seconds:.0f} s: {outcome.said}")
        kept = {"sources": sources(), "steps": {name: vars(row) for name, row in outcomes.items()}}
        atomic_write_bytes(folder / "session.json", json.dumps(kept, indent=1).encode())
    return {step.name: outcomes[step.name] for step in steps}


def _run(step: SessionStep, folder: Path, end: float, begin: Callable[[], None]) -> StepOutcome:
    if step.missing:
        return StepOutcome(SKIPPED, 0.0, step.missing)
    start = time.monotonic()
    if step.expected_s > end - start:
        return StepOutcome(NO_TIME, 0.0, f"takes about {step.expected_s:.0f} s; the same command goes on with it")
    begin()
    (folder / step.name.replace("/", "-")).mkdir(exist_ok=True)
    log = folder / f"{step.name.replace('/', '-')}.log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            step.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(min(LIMIT * step.expected_s, end - start))
            status = PASSED if code == 0 else SKIPPED if code in NOT_THERE else FAILED
        except subprocess.TimeoutExpired:
            status = NO_TIME if end - start < LIMIT * step.expected_s else TOO_LONG
        finally:
            if process.poll() is None:  # with all that it started: they hold the GPU's memory
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return StepOutcome(status, time.monotonic() - start, _said(folder / step.name.replace("/", "-"), log))


def records(folder: Path) -> list[Path]:
    """The records that a step left."""
    return sorted(path for path in folder.rglob("record.json") if "checkpoints" not in path.parts)


def _said(results: Path, log: Path) -> str:
    """Why a point could not be measured, or the time of the only one; without records the last line that it printed.

    Of a list with headings, such as `reproduce doctor` prints, it is the last heading.
    """
    points = [p for path in records(results) for p in read_record(path).points if p.series != "canary"]
    if reasons := [f"{point.key}: {point.reason}" for point in points if point.reason]:
        return reasons[0]
    if len(points) == 1 and (time := points[0].metrics.get("time")) and time.value:
        mfu, ratio = (points[0].metrics.get(name) for name in ("mfu", "ratio"))
        said = f"{time.value:.3f} s" + (f", MFU {mfu.value:.1%}" if mfu and mfu.value else "")
        return said + (f", {ratio.value:.2f} of ours ({in_pairs(quartiles(ratio))})" if ratio and ratio.value else "")
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    headings = [line for line in lines if not line[0].isspace()] or lines
    return headings[-1].strip() if headings else "it printed nothing"


def quartiles(ratio: Metric) -> tuple[float, float] | None:
    """The first and the third quartile of a peer's time over ours; None unless steps were taken in turns."""
    if ratio.samples is None or len(ratio.samples) < 2:
        return None
    lower, _, upper = statistics.quantiles(ratio.samples, n=4, method="inclusive")
    return lower, upper


def in_pairs(spread: tuple[float, float] | None) -> str:
    """The quartiles of a ratio of pairs as text."""
    return f"{spread[0]:.2f} to {spread[1]:.2f}" if spread else "one after the other"
