"""What claims read of results and keep: values, the paper's, nodes, numbers; and what an artifact says of itself."""

from dataclasses import replace

import pytest

from reproduce.experiment import published
from reproduce.experiment.results import MissingResultError, Results, numbers_of
from results.records import Metric, PaperValue
from tests.points import made


def results(*points):
    return Results(points, "simulated")


def point(key, series, value, paper=None, **parameters):
    kept = {"square": PaperValue(paper, "s", "plot")} if paper is not None else {}
    metrics = {"square": Metric(value, "s", "simulated")}
    return made(key, metrics, series=series, paper=kept, x=key, **parameters)


def test_a_metric_that_a_point_lacks_is_missing():
    with pytest.raises(MissingResultError, match="it has no cube"):
        results(point("k", "a", 1.0)).value("k", "cube")


def test_the_papers_series_is_that_series_where_the_paper_has_values():
    read = results(point("k", "a", 1.0, 2.0), point("l", "a", 1.0), point("m", "b", 1.0, 3.0))
    assert read.paper_series("a", "square", "x") == {"k": 2.0}
    with pytest.raises(MissingResultError, match="no point of series 'c' was evaluated"):
        read.paper_series("c", "square", "x")


def test_nodes_are_as_large_as_the_points_say_or_else_as_the_papers():
    assert results(point("k", "a", 1.0, gpus_per_node=4), point("l", "a", 1.0)).gpus_per_node == 4
    assert results(point("k", "a", 1.0)).gpus_per_node == published.constants()["gpus_per_node"]


def test_numbers_of_values_by_x_are_one_each():
    numbers = numbers_of("derived", "d", time=3.0, gain_b={12: 0.4, 24: 0.2}, gain={"175B": 0.1}, size_={0: 7.0})
    kept = {"time": 3.0, "gain_b12": 0.4, "gain_b24": 0.2, "gain_175b": 0.1, "size_0": 7.0}
    assert {name: number.value for name, number in numbers.items()} == kept
    assert {(number.unit, number.origin) for number in numbers.values()} == {("d", "derived")}


def test_notes_are_sentences_or_what_a_function_says(small):
    assert replace(small, notes=("A sentence.",)).notes_on(results()) == ("A sentence.",)
    assert small.notes_on(results()) == ("0 points",)


def test_an_artifact_knows_its_place_and_is_itself_at_its_first_scale(small):
    assert small.place == "Section 0"
    assert small.at("paper") is small
