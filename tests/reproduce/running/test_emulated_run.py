"""Real emulated runs of the command: interrupted, with what is finished kept and nothing left running."""

import signal

import pytest

from reproduce.experiment import catalog
from reproduce.running import runner
from reproduce.running.fidelities import evaluator
from results.records import read_record
from tests.processes import Program, wait_for

pytestmark = pytest.mark.slow
ID = "fig_pipeline_vs_data"


@pytest.fixture(autouse=True)
def _can_emulate():
    from reproduce.annex.emulation import requirements

    if missing := requirements():
        pytest.skip("; ".join(missing))


def test_interrupted_it_keeps_what_is_finished_and_leaves_nothing_behind(tmp_path):
    results = tmp_path / "results"
    with Program(tmp_path, "-m", "reproduce", ID, "--fidelity", "emulated", "--results", str(results)) as run:
        wait_for(lambda: run.process.poll() is not None or "1 of 6 done" in run.stderr)
        run.signal_group(signal.SIGINT)
        assert run.wait() == 130
        run.wait_until_gone()
        assert not run.temporary_files()
        text = run.stderr
    assert "points of fig_pipeline_vs_data are finished and kept; resume with: " in text
    assert f"{ID} --fidelity emulated --results {results}" in text
    record = read_record(results / ID / "emulated" / "record.json")
    assert record.state == "partial"
    plan = runner.plan(catalog.load(ID), results, "emulated")
    first = evaluator(plan).fingerprint(plan.points[0])
    assert record.points[0].fingerprint == first  # so that a second run takes it over
    assert record.points[0].status == "ok"
