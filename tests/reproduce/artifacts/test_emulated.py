"""Fidelity 'emulated': what a point keeps of an emulation, its prediction beside it, and how both are shown.

The emulation itself is replaced; `tests/reproduce/annex/emulation` runs it.
"""

import importlib
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ptdp_core.schedules import build
from ptdp_core.simulator import simulate
from reproduce.experiment import catalog, predictions
from reproduce.experiment import quantities as q
from reproduce.experiment.judging import judge
from reproduce.output import tables, theme
from reproduce.papers.shared import executed_timelines
from reproduce.running import runner
from reproduce.running.fidelities import evaluator
from results.records import Metric, read_record
from results.records.errors import UnavailableError
from tests.marks import by_default

SLOWER = 1.02
COMMAND = ["reproduce"]


@pytest.fixture
def emulation(monkeypatch):
    """A stand-in for `reproduce.annex.emulation` that takes 2% longer than predicted; `calls` are what it emulated."""
    module = importlib.import_module("reproduce.annex.emulation")
    monkeypatch.setattr(module, "calls", [], raising=False)

    def emulate(config, cluster, *, gpus_per_node):
        module.calls.append((config, gpus_per_node))
        prediction = simulate(config, cluster.in_nodes_of(gpus_per_node), timeline=True)
        seconds = SLOWER * prediction.iteration_time
        return SimpleNamespace(
            config=config,
            iteration_time=seconds,
            samples_s=(seconds - 0.01, seconds, seconds + 0.01),
            bubble_fraction=prediction.bubble_fraction + 0.01,
            bubbles=(prediction.bubble_fraction + 0.01,) * 3,
            timeline=prediction.timeline,
            order_ok=True,
            peak_stash=6,
            traffic={"pipeline": 1000},
            link_rates={"one message": SimpleNamespace(asked=25e9, achieved=24e9)},
            exchange_latency=3e-4,
            prediction=prediction,
        )

    monkeypatch.setattr(module, "emulate", emulate)
    monkeypatch.setattr(module, "requirements", lambda: ())
    return module


def run(id, folder, exported=False):
    return runner.run(runner.plan(catalog.load(id), folder, "emulated"), COMMAND, exported=exported)


def test_a_point_keeps_what_was_clocked_and_what_was_predicted(emulation, tmp_path):
    artifact = catalog.load("fig_interleaved")
    artifact = replace(artifact, quantities=(*artifact.quantities, q.MODEL_THROUGHPUT))
    record = runner.run(runner.plan(artifact, tmp_path, "emulated"), COMMAND).record
    assert (record.fidelity, record.scale, record.title) == (
        "emulated", "laptop", "Interleaved versus non-interleaved schedule, 8 emulated GPUs",
    )  # fmt: skip
    assert {size for _, size in emulation.calls} == {2}
    for point, (config, _) in zip(record.points, emulation.calls, strict=True):
        assert point.metrics["iteration_time"].origin == "emulated"
        assert len(point.metrics["iteration_time"].samples) == 3
        assert point.metrics["predicted_iteration_time"].origin == "simulated"
        rates = ("throughput_per_gpu", "model_throughput_per_gpu")
        for name, ratio in (("iteration_time", SLOWER), *((name, 1 / SLOWER) for name in rates)):
            assert point.metrics[name].value == pytest.approx(ratio * predictions.predicted(point, name))
        assert point.parameters["B"] == config.parallel.B
        assert point.metrics["pipeline_traffic"].value == 1000
        rates = [point.metrics[name].value for name in ("asked_link_rate", "link_rate_one_message")]
        assert rates == [25e9, 24e9]
        assert point.metrics["exchange_latency"].value == 3e-4
    assert read_record(tmp_path / "fig_interleaved" / "emulated" / "record.json") == record


