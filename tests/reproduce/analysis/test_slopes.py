"""Slopes and intercepts of iteration times over the number of microbatches; what fits, in the paper and simulated."""

import json
from dataclasses import replace

import pytest

from benchmarks.records import Metric, PaperValue, PointResult
from reproduce.analysis.scoring import fits, slopes
from reproduce.analysis.scoring.accuracy import evaluators_of, predict
from reproduce.cli import main
from reproduce.commands import accuracy as accuracy_command
from reproduce.experiment import catalog


@pytest.fixture(scope="module")
def group():
    artifacts = [catalog.load("fig_interleaved")]
    return predict(artifacts, evaluators_of(artifacts, "selene"))[0][0]


def test_a_line_through_points_on_a_line():
    assert slopes.line([(1, 5.0), (3, 9.0), (10, 23.0)]) == slopes.Line(2.0, 3.0)


def test_configurations_differ_in_all_but_the_batch_size(group):
    default, interleaved = slopes.slopes(group.predicted)
    assert (default.configuration["v"], interleaved.configuration["v"]) == (1, 4)
    assert default.microbatches == interleaved.microbatches == (12, 24, 36, 48, 60)
    times = {p.parameters["B"]: p.metrics["iteration_time"].value for p in group.results if p.parameters["v"] == 1}
    through = slopes.line(list(times.items()))
    assert default.ours.slope == pytest.approx(through.slope)
    assert default.ours.intercept == pytest.approx(through.intercept)


def test_published_sequences_and_flops_are_the_same_time(group):
    published = group.predicted[0].published
    seconds = slopes.seconds(published, published.value.value)
    rate = replace(published.quantity, name="sequences_per_s")
    assert slopes.seconds(replace(published, quantity=rate), published.config.parallel.B / seconds) == seconds


def test_the_command_prints_a_row_for_each_and_a_document(group, capsys, monkeypatch):
    monkeypatch.setattr(accuracy_command, "predict_paper", lambda cluster: [group])
    assert main(["accuracy", "--slopes"]) == 0
    assert capsys.readouterr().out.count("Figure 12") == 2
    assert main(["accuracy", "--slopes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["artifact"] for each in document["configurations"]] == ["fig_interleaved"] * 2


def point(key, status, peak, paper=False, **parameters):
    published = {"throughput_per_gpu": PaperValue(1.0, "FLOP/s", "table")} if paper else {}
    reason = None if status == "ok" else "too large"
    metrics = {"peak_memory": Metric(peak, "B", "simulated")}
    return PointResult(key, "", key, parameters, status, reason, "0" * 64, metrics, published)


def test_what_fits_is_scored_by_what_the_paper_says():
    results = [
        ("table_zero3", point("a", "ok", 79.0, paper=True)),
        ("table_zero3", point("b", "oom", 120.0, paper=True)),
        ("table_zero3", point("c", "oom", 81.0, expected="oom")),
        ("table_zero3", point("d", "ok", 1.0)),
        ("fig_recomputation", replace(point("e", "ok", 60.0), series="Without recomputation")),
    ]
    ran, did_not = fits.score(results, 80.0)
    assert (ran["n"], ran["right"], ran["nearest"], ran["nearest_share"]) == (2, 1, "table_zero3: a", 79 / 80)
    assert (did_not["n"], did_not["right"], did_not["nearest"]) == (2, 1, "table_zero3: c")
