"""Figure 8: eq. (1) by hand, on Figure 7's times."""

import pytest

from reproduce.papers.sc21 import fig_microbatch_estimate as module

FIGURE_7 = {1: 68, 2: 78, 4: 86, 8: 89, 16: 91}


def test_eq_1_by_hand(record):
    times = {p.parameters["b"]: p.metrics["microbatch_time"].value for p in record.points}
    for point in record.points:
        b, batch = point.parameters["b"], point.parameters["batch_size"]
        ours = (batch + 7) * times[1] / ((batch / b + 7) * times[b])
        assert point.metrics["normalised_throughput"].value == pytest.approx(ours)
        papers = (batch + 7) / FIGURE_7[1] / ((batch / b + 7) * b / FIGURE_7[b])
        assert point.metrics["normalised_from_figure_7"].value == pytest.approx(papers)
        assert point.metrics["normalised_from_figure_7"].origin == "derived"
        assert point.paper["normalised_throughput"].value == pytest.approx(papers, abs=0.015)


def test_the_times_are_figure_7s(record):
    from reproduce.papers.sc21 import fig_microbatch_single_gpu as single

    ours = {p.parameters["b"]: p.parameters for p in module.ARTIFACT.points()}
    for point in single.ARTIFACT.points():
        assert point.parameters.items() <= ours[point.parameters["b"]].items()