def test_what_does_not_fit_is_not_run(emulation, tmp_path):
    record = run("fig_recomputation", tmp_path).record
    out = [point for point in record.points if point.status == "oom"]
    assert [point.key for point in out] == ["none_B8", "none_B16", "none_B32"]
    assert len(emulation.calls) == len(record.points) - len(out)
    assert all(point.metrics["predicted_peak_memory"].value > 80e9 for point in out)
    assert {claim.id: claim.verdict for claim in record.claims}["needed_for_larger_batches"] == "holds"


def test_a_record_says_how_far_it_is_from_its_predictions(emulation, tmp_path):
    notes = run("fig_interleaved", tmp_path).record.notes
    assert "over 8 points: mean difference 2.0%, worst +2.0%" in notes[0]
    assert "; within the 5% on average and 10% at worst that were fixed beforehand" in notes[0]
    assert "at most 1.0 points of compute time apart" in notes[1]
    assert notes[2] == "the executed order of every rank equals its schedule's (8 points)"
    assert notes[3].endswith("24.0 to 24.0 GB/s of the 25.0 GB/s that each was shaped to")


def test_table_and_figure_show_both(emulation, tmp_path):
    artifact, record = catalog.load("fig_interleaved"), run("fig_interleaved", tmp_path).record
    table = tables.result_table(artifact, record)
    headings = [column.heading for column in table.columns]
    assert headings[3:6] == [
        "ours (teraFLOP/s) [emulated]", "predicted (teraFLOP/s) [simulated]", "ratio (predicted)",
    ]  # fmt: skip
    assert {row[headings.index("ratio (predicted)")] for row in table.cells} == {f"{1 / SLOWER:.3f}"}
    assert "peak memory (predicted) (GB) [simulated]" in headings
    assert not any(heading.startswith("peak memory (GB)") for heading in headings)  # it is not emulated
    assert "Compared with what was predicted: " in tables.markdown(artifact, record)
    with theme.style():
        figure = artifact.draw(artifact, record)
    drawn = {line.get_label(): line for line in figure.axes[0].lines}
    ours, theirs = drawn["Interleaved"], drawn["Interleaved (predicted)"]
    assert list(ours.get_ydata()) == pytest.approx([y / SLOWER for y in theirs.get_ydata()])
    assert theirs.get_marker() == "_"  # hollow markers are the paper's
    foot = figure._supxlabel.get_text()
    assert "emulated: ptdp's engine in real time, Selene model; short bars: simulated" in foot
    assert "iteration time: mean error 2.0% on 8 points (worst +2.0%)" in foot


