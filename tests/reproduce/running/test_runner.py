"""Running: files, resumption, interruption, and earlier results that stay intact whatever happens."""

import errno
import json
import os
import re
from contextlib import nullcontext
from dataclasses import replace

import pytest

from ptdp_core.errors import ConfigurationError
from reproduce.experiment import catalog
from reproduce.experiment.sweep import Sweep
from reproduce.output import export
from reproduce.output.tables import markdown
from reproduce.running import derived, fidelities, runner
from results.records import Metric, StorageError, read_record
from results.records.errors import InvalidResultsError

COMMAND = ["reproduce", "fig_squares"]


def run(artifact, results, **options):
    return runner.run(runner.plan(artifact, results), COMMAND, exported=True, **options)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_writes_record_and_tables(small, tmp_path):
    done = run(small, tmp_path)
    folder = tmp_path / "fig_squares" / "derived"
    assert {path.name for path in folder.iterdir()} == {"record.json", "table.md", "table.tex", "table.csv"}
    record = read_record(folder / "record.json")
    assert record == done.record
    assert (record.state, record.fidelity, record.scale, record.kind) == ("complete", "derived", "paper", "artifact")
    assert record.paper.label == "Figure 0"
    assert [p.metrics["square"].value for p in record.points] == [1, 4, 9, 16, 25]
    assert [c.verdict for c in record.claims] == ["contradicted"]
    assert record.notes[-1] == "5 points"
    assert record.provenance.command == ("reproduce", "fig_squares")
    assert record.provenance.code_digest


def test_a_second_run_computes_nothing_and_changes_nothing(small, counter, tmp_path):
    run(small, tmp_path)
    before = contents(tmp_path / "fig_squares" / "derived")
    counter.calls.clear()
    again = run(small, tmp_path)
    assert (again.computed, again.reused, counter.calls) == (0, 5, [])
    assert contents(tmp_path / "fig_squares" / "derived") == before


def test_an_unchanged_run_judges_and_draws_nothing(small, tmp_path, monkeypatch):
    first = run(small, tmp_path)
    monkeypatch.setattr(runner, "judge", None)
    monkeypatch.setattr(export, "contents", None)
    again = run(small, tmp_path)
    assert (again.record, again.files) == (first.record, first.files)


def test_claims_are_judged_again_once_published_values_or_sources_have_changed(small, tmp_path, monkeypatch):
    run(small, tmp_path)
    changed = replace(small, claims=[])
    assert len(run(changed, tmp_path).record.claims) == 1  # the claims' sources are as they were
    later = max(path.stat().st_mtime_ns for path in (tmp_path / "fig_squares" / "derived").iterdir())
    monkeypatch.setattr(runner, "_newest_source", lambda: later)
    assert run(changed, tmp_path).record.claims == ()


def test_fresh_computes_everything(small, counter, tmp_path):
    run(small, tmp_path)
    counter.calls.clear()
    assert run(small, tmp_path, fresh=True).computed == len(counter.calls) == 5


def test_changed_sources_or_parameters_are_computed_again(small, counter, tmp_path, monkeypatch):
    run(small, tmp_path)
    counter.calls.clear()
    points = small.points("paper")
    changed = (replace(points[0], parameters={"x": 7}), *points[1:])
    done = run(replace(small, sweeps={"paper": Sweep(lambda: changed)}), tmp_path)
    assert counter.calls == ["x1"]
    assert done.record.points[0].metrics["square"].value == 49
    counter.calls.clear()
    monkeypatch.setattr(derived, "digest", lambda artifact: "1" * 64)
    run(small, tmp_path)
    assert len(counter.calls) == 5


def test_what_does_not_determine_the_numbers_is_taken_anew(small, counter, tmp_path):
    run(small, tmp_path)
    counter.calls.clear()
    points = tuple(replace(p, label=f"new {p.label}", paper={}) for p in small.points("paper"))
    done = run(replace(small, sweeps={"paper": Sweep(lambda: points)}), tmp_path)
    assert counter.calls == []
    assert done.record.points[0].label == "new x=1"
    assert done.record.points[0].paper == {}


def test_another_cluster_is_another_result(tmp_path, figure_12):
    plan = figure_12.plan
    a = fidelities.evaluator(plan)
    b = replace(a, cluster_ref=replace(a.cluster_ref, digest="2" * 64))
    assert a.fingerprint(plan.points[0]) == figure_12.record.points[0].fingerprint
    assert a.fingerprint(plan.points[0]) != b.fingerprint(plan.points[0])


