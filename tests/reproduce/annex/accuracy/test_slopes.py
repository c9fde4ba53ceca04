"""Slopes and intercepts of iteration times over the number of microbatches; what fits, in the paper and simulated."""

from dataclasses import replace
from statistics import linear_regression

import pytest

from reproduce.annex.accuracy import fits, slopes
from reproduce.annex.accuracy.accuracy import evaluators_of, predict
from reproduce.experiment import catalog
from results.records import Metric, PaperValue
from tests.points import made


@pytest.fixture(scope="module")
def predicted():
    artifacts = [catalog.load("fig_interleaved")]
    return predict(artifacts, evaluators_of(artifacts, "selene"))


def test_configurations_differ_in_all_but_the_batch_size(predicted):
    values, results = predicted
    default, interleaved = slopes.slopes(values)
    assert (default["configuration"]["v"], interleaved["configuration"]["v"]) == (1, 4)
    assert default["microbatches"] == interleaved["microbatches"] == [12, 24, 36, 48, 60]
    times = {
        point.parameters["B"]: point.metrics["iteration_time"].value
        for point in results["fig_interleaved"].values()
        if point.parameters["v"] == 1
    }
    slope, intercept = linear_regression(list(times), list(times.values()))
    assert default["ours"] == {"slope": pytest.approx(slope), "intercept": pytest.approx(intercept)}


def test_published_sequences_and_flops_are_the_same_time(predicted):
    row = predicted[0].iloc[0]
    seconds = slopes.seconds(row.config, row.metric, row.paper)
    assert slopes.seconds(row.config, "sequences_per_s", row.config.parallel.B / seconds) == seconds


def test_the_command_prints_a_row_for_each_and_a_document(predicted, said, monkeypatch, as_json):
    monkeypatch.setattr("reproduce.annex.accuracy.accuracy.predict_paper", lambda cluster: predicted)
    assert said("accuracy", "--slopes").count("Figure 12") == 2
    document = as_json("accuracy", "--slopes")
    assert [each["artifact"] for each in document["configurations"]] == ["fig_interleaved"] * 2


def point(key, status, peak, paper=False, **parameters):
    published = {"throughput_per_gpu": PaperValue(1.0, "FLOP/s", "table")} if paper else {}
    return made(key, {"peak_memory": Metric(peak, "B", "simulated")}, status, paper=published, **parameters)


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
