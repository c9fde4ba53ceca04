"""Real emulated runs of the command: interrupted, with what is finished kept and nothing left running."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.records import read_record
from reproduce import ROOT
from reproduce.experiment import catalog
from reproduce.running.fidelities import evaluator

pytestmark = pytest.mark.slow
ID = "fig_pipeline_vs_data"
PATIENCE_S = 120


@pytest.fixture(autouse=True)
def _can_emulate():
    from ptdp_core.emulation import requirements

    if missing := requirements():
        pytest.skip("; ".join(missing))


def members(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def waited(condition, patience=PATIENCE_S):
    end = time.monotonic() + patience
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def test_interrupted_it_keeps_what_is_finished_and_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-m", "reproduce", ID, "--fidelity", "emulated", "--results", str(tmp_path / "results")]
    log = tmp_path / "stderr"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        assert waited(lambda: "1 of 6 done" in log.read_text())
        time.sleep(1.0)  # into the second point
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert waited(lambda: not members(process.pid), 10)
    text = log.read_text()
    assert "points of fig_pipeline_vs_data are finished and kept; resume with: " in text
    assert f"{ID} --fidelity emulated --results {tmp_path / 'results'}" in text
    record = read_record(tmp_path / "results" / ID / "emulated" / "record.json")
    assert record.state == "partial"
    evaluate = evaluator(catalog.load(ID), "emulated", "selene")
    first = catalog.load(ID).points("laptop")[0]
    assert record.points[0].fingerprint == evaluate.fingerprint(first)  # so that a second run takes it over
    assert record.points[0].status == "ok"