def test_another_cluster_is_not_held_against_the_papers_values(figure_12):
    plan, points = figure_12.plan, figure_12.record.points
    on_h100, claims, notes = runner.judge_points(fidelities.evaluator(replace(plan, cluster="h100")), points)
    assert all(point.paper for point in points)
    assert not any(point.paper for point in on_h100)
    assert [claim.id for claim in claims] == [claim.id for claim in figure_12.record.claims]
    assert "not compared with h100" in notes[-1]


def test_an_interrupted_run_keeps_what_is_finished_and_resumes(small, counter, tmp_path):
    counter.fail_at = {4: KeyboardInterrupt()}
    with pytest.raises(runner.InterruptedRun, match="3 of 5 points of fig_squares are finished and kept"):
        run(small, tmp_path)
    record = read_record(tmp_path / "fig_squares" / "derived" / "record.json")
    assert (record.state, [p.key for p in record.points]) == ("partial", ["x1", "x2", "x3"])
    counter.calls.clear()
    counter.fail_at = {}
    done = run(small, tmp_path)
    assert counter.calls == ["x4", "x5"]
    assert (done.computed, done.reused, done.record.state) == (2, 3, "complete")


def test_an_interrupted_run_leaves_a_complete_record_alone(small, counter, tmp_path, monkeypatch):
    run(small, tmp_path)
    folder = tmp_path / "fig_squares" / "derived"
    before = contents(folder)
    counter.calls.clear()
    monkeypatch.setattr(derived, "digest", lambda artifact: "1" * 64)
    counter.fail_at = {3: KeyboardInterrupt()}
    with pytest.raises(runner.InterruptedRun):
        run(small, tmp_path)
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    assert read_record(folder / "partial.json").state == "partial"
    counter.calls.clear()
    counter.fail_at = {}
    assert run(small, tmp_path).computed == 3
    assert not (folder / "partial.json").exists()


def test_a_second_interruption_does_not_lose_what_the_first_kept(small, counter, tmp_path):
    counter.fail_at = {5: KeyboardInterrupt()}
    with pytest.raises(runner.InterruptedRun):
        run(small, tmp_path)
    counter.calls.clear()
    first = small.points("paper")[0]
    changed = (replace(first, parameters={"x": 9}), *small.points("paper")[1:])
    counter.fail_at = {2: KeyboardInterrupt()}
    with pytest.raises(runner.InterruptedRun):
        run(replace(small, sweeps={"paper": Sweep(lambda: changed)}), tmp_path)
    record = read_record(tmp_path / "fig_squares" / "derived" / "record.json")
    assert {p.key for p in record.points} == {"x1", "x2", "x3", "x4"}


def test_progress_is_saved_while_running(small, counter, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "SAVE_EVERY_S", 0.0)
    evaluated = []
    path = tmp_path / "fig_squares" / "derived" / "record.json"
    watch = nullcontext(lambda label: evaluated.append(len(read_record(path).points)))
    runner.run(runner.plan(small, tmp_path), COMMAND, progress=watch)
    assert evaluated == [1, 2, 3, 4, 5]


def test_points_that_break_do_not_stop_the_others(small, counter, tmp_path):
    counter.fail_at = {2: ConfigurationError("x=2 is odd; needs more"), 3: RuntimeError("boom")}
    record = run(small, tmp_path).record
    assert [p.status for p in record.points] == ["ok", "invalid", "failed", "ok", "ok"]
    assert record.points[1].reason == "x=2 is odd; needs more"
    assert "RuntimeError: boom" in record.points[2].reason
    counter.calls.clear()
    counter.fail_at = {}
    assert [p.status for p in run(small, tmp_path).record.points] == ["ok"] * 5
    assert counter.calls == ["x2", "x3"]  # neither is settled by what the fingerprint covers


def test_an_error_of_ours_is_a_failure_and_no_invalid_point(small, tmp_path):
    """A unit that records do not know is a ValueError, but says nothing about the configuration."""
    artifact = replace(small, derive=lambda point: {"square": Metric(1, "furlong", "derived")})
    points = runner.run(runner.plan(artifact, tmp_path), COMMAND).record.points
    assert {point.status for point in points} == {"failed"}
    assert all(point.reason.startswith("ValueError: unit='furlong' is unknown") for point in points)


def test_debug_lets_a_breaking_point_break(small, counter, tmp_path):
    counter.fail_at = {2: RuntimeError("boom")}
    with pytest.raises(RuntimeError, match="boom"):
        run(small, tmp_path, debug=True)
    assert len(read_record(tmp_path / "fig_squares" / "derived" / "record.json").points) == 1


