"""Claims that are data: how values are made of points, what is read off them, and what is wrong with a table."""

import pytest

from reproduce.experiment.papers import PaperError
from reproduce.experiment.results import MissingResultError, Results
from reproduce.experiment.shaped import judge_of
from reproduce.experiment.values import Value
from results.records import Metric, PointResult

SPEEDS = {(8, 1): 2.0, (8, 2): 3.0, (16, 1): 4.0, (16, 2): 5.0}  # by B and p


def point(B, p, value, series=None, status="ok"):
    metrics = {} if status == "oom" else {"speed": Metric(value, "1", "derived"), "time": Metric(4.0, "s", "derived")}
    series, reason = series or f"B={B}", "too large" if status == "oom" else None
    return PointResult(f"{series}-{B}-{p}", series, f"p={p}", {"B": B, "p": p}, status, reason, "0" * 64, metrics)


RESULTS = Results(tuple(point(B, p, value) for (B, p), value in SPEEDS.items()), "simulated")


def made(**told):
    return Value(**{"metric": "speed", "along": "p", **told})(RESULTS)


@pytest.mark.parametrize(
    ("told", "values"),
    [
        ({}, {8: {1: 2.0, 2: 3.0}, 16: {1: 4.0, 2: 5.0}}),
        ({"of": "B=8"}, {1: 2.0, 2: 3.0}),
        ({"along": "{series}, {label}"}, {"B=8, p=1": 2.0, "B=8, p=2": 3.0, "B=16, p=1": 4.0, "B=16, p=2": 5.0}),
        ({"along": "B", "by": "p"}, {1: {8: 2.0, 16: 4.0}, 2: {8: 3.0, 16: 5.0}}),
        ({"metric": ["speed", "time"], "of": "B=8"}, {1: 6.0, 2: 7.0}),
        ({"per": "time", "of": "B=8"}, {1: 0.5, 2: 0.75}),
        ({"per": "p", "of": "B=8"}, {1: 2.0, 2: 1.5}),
        ({"of": "B=16", "over": "B=8", "less": 1}, {1: 1.0, 2: 5 / 3 - 1}),
        ({"of": "B=16", "over": {"B": 8}, "at": [1]}, {1: 2.0}),
        ({"of": "B=16", "over": 2.0, "taken_from": 1}, {1: -1.0, 2: -1.5}),
        ({"of": "B=8", "own": "last"}, {1: 2 / 3, 2: 1.0}),
        ({"of": "B=8", "own": 1, "inverse": True, "at": [2]}, {2: 2 / 3}),
        ({"over": "lowest"}, {1: 2.0, 2: 5 / 3}),
    ],
)
def test_values_are_made_of_points(told, values):
    assert made(**told) == values


def test_what_is_read_off_lines_and_how_it_is_listed():
    lines = made(unit=2.0)
    assert (lines.most, lines.least, lines.where_most, lines.best) == (5.0, 2.0, "B=16, p=2", {8: 2, 16: 2})
    assert (lines.first, lines.kept, lines.range) == ({8: 2.0, 16: 4.0}, {8: 1.5, 16: 1.25}, {8: 1.5, 16: 1.25})
    assert (lines.lowest, lines.beyond_lowest) == ({8: {1: 2.0, 2: 3.0}}, {16: {1: 4.0, 2: 5.0}})
    assert f"{lines:.1f}" == "B=8: p=1: 1.0, p=2: 1.5; B=16: p=1: 2.0, p=2: 2.5"
    assert f"{lines.most:.1f} {lines.first:.1f} {lines.kept:.2f|x}" == "2.5 8: 1.0, 16: 2.0 8: 1.50x, 16: 1.25x"


def test_what_does_not_fit_is_left_out_if_the_value_says_so():
    results = Results((*RESULTS.points, point(8, 4, 9.0, status="oom")), "simulated")
    assert Value("speed", "p", of="B=8", fits=True)(results) == {1: 2.0, 2: 3.0}
    with pytest.raises(MissingResultError, match="B=8-8-4"):
        Value("speed", "p", of="B=8")(results)


@pytest.fixture
def judged(tmp_path):
    """What is judged of the results by a claim's table, in a file with some values."""

    def judged(row):
        path = tmp_path / "figure.toml"
        path.write_text(VALUES)
        return judge_of(path, "claim", {"shown": "{speed.most:g}", **row})(RESULTS)

    return judged


VALUES = """
[values]
speed = {metric = "speed", along = "p"}
gain = {value = "speed.most", over_value = "speed.least"}
line = {metric = "speed", along = "p", of = "B=8"}
there = {value = "line", at_key = "line.where_most"}
"""


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ({"value": "speed", "rises": True}, "holds"),
        ({"value": "speed", "falls": True}, "contradicted"),
        ({"value": "speed.best", "equals": 2}, "holds"),
        ({"value": "speed.best", "equals": "p"}, "contradicted"),  # of the first point
        ({"value": "speed", "above": 2}, "contradicted"),
        ({"value": "speed", "at_least": 2, "at_most": 5}, "holds"),
        ({"value": "speed.last", "above": "speed.first"}, "holds"),
        ({"value": "speed.most", "below": 5, "open": "near"}, "inconclusive"),
        ({"value": "gain", "equals": 2.5}, "holds"),
        ({"value": "there", "equals": "line.most"}, "holds"),
    ],
)
def test_a_row_asks_something_of_values(asked, verdict, judged):
    assert judged({"judged": asked}).verdict == verdict


def test_texts_say_what_misses_and_one_of_two_words(judged):
    row = {"judged": {"value": "speed", "above": 3, "say": ["above", "below"]}, "missed": "{say} 3: {wrong}"}
    assert judged(row).explanation == "below 3: B=8, p=1; B=8, p=2"
    kept = judged({"judged": {"value": "speed", "above": 1}, "numbers": {"speed_b": "speed.last"}}).numbers
    assert {name: number.value for name, number in kept.items()} == {"speed_b8": 3.0, "speed_b16": 5.0}
    assert judged({"judged": {"value": "speed", "below": 1}, "inconsistent": True}).verdict == "paper inconsistent"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"judged": {"value": "sped.most", "above": 1}}, "no value 'sped'; needs one of .* did you mean 'speed'"),
        ({"judged": {"value": "p", "above": 1}}, "no value 'p'"),
        ({"judged": {"value": "speed.mst", "above": 1}}, "'mst' of 'speed.mst'"),
        ({"judged": {"value": "speed", "abov": 1}}, "unknown key 'abov'"),
        ({"judged": {"value": "speed", "above": 1}, "shown": "{speed.mst}"}, "'mst' of 'speed.mst'"),
        ({"judged": {"above": 1}}, "lacks value"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(row, words, judged):
    with pytest.raises((ValueError, PaperError), match=words):
        judged(row)
