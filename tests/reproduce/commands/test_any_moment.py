"""Ctrl-C and SIGTERM at random moments of emulated and measured runs: each ends soon, says so, and leaves nothing.

    python -m pytest -m slow -s tests/reproduce/commands/test_any_moment.py        60 moments, about 12 minutes
    PTDP_MOMENTS=200 PTDP_SEED=7 python -m pytest -m slow -s ...                   more, and other ones

With -s it prints a row for every moment; the nightly run has other ones every night. A moment is drawn from the time
that the run takes by itself, from the program's first own line on: what comes before is Python's start.
"""

import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from results.records.record import read_record
from tests.processes import Program, needs_proc, wait_for

pytestmark = [pytest.mark.slow, needs_proc]
MOMENTS, SEED = int(os.environ.get("PTDP_MOMENTS", "60")), int(os.environ.get("PTDP_SEED", "2021"))
LIMIT_S = 10.0
RUNS = {
    "emulated": ("fig_gpipe_timeline", "--fidelity", "emulated"),
    "measured": ("table_weak_scaling", "--fidelity", "measured", "--scale", "cpu"),
    "torchrun": ("table_weak_scaling", "--fidelity", "measured", "--scale", "cpu", "--launcher", "torchrun"),
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True)
class Moment:
    """When which signal comes, to the whole group as a terminal sends it, or to the program alone."""

    run: str  # of RUNS
    share: float  # of the run's own duration
    number: signal.Signals
    group: bool


def moments(run):
    """The moments of one of the runs, which together have as many as are asked for."""
    drawn = random.Random(f"{SEED} {run}")
    count = len(range([*RUNS].index(run), MOMENTS, len(RUNS)))
    return [Moment(run, drawn.random(), drawn.choice(tuple(CODES)), drawn.random() < 0.5) for _ in range(count)]


def start(name, folder):
    """The run, at its own first line: it catches SIGTERM, which Python by itself does not."""
    folder.mkdir()
    run = Program(folder, "-m", "reproduce", *RUNS[name], "--results", str(folder / "results"))
    wait_for(lambda: run.process.poll() is not None or catches(run.process.pid, signal.SIGTERM))
    return run


def catches(pid, number):
    status = (Path("/proc") / str(pid) / "status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(mask, 16) >> (number - 1) & 1)


def wrong(run, folder, code, moment):
    """What is not as it should be after the end of an interrupted run."""
    left_over = [f"process {pid}" for pid in run.processes()] + run.temporary_files()
    files = [path for path in (folder / "results").rglob("*") if path.is_file() or path.name.startswith(".")]
    left_over += [path.name for path in files if path.name.startswith(".")]
    records = [read_record(path) for path in files if path.name in ("record.json", "partial.json")]
    if code == 0:  # the signal came after the end
        return left_over + [f"record {record.state}" for record in records if record.state != "complete"]
    if code != CODES[moment.number]:
        left_over.append(f"exit code {code}")
    *progress, last = run.stderr.splitlines() or [""]
    if not last.startswith("reproduce: interrupted") or "Traceback" in run.stderr:
        left_over.append(f"said {last!r}")
    artifact = RUNS[moment.run][0]
    return left_over + [f"line {line!r}" for line in progress if not line.startswith(f"{artifact}: ")]


@pytest.mark.parametrize("name", RUNS)
def test_any_moment(name, tmp_path):
    from reproduce.annex.emulation import requirements

    if missing := requirements():
        pytest.skip("; ".join(missing))
    failures = []
    with start(name, tmp_path / name) as run:
        begin = time.monotonic()
        assert run.wait() == 0
        duration = time.monotonic() - begin
    print(f"\n{name}: {duration:.1f} s by itself")
    print("   #  run       signal   to       at s  end s  code  wrong")
    for index, moment in enumerate(moments(name)):
        delay = moment.share * duration
        with start(moment.run, folder := tmp_path / str(index)) as run:
            time.sleep(delay)
            begin = time.monotonic()
            (os.killpg if moment.group else os.kill)(run.process.pid, moment.number)
            code = run.wait()
            while run.processes() and time.monotonic() < begin + LIMIT_S:
                time.sleep(0.01)
            seconds = time.monotonic() - begin
            problems = wrong(run, folder, code, moment)
        if seconds > LIMIT_S:
            problems.append(f"took {seconds:.1f} s")
        to = "group" if moment.group else "program"
        row = f"{moment.run}  {moment.number.name:7}  {to:7}  {delay:5.1f}  {seconds:5.2f}  {code:4}"
        print(f"{index:4}  {row}  {json.dumps(problems) if problems else '-'}", flush=True)
        failures += [(index, moment, problems)] if problems else []
    assert not failures