def test_a_file_where_the_folder_should_be(small, tmp_path):
    (tmp_path / "fig_squares").write_text("mine")
    with pytest.raises(StorageError, match="try another --results"):
        run(small, tmp_path)
    assert (tmp_path / "fig_squares").read_text() == "mine"


def test_a_full_disk_leaves_all_earlier_files(small, tmp_path, monkeypatch):
    run(small, tmp_path)
    folder = tmp_path / "fig_squares" / "derived"
    before = contents(folder)
    real = os.replace

    def full(source, target):
        if target.name == "table.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match=rf"{folder}/table.csv: No space left on device; free some space"):
        run(small, tmp_path, fresh=True)
    (folder / "partial.json").unlink()  # what was computed meanwhile
    assert contents(folder) == before


def test_a_drawing_that_fails_leaves_all_earlier_files(small, tmp_path):
    run(small, tmp_path)
    before = contents(tmp_path / "fig_squares" / "derived")

    def broken(artifact, record):
        raise RuntimeError("no ink")

    with pytest.raises(RuntimeError, match="no ink"):
        run(replace(small, draw=broken), tmp_path)
    assert contents(tmp_path / "fig_squares" / "derived") == before


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "ptdp-record/1"}'])
def test_an_invalid_earlier_record_is_reported_and_kept(small, tmp_path, text):
    path = tmp_path / "fig_squares" / "derived" / "record.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(InvalidResultsError, match=r"record.json.*--fresh"):
        run(small, tmp_path)
    assert path.read_text() == text
    assert run(small, tmp_path, fresh=True).record.state == "complete"


def test_an_interrupted_fresh_run_can_be_resumed(small, counter, tmp_path):
    path = tmp_path / "fig_squares" / "derived" / "record.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (path.parent / "partial.json").write_text("{}")
    counter.fail_at = {4: KeyboardInterrupt()}
    with pytest.raises(runner.InterruptedRun):
        run(small, tmp_path, fresh=True)
    assert run(small, tmp_path).reused == 3


def test_further_files_are_written(small, tmp_path):
    done = run(replace(small, files=lambda artifact, record: {"trace.json": lambda: b"{}"}), tmp_path)
    assert (tmp_path / "fig_squares" / "derived" / "trace.json").read_bytes() == b"{}"
    assert done.files[-1].name == "trace.json"


def test_the_claims_are_judged_on_this_runs_points(figure_12):
    document = json.loads((figure_12.plan.folder / "record.json").read_text())
    assert {c["id"]: c["verdict"] for c in document["claims"]}["as_much_as_10_percent"] == "paper inconsistent"


def test_a_configuration_that_does_not_fit(figure_12):
    evaluate = fidelities.evaluator(figure_12.plan)
    point = figure_12.plan.points[0]
    result = evaluate.evaluate(replace(point, parameters={**point.parameters, "p": 1}))
    assert (result.status, list(result.metrics)) == ("oom", ["peak_memory"])
    assert re.search(r"\d+ bytes\) of memory on the fullest GPU; selene has \d+\.\d GB", result.reason)
    without = replace(evaluate, cluster=replace(evaluate.cluster, memory_bytes=1e9))  # less than is reserved
    assert "selene has 0.0 GB (0 bytes) to fill" in without.evaluate(point).reason
    result = evaluate.evaluate(replace(point, parameters={**point.parameters, "p": 97}))
    assert result.status == "invalid"
    assert "layers=96 for p*v=97*1=97 stages" in result.reason


@pytest.mark.slow
def test_files_are_drawn_again_only_if_missing_or_older_than_the_sources(tmp_path):
    plan = runner.plan(catalog.load("fig_bubble"), tmp_path)
    first = runner.run(plan, ["reproduce"], exported=True)
    times = {path: path.stat().st_mtime_ns for path in first.files}
    again = runner.run(plan, ["reproduce"], exported=True)
    assert set(again.files) == set(first.files)
    assert {path: path.stat().st_mtime_ns for path in again.files} == times
    (plan.folder / "table.tex").unlink()
    assert (plan.folder / "table.tex") in runner.run(plan, ["reproduce"], exported=True).files
    assert (plan.folder / "table.tex").exists()
    narrow = replace(plan, artifact=replace(plan.artifact, shown=("d", "ours")))
    for each in (narrow, plan):
        runner.run(each, ["reproduce"], exported=True)
        assert (plan.folder / "table.md").read_text() == markdown(each.artifact, first.record)
    os.utime(plan.folder / "figure.pdf", (0, 0))
    runner.run(plan, ["reproduce"], exported=True)
    assert (plan.folder / "figure.pdf").stat().st_mtime_ns > min(times.values())
