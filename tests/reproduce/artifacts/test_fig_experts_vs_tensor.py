"""Experts on a laptop: what overlapping hides is seen in simulation and in the committed emulation."""

import pytest

from reproduce.annex.papers.beyond.fig_experts_vs_tensor import ONE_AFTER_THE_OTHER, TOGETHER
from reproduce.experiment import catalog, predictions
from reproduce.experiment import quantities as q
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import LAPTOP
from reproduce.running import runner
from results import ROOT
from results.records import read_record


@pytest.fixture(scope="module", params=["simulated", "emulated"])
def record(request, tmp_path_factory):
    if request.param == "emulated":
        return read_record(ROOT / "results" / "reference" / "fig_experts_vs_tensor" / "emulated" / "record.json")
    planned = runner.plan(catalog.load("fig_experts_vs_tensor"), tmp_path_factory.mktemp("laptop"), "simulated", LAPTOP)
    return runner.run(planned, ["reproduce"]).record


def test_overlapped_exchanges_pay_off_across_nodes(record):
    """Inside a node there is little to hide; with e = 1 nothing, but a pair never stops for a message."""
    gains = Results.of_record(record).gains(TOGETHER, ONE_AFTER_THE_OTHER, q.MODEL_THROUGHPUT, "e")
    assert min(gains.values()) > 0
    assert gains[4] > 1.5 * max(gains[1], gains[2])


def test_a_laptop_s_points_are_drawn_and_have_notes(record):
    assert any("overlapped over one pass after the other" in note for note in record.notes)
    artifact = catalog.load("fig_experts_vs_tensor")
    assert artifact.merit(record) == ""
    assert len(artifact.draw(artifact, record).axes) == 1


def test_every_emulated_point_is_near_its_prediction():
    record = read_record(ROOT / "results" / "reference" / "fig_experts_vs_tensor" / "emulated" / "record.json")
    differences = predictions.time_differences(record.points)
    assert differences.mean < 0.05
    assert abs(differences.worst) < 0.05
    assert {point.metrics["order_as_scheduled"].value for point in record.points} == {1}
    for point in record.points:
        sent = point.metrics.get("experts_traffic")
        assert (sent is not None) == (point.parameters["e"] == 4)  # nodes of two
