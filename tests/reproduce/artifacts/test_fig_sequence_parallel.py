"""Sequence parallelism over t: what the figure draws, and claims where nothing fits."""

import pytest

from ptdp_core.simulator import load_cluster
from reproduce.annex.papers.beyond.fig_sequence_parallel import ARTIFACT, SIZES
from reproduce.experiment.judging import judge
from reproduce.output import theme
from reproduce.running import runner


def test_nothing_is_said_of_throughput_where_nothing_fits(results_for):
    rate = {"throughput_per_gpu": lambda point: 1.0}
    results = results_for(ARTIFACT, rate, oom=lambda point: point.parameters["sequence_parallel"])
    assert judge(ARTIFACT.claims[0], results).verdict == "inconclusive"


def test_the_figure_draws_every_point_that_has_a_value(tmp_path):
    record = runner.run(runner.plan(ARTIFACT, tmp_path), ["reproduce"]).record
    assert all(point.status in ("ok", "oom") for point in record.points)
    with theme.style():
        left, right = ARTIFACT.draw(ARTIFACT, record).axes
    fitting = sum(point.status == "ok" for point in record.points)
    for axes, count in ((left, fitting), (right, len(record.points))):
        assert sum(len(line.get_xdata()) for line in axes.lines) == count
        assert [int(label.get_text()) for label in axes.get_xticklabels()] == list(SIZES)
    (grey,) = right.patches
    assert grey.get_y() == pytest.approx(load_cluster("selene").usable_memory / 1e9)
