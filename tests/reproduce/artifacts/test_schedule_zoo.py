"""The figure of all schedules: every one has its name, its bars or crosses, and its mark of a prediction."""

from dataclasses import replace

import pytest

from reproduce.output import theme
from reproduce.papers.beyond.fig_schedule_zoo import ARTIFACT
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


def test_every_schedule_is_named_in_the_plane_and_beside_its_bars(drawn):
    plane, _, left, right = drawn.axes
    titles = list(dict.fromkeys(point.label for point in RECORD.points))
    assert sorted(name for text in plane.texts for name in text.get_text().split(", ")) == sorted(titles)
    assert [tick.get_text() for tick in left.get_yticklabels()] == titles
    boxes = [text.get_window_extent() for text in (*plane.texts, plane.get_legend())]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    titles = [axes.get_title(loc="left") for axes in (left, right)]
    assert titles == ["(b) throughput, A100 (Selene)", "(c) throughput, H100, sequence parallelism"]


def test_a_point_is_a_bar_or_a_cross(drawn):
    for axes, cluster in zip(drawn.axes[2:], (None, "h100"), strict=True):
        points = [point for point in RECORD.points if point.parameters.get("cluster") == cluster]
        values = sorted(point.metrics[RATE].value / 1e12 for point in points if point.status == "ok")
        assert sorted(bar.get_width() for bar in axes.patches) == pytest.approx(values)
        crosses = [line for line in axes.lines if line.get_marker() == theme.OUT_OF_MEMORY["marker"]]
        assert len(crosses) == sum(point.status == "oom" for point in points)
        assert all(cross.get_window_extent().x1 < axes.bbox.x0 for cross in crosses)  # at no throughput
        known = [point.metrics[RATE].interval for point in points if point.status == "ok"]
        ends = sorted((each.low / 1e12, each.high / 1e12) for each in known if each)
        lines = [line[:, 0] for lines in axes.collections for line in lines.get_segments()]
        drawn_ends = sorted(map(tuple, lines))
        assert drawn_ends == [pytest.approx(end) for end in ends]


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
