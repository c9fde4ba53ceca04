"""Figures over a grid: their points are the published configurations; published values, once there, are attached."""

import pytest

from benchmarks.records import PaperValue
from ptdp_core.config import TrainingConfig
from reproduce.artifacts.shared import grids
from reproduce.experiment import catalog, published

FIGURES = {
    "fig_pipeline_weak_scaling": 8,
    "fig_tensor_vs_pipeline": 10,
    "fig_pipeline_vs_data": 10,
    "fig_tensor_vs_data": 15,
    "fig_microbatch": 8,
    "fig_recomputation": 18,
    "fig_scatter_gather": 20,
}
FREE = ("b", "B")  # may be lists: then every point has one of them


@pytest.mark.parametrize("id", FIGURES)
def test_the_points_are_the_published_configurations(id):
    points, config = catalog.load(id).points("paper"), published.artifact(id)["config"]
    assert len(points) == FIGURES[id]
    assert len({point.key for point in points}) == len(points)
    for point in points:
        training = TrainingConfig.from_plain(point.parameters)
        if isinstance(config["gpus"], int):
            assert training.parallel.n == config["gpus"]
        for name in ("hidden", "heads"):
            assert getattr(training.model, name) == config[name]
        for name in FREE:
            allowed = config[name] if isinstance(config[name], list) else [config[name]]
            assert getattr(training.parallel, name) in allowed
        assert training.parallel.data_parallel == "local"
    for name in FREE:
        if isinstance(config[name], list):
            assert {point.parameters[name] for point in points} == set(config[name])


@pytest.mark.parametrize("id", ["fig_tensor_vs_pipeline", "fig_pipeline_vs_data", "fig_tensor_vs_data"])
def test_pairs_are_the_published_ones(id):
    config = published.artifact(id)["config"]
    (name,) = (key for key in config if key.startswith("("))
    first, second = name.strip("()").split(",")
    pairs = {(point.parameters[first], point.parameters[second]) for point in catalog.load(id).points("paper")}
    assert pairs == {tuple(pair) for pair in config[name]}


def test_weak_scaling_grows_the_model_with_the_pipeline():
    for point in catalog.load("fig_pipeline_weak_scaling").points("paper"):
        training = TrainingConfig.from_plain(point.parameters)
        assert training.model.layers == 3 * training.parallel.p
        assert training.parallel.n == 8 * training.parallel.p


@pytest.mark.parametrize("id", FIGURES)
def test_every_published_value_is_attached(id):
    entry = published.artifact(id)
    values = [point["y"] for line in entry.get("series") or () for point in line["points"]]
    attached = [value for point in catalog.load(id).points("paper") for value in point.paper.values()]
    assert len(attached) == len(values)
    assert all(isinstance(value, PaperValue) and value.how == "plot" for value in attached)


def test_values_are_attached_by_series_and_x(monkeypatch):
    shared = {"quantum": 1, "config": {"gpus": 64, "layers": 32, "hidden": 64, "heads": 32, "B": [32]}}
    series = [{"name": "Batch size = 32", "points": [{"(p,t)": "(2, 32)", "y": 7}, {"(p,t)": [4, 16], "y": 8}]}]
    entry = {**shared, "series": series, "paper": "Figure 0"}
    entry["config"]["(p,t)"] = [[2, 32], [4, 16], [8, 8]]
    # JSON lists are no dictionary keys, so a list arrives as text
    series[0]["points"][1]["(p,t)"] = "[4, 16]"
    monkeypatch.setattr(published, "artifact", lambda id: entry)
    points = grids.grid("x", grids.batch_lines("x"), grids.pair_marks("x"))
    found = [point.paper.get(grids.THROUGHPUT) for point in points]
    assert [value and value.value for value in found] == [7e12, 8e12, None]


def test_notes_say_what_did_not_fit(results_for):
    artifact = catalog.load("fig_recomputation")
    metric = {grids.SEQUENCES: lambda point: 1.0}
    assert grids.notes(results_for(artifact, metric)) == ()
    (out,) = grids.notes(results_for(artifact, metric, oom=lambda point: point.key == "none_B256"))
    assert "Without recomputation, B=256" in out


def test_words():
    assert grids.word("PTD-P, 175B") == "ptd_p_175b"
    assert grids.word("16lh/(V+s)") == "16lh_v_s"