def test_executed_passes_are_drawn_above_the_simulated(emulation, tmp_path):
    done = run("fig_interleaved_timeline", tmp_path, exported=True)
    record = done.record
    point = record.points[1]
    schedule = build("interleaved", 4, 8, 2)
    assert [timeline.origin for timeline in point.timelines] == ["emulated", "simulated"]
    for timeline in point.timelines:
        for rank, actions in enumerate(schedule.ranks):
            assert [(e.kind, e.stage, e.microbatch) for e in timeline.ranks[rank]] == list(actions)
    assert point.metrics["peak_stash"].value == 3  # six chunks of two a device
    assert record.points[2].timelines == ()
    with theme.style():
        figure = executed_timelines.draw(record)
    executed, simulated = executed_timelines._both(record)
    thin = [path for c in figure.axes[1].collections if "predicted" in c.get_gid() for path in c.get_paths()]
    assert len(thin) == simulated[1].boxes == 2 * 8 * 2 * 4
    assert executed[1].rows[0][0].end == point.timelines[0].ranks[0][0].end
    events = json.loads((done.plan.folder / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert ["emulated" in name for name in names] == [True, False, True, False]


def test_the_schedules_figure_draws_what_was_emulated(emulation, tmp_path, monkeypatch):
    artifact = catalog.load("fig_schedules")
    record = runner.run(runner.plan(artifact, tmp_path, "emulated"), COMMAND).record
    drawn = [point for point in record.points if point.timelines]
    assert [(p.parameters["schedule"], p.parameters["B"]) for p in drawn] == [
        (name, 8) for name in ("gpipe", "1f1b", "interleaved", "zb-h1")
    ]
    saved = []
    monkeypatch.setattr(theme, "figure_bytes", lambda figure, *options: saved.append(figure) or b"")
    files = {name: make() for name, make in artifact.files(artifact, record).items()}
    assert set(files) == {"timelines.pdf", "timelines.png", "trace.json"}
    panels = saved[0].axes
    for axes, point in zip(panels, drawn, strict=True):
        for is_predicted, timeline in zip((False, True), point.timelines, strict=True):
            events = [event for rank in timeline.ranks for event in rank]
            shown = [c for c in axes.collections if ("predicted" in c.get_gid()) is is_predicted]
            boxes = [path for collection in shown for path in collection.get_paths()]
            assert len(boxes) == len(events)
            assert max(path.vertices[:, 0].max() for path in boxes) == max(event.end for event in events)
    events = json.loads(files["trace.json"])["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert ["emulated" in name for name in names] == 4 * [True, False]
    without = replace(record, points=tuple(replace(point, timelines=()) for point in record.points))
    assert artifact.files(artifact, without) == {}  # a record of version 1


def test_bubbles_are_held_against_the_formula(emulation, tmp_path):
    record = run("fig_gpipe_timeline", tmp_path).record
    for point in record.points:
        p, m = point.parameters["p"], point.parameters["m"]
        assert point.metrics["formula_bubble_fraction"].value == (p - 1) / m
    (note,) = [note for note in record.notes if "(p-1)/(vm)" in note]
    assert "over 4 points" in note
    assert "NOT within the 3" in note  # the stand-in adds a point to the simulator's 2.8


def test_claims_about_the_papers_size_are_not_judged(emulation, tmp_path):
    record = run("fig_interleaved", tmp_path).record
    by_id = {claim.id: claim for claim in record.claims}
    assert by_id["as_much_as_10_percent"].verdict == "not testable here"
    assert by_id["as_much_as_10_percent"].explanation == "speaks of scale paper; these results are at laptop"
    assert by_id["gap_closes"].verdict == "holds"


def test_a_machine_that_cannot(emulation, tmp_path, monkeypatch):
    monkeypatch.setattr(emulation, "requirements", lambda: ("ip is not on PATH: install iproute2",))
    with pytest.raises(UnavailableError, match="cannot emulate: ip is not on PATH"):
        evaluator(runner.plan(catalog.load("fig_interleaved"), tmp_path, "emulated"))


@pytest.mark.parametrize(
    ("factor", "within"), by_default([(1.04, True), (0.96, True), (1.06, False)], (1.04, True), (1.06, False))
)
def test_the_tolerances(emulation, tmp_path, factor, within):
    points = run("fig_pipeline_vs_data", tmp_path).record.points
    changed = [replace(point, metrics={**point.metrics, **times(point, factor)}) for point in points]
    assert ("NOT within" in predictions.notes(changed, "emulated")[0]) != within
    one_far = [replace(points[0], metrics={**points[0].metrics, **times(points[0], 1.11)}), *points[1:]]
    differences = predictions.time_differences(one_far)
    assert differences.mean < predictions.MEAN
    assert "NOT within" in predictions.notes(one_far, "emulated")[0]  # for its worst point


def times(point, factor):
    return {"iteration_time": Metric(factor * predictions.predicted(point, "iteration_time"), "s", "emulated")}


def test_nothing_predicted_nothing_said(figure_12):
    assert predictions.notes(figure_12.record.points, "simulated") == []
    assert judge(figure_12.plan.artifact.claims[0], replace_scale(figure_12)).verdict == "not testable here"


def replace_scale(done):
    from reproduce.experiment.results import Results

    return Results(done.record.points, "simulated", "cpu")
