"""The paper's numbers as the artifacts get them."""

import pytest

from reproduce.experiment import catalog, papers, published
from reproduce.experiment.sweep import Sweep
from results.records import PaperValue

ENTRIES = [
    name if paper.name == papers.FIRST else f"{paper.name}/{name}"
    for paper in papers.papers()
    if (paper.folder / published.FILE).is_file()
    for name in published.document(paper.name)["artifacts"]
]


def test_values_have_unit_how_and_rounding():
    values = published.values("fig_interleaved", {"v": 4, "B": 60})
    assert values == {"throughput_per_gpu": PaperValue(146e12, "FLOP/s", "plot", quantum=1e12)}
    assert next(iter(values.values())).origin == "paper"


def test_values_are_those_of_a_row_that_agrees_with_all_parameters():
    position = {"p": 2, "t": 32, "B": 128}
    assert published.values("fig_tensor_vs_pipeline", position)["throughput_per_gpu"].value == 107e12
    assert published.values("fig_tensor_vs_pipeline", {**position, "B": 64}) == {}
    assert published.values("fig_tensor_vs_pipeline", {**position, "hidden": 1}) == {}  # another configuration


def test_a_row_may_have_a_rounding_step_of_its_own():
    steps = [published.paper_values("table_bandwidth", row) for row in published.rows("table_bandwidth")]
    assert [value["bisection_bandwidth"].quantum for value in steps] == [1e9, 1e11]


@pytest.mark.parametrize("id", ENTRIES)
def test_all_entries_have_one_shape(id):
    entry = published.artifact(id)
    assert {"paper", "how", "values", "rows"} <= entry.keys()
    assert all(isinstance(value, int | float | str | bool) for value in entry.get("configuration", {}).values())
    for row in published.rows(id):
        assert not any(isinstance(value, list | dict) for value in row.values())
        assert published.paper_values(id, row).keys() == row.keys() & entry["values"].keys()
    for metric in entry["values"]:
        assert any(metric in row for row in published.rows(id))


@pytest.mark.parametrize("id", [id for id in catalog.ids() if catalog.load(id).sweeps["paper"].paper])
def test_every_published_value_is_attached_once(id):
    attached = [value for point in catalog.load(id).points() for value in point.paper.values()]
    assert len(attached) == sum(len(published.paper_values(id, row)) for row in published.rows(id))


def test_a_sweep_takes_its_levels_from_the_rows():
    points = Sweep.published("fig_pipeline_vs_data", x="p d").points("paper")
    assert [point.key for point in points[:2]] == ["B32_p2_d32", "B32_p4_d16"]
    assert (points[0].series, points[0].label) == ("Batch size = 32", "(2, 32)")


def test_an_unknown_artifact():
    with pytest.raises(KeyError):
        published.artifact("fig_nothing")


def test_what_all_runs_of_a_paper_share():
    assert published.text_sizes("table_weak_scaling") == {"seq": 2048, "vocab": 51200}
