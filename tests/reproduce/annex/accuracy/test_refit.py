"""Leaving one artifact out: which parameters are fitted, to which values, and when the outcome holds."""

from dataclasses import replace

import pytest
from pandas import DataFrame

from ptdp_core.simulator import ClusterParameter, load_cluster, read_parameters
from reproduce.annex.accuracy import refit
from reproduce.annex.accuracy.accuracy import assess, evaluators_of
from reproduce.annex.accuracy.published_points import published_points
from reproduce.experiment import catalog

IDS = ("fig_microbatch_single_gpu", "fig_interleaved", "fig_scatter_gather")


def parameter(name, value, set_with="public"):
    return ClusterParameter(name, value, "1", 1.0, 3.0, "a source", set_with)


@pytest.fixture(scope="module")
def task():
    artifacts = [catalog.load(id) for id in IDS]
    return refit.Fit(
        published_points(artifacts), evaluators_of(artifacts, "selene"), load_cluster(), read_parameters("selene")
    )


def test_artifacts_whose_values_set_a_parameter():
    p = parameter("a", 2.0, "public; fig_one, table_two (rows 1 to 3), fig_three (text only: best b)")
    assert refit.set_with(p) == {"fig_one", "table_two"}
    assert refit.set_with(parameter("a", 2.0)) == set()
    assert refit.set_with(replace(p, low=2.0, high=2.0)) == set()


def test_the_cluster_file_names_artifacts_that_there_are():
    named = {id for p in read_parameters("selene").values() for id in refit.set_with(p)}
    assert named
    assert named <= set(catalog.ids())


def test_a_fit_finds_the_smallest_loss_inside_the_ranges():
    parameters = {"a": parameter("a", 2.0), "b": parameter("b", 2.0)}
    fitted = refit.fit(parameters, lambda values: abs(values.get("a", 2.0) - 1.5) + abs(values.get("b", 2.0) - 9))
    assert fitted["a"] == pytest.approx(1.5, abs=0.1)
    assert fitted["b"] == pytest.approx(3.0, abs=0.1)
    assert fitted["b"] <= 3.0


def test_a_parameter_that_nothing_depends_on_takes_the_middle_and_not_what_was_shipped():
    assert refit.fit({"a": parameter("a", 2.9)}, lambda values: 0.5) == {"a": 2.0}


def test_artifacts_with_a_configuration_in_common_are_left_out_together(task):
    assert task.linked("fig_interleaved") == {"fig_interleaved", "fig_scatter_gather"}
    assert task.linked("fig_microbatch_single_gpu") == {"fig_microbatch_single_gpu"}


def test_an_outcome_belongs_to_its_parameters_points_and_predictions(task, monkeypatch):
    monkeypatch.setattr(refit, "EVALUATIONS", 1)
    document = refit.refit(task)
    artifacts = [catalog.load(id) for id in IDS]
    monkeypatch.setattr("reproduce.annex.accuracy.accuracy.moves", lambda *arguments: DataFrame())
    fresh = assess(artifacts, "selene", refitted=document)
    errors = document["artifacts"]["fig_interleaved"]["errors"].values()
    assert fresh.scores["fig_interleaved"].left_out == pytest.approx(
        sum(abs(p["left_out"]) for p in errors) / len(errors)
    )
    assert [p["shipped"] for p in errors] == list(fresh.values.error[fresh.values.artifact == "fig_interleaved"])
    assert not any("stale" in note for note in fresh.notes)
    stale = assess(artifacts, "selene", refitted={**document, "digest": "0"})
    assert stale.scores["all"].left_out is None
    assert any("stale" in note for note in stale.notes)
