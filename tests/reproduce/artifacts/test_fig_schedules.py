"""The figure beyond the paper: its points, what its notes say, its files, and how it is told from the paper's."""

from dataclasses import replace

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.annex.papers.beyond import fig_schedules
from reproduce.commands.describe import print_description
from reproduce.experiment import catalog, margins
from reproduce.experiment.claims import OURS
from reproduce.experiment.results import Results
from reproduce.output import theme
from reproduce.papers.sc21 import fig_interleaved
from reproduce.running import runner

ARTIFACT = fig_schedules.ARTIFACT
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return runner.run(runner.plan(ARTIFACT, tmp_path_factory.mktemp("results")), ["test"], exported=True)


@pytest.mark.parametrize("scale", ARTIFACT.scales)
def test_every_schedule_runs_the_same_configurations(scale):
    configs = [TrainingConfig.from_plain(point.parameters) for point in ARTIFACT.points(scale)]
    by_schedule = {name: [c for c in configs if c.parallel.schedule == name] for name in SCHEDULES}
    assert sum(map(len, by_schedule.values())) == len(configs) == {"paper": 24, "laptop": 12}[scale]
    for ours in by_schedule.values():
        for ours_point, other in zip(ours, by_schedule["1f1b"], strict=True):
            same = ("p", "t", "d", "b", "B", "recompute")
            assert ours_point.model == other.model
            assert all(getattr(ours_point.parallel, name) == getattr(other.parallel, name) for name in same)


def test_the_papers_schedules_are_figure_12s(finished):
    """The same numbers as there, to the bit: a schedule more changes none."""
    points = {(p.parameters["v"], p.parameters["B"]): p for p in finished.record.points if "ZB" not in p.series}
    record = runner.run(runner.plan(fig_interleaved.ARTIFACT, finished.plan.folder.parent), ["test"]).record
    for point in record.points:
        same = points[point.parameters["v"], point.parameters["B"]]
        assert same.metrics["iteration_time"].value == point.metrics["iteration_time"].value


def test_zb_h1_gains_most_where_the_bubble_is_largest(finished):
    results = Results(finished.record.points, "simulated")
    gains = fig_schedules._relative(results, "throughput_per_gpu", fig_schedules.SPLIT, fig_schedules.DEFAULT)
    values = list(gains.values())
    assert values == sorted(values, reverse=True)
    assert 0.20 < values[0] < 0.30
    assert 0 < values[-1] < 0.05


def test_the_figure_has_every_ratio_to_1f1b_and_says_which_are_sure(finished):
    with theme.style():
        above, below = ARTIFACT.draw(ARTIFACT, finished.record).axes
    speeds = {line.get_label(): dict(line.get_xydata().tolist()) for line in above.lines}
    ratios = {line.get_label(): dict(line.get_xydata().tolist()) for line in below.lines}
    assert ratios["1F1B"] == dict.fromkeys(speeds["1F1B"], 1.0)
    for name, line in ratios.items():
        assert line == pytest.approx({B: speeds[name][B] / speeds["1F1B"][B] for B in speeds[name]})
    factor = margins.read("selene").ratio.factor
    (band,) = below.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == pytest.approx((1 / factor, factor))


def test_where_1f1b_has_no_result_there_is_no_ratio(finished):
    """As of a run that was interrupted, or whose point failed: the other sizes are drawn, and every throughput."""
    missing = next(point for point in finished.record.points if point.series == "1F1B")
    points = [point for point in finished.record.points if point is not missing]
    with theme.style():
        above, below = ARTIFACT.draw(ARTIFACT, replace(finished.record, points=tuple(points))).axes
    B = missing.parameters["B"]
    drawn = {axes: {line.get_label(): set(line.get_xdata()) for line in axes.lines} for axes in (above, below)}
    assert {name for name, sizes in drawn[above].items() if B in sizes} == {"GPipe", "Interleaved 1F1B", "ZB-H1"}
    assert set().union(*drawn[below].values()) == set(drawn[above]["ZB-H1"]) - {B}


def test_notes_say_gain_and_memory_and_what_does_not_fit(finished):
    text = " ".join(finished.record.notes)
    assert text.startswith("Not in the paper. ZB-H1 splits a backward pass")
    assert "Throughput of ZB-H1 over 1F1B, by batch size: 12: +24.7%" in text
    assert "Peak memory of ZB-H1 over 1F1B, by batch size: 12: +77%" in text
    assert "Out of memory, so left out of the lines and marked by crosses: GPipe, B=120." in text
    assert finished.record.claims == ()


def test_files_and_figure(finished):
    names = {path.name for path in finished.files}
    assert {"figure.png", "timelines.pdf", "timelines.png", "trace.json"} <= names
    with theme.style():
        axes, _ = ARTIFACT.draw(ARTIFACT, finished.record).axes
    drawn = {line.get_label(): len(line.get_xdata()) for line in axes.lines}
    assert drawn == {"GPipe": 5, "GPipe (out of memory)": 1, "1F1B": 6, "Interleaved 1F1B": 6, "ZB-H1": 6}


def test_it_stands_for_nothing_in_the_paper(capsys):
    beyond = [id for id in catalog.ids() if catalog.load(id).place == OURS]
    assert {ARTIFACT.id, "fig_schedule_zoo", "table_schedule_zoo"} <= set(beyond)
    assert list(catalog.ids()[-len(beyond) :]) == sorted(beyond)  # behind those of the paper
    print_description(ARTIFACT, "reproduce", full=False)
    assert capsys.readouterr().out.startswith("fig_schedules: Beyond the paper (not in the paper)\n")
