"""The figure of all schedules: every one has its row, a mark where it fits, and its mark of a prediction."""

from dataclasses import replace
from itertools import pairwise

import pytest

from reproduce.annex.papers.beyond.fig_schedule_zoo import ARTIFACT
from reproduce.output import theme
from results import ROOT
from results.records import Metric, read_record

RATE = "model_throughput_per_gpu"
RECORD = read_record(ROOT / "results" / "reference" / "fig_schedule_zoo" / "simulated" / "record.json")


@pytest.fixture(scope="module")
def drawn():
    with theme.style():
        figure = ARTIFACT.draw(ARTIFACT, RECORD)
        figure.draw_without_rendering()
        yield figure


def test_a_row_is_a_schedule_and_those_that_none_is_better_than_are_bold(drawn):
    memory, bubble, *shown = drawn.axes
    labels = memory.get_yticklabels()
    assert sorted(label.get_text() for label in labels) == sorted({point.label for point in RECORD.points})
    held, idle = (axes.lines[-1].get_xdata() for axes in (memory, bubble))
    assert list(zip(held, idle, strict=True)) == sorted(zip(held, idle, strict=True))
    least = float("inf")
    for label, place in zip(labels, zip(held, idle, strict=True), strict=True):
        better = place[1] < least or (label.get_fontweight() == "bold" and place[1] == least)
        assert (label.get_fontweight() == "bold") == better, label
        least = min(least, place[1])
    titles = [axes.get_title(loc="left") for axes in shown]
    assert titles == ["(c) A100 (Selene)", "(d) H100, sequence parallelism"]
    boxes = [axes.title.get_window_extent() for axes in drawn.axes]
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


def test_a_point_that_fits_is_a_mark_with_its_interval(drawn):
    for axes, cluster in zip(drawn.axes[2:], (None, "h100"), strict=True):
        points = [point for point in RECORD.points if point.parameters.get("cluster") == cluster]
        values = sorted(point.metrics[RATE].value / 1e12 for point in points if point.status == "ok")
        assert sorted(x for line in axes.lines for x in line.get_xdata()) == pytest.approx(values)
        known = [point.metrics[RATE].interval for point in points if point.status == "ok"]
        ends = sorted((each.low / 1e12, each.high / 1e12) for each in known if each)
        lines = [line[:, 0] for lines in axes.collections for line in lines.get_segments()]
        assert sorted(map(tuple, lines)) == [pytest.approx(end) for end in ends]


def test_predictions_are_marked():
    points = [point for point in RECORD.points if "cluster" not in point.parameters]
    points = [
        replace(point, metrics={**point.metrics, f"predicted_{RATE}": Metric(1e14, "FLOP/s", "simulated")})
        for point in points
    ]
    with theme.style():
        _, _, axes = ARTIFACT.draw(ARTIFACT, replace(RECORD, points=tuple(points), fidelity="emulated")).axes
    (marks,) = [line for line in axes.lines if line.get_label() == "predicted"]
    assert list(marks.get_xdata()) == [100.0] * sum(point.status == "ok" for point in points)


def test_points_of_another_cluster_have_its_wider_interval():
    widths = {"selene": set(), "h100": set()}
    for point in RECORD.points:
        if point.status == "ok":
            interval = point.metrics[RATE].interval
            widths[point.parameters.get("cluster", "selene")].add(round(interval.high / interval.low, 3))
    assert max(widths["selene"]) < min(widths["h100"])
