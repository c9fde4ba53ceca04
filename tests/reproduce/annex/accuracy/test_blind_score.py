"""The blind scores: fixed records, whose errors follow from their own predictions and from the published values."""

import pytest

from reproduce.annex.accuracy.ledger import studies
from reproduce.annex.accuracy.published_points import published_points
from reproduce.experiment import catalog
from results import ROOT
from results.records import read_record

RECORD = ROOT / "results" / "reference" / "blind_score" / "record.json"
MODERN = ROOT / "results" / "reference" / "blind_modern" / "record.json"
# Rows, mean error, bias and worst error by source, as docs/accuracy.md has them.
MODERN_ERRORS = {
    "dgxc_h100": (25, 0.047, -0.047, -0.061),
    "mosaic_a100_80": (61, 0.074, -0.004, 0.291),
    "mosaic_h100": (64, 0.258, 0.258, 0.678),
    "zero_bubble_a100": (48, 0.192, 0.190, 0.388),
    "simumax_b200": (24, 0.456, 0.456, 0.835),
    "all": (222, 0.191, 0.158, 0.835),
}
MEAN_ERRORS = {
    "fig_tensor_vs_pipeline": 0.0500,
    "fig_pipeline_vs_data": 0.0648,
    "fig_tensor_vs_data": 0.1194,
    "fig_microbatch": 0.0290,
    "fig_recomputation": 0.0534,
    "all": 0.0690,
}


@pytest.fixture(scope="module")
def predictions():
    return [point for point in read_record(RECORD).points if "relative_error" in point.metrics]


def test_every_published_value_of_the_blind_figures_is_there(predictions):
    values = published_points(map(catalog.load, MEAN_ERRORS.keys() - {"all"}))
    published = dict(zip(values.artifact + ":" + values.key, values.paper, strict=True))
    (names,) = {tuple(point.paper) for point in predictions if point.series != "Figure 17"}
    assert names == ("throughput_per_gpu",)
    published_values = {point.key: value.value for point in predictions for value in point.paper.values()}
    assert published_values == published
    assert len(published_values) == 56


def test_errors_and_scores_follow_from_the_predictions(predictions):
    errors = {"all": []}
    for point in predictions:
        ((name, published),) = point.paper.items()
        error = point.metrics["relative_error"].value
        assert error == pytest.approx(point.metrics[name].value / published.value - 1)
        errors.setdefault(point.key.partition(":")[0], []).append(abs(error))
        errors["all"].append(abs(error))
    scores = {point.key.removeprefix("score:"): point for point in read_record(RECORD).points[len(predictions) :]}
    assert set(scores) == set(MEAN_ERRORS) == set(errors)
    for name, score in scores.items():
        mean = sum(errors[name]) / len(errors[name])
        assert score.metrics["mean_error"].value == pytest.approx(mean)
        assert round(mean, 4) == MEAN_ERRORS[name]


def test_the_commit_that_predicted_is_named():
    assert "0212995" in read_record(RECORD).notes[0]


def test_the_runs_on_todays_machines_are_the_ledgers_rows_as_they_were_measured():
    points = [point for point in read_record(MODERN).points if point.paper]
    rows = [row for study in studies() if study.id in MODERN_ERRORS for row in study.points.itertuples()]
    assert [point.label for point in points] == [row.label for row in rows]
    for point, row in zip(points, rows, strict=True):
        parallel, rate = row.config.parallel, point.paper["tokens_per_s_per_gpu"].value
        since = {"attention", "fused", "trained_with_dropout"}  # which the sources' own programs decided later
        asked, today = (
            {name: value for name, value in plain.items() if name not in since}
            for plain in (point.parameters, row.config.to_plain())
        )
        assert asked == today
        assert rate == pytest.approx(parallel.B * row.config.model.seq / parallel.n / row.iteration_time)


def test_errors_on_todays_machines_follow_from_the_predictions():
    record, errors = read_record(MODERN), {name: [] for name in MODERN_ERRORS}
    for point in record.points:
        if point.paper:
            error = point.metrics["relative_error"].value
            rates = point.metrics["tokens_per_s_per_gpu"].value, point.paper["tokens_per_s_per_gpu"].value
            assert error == pytest.approx(rates[0] / rates[1] - 1)
            errors[point.key.partition(":")[0]].append(error)
            errors["all"].append(error)
    scores = {point.label: point for point in record.points if point.key == "score:all"}
    for name, (rows, mean, bias, worst) in MODERN_ERRORS.items():
        assert len(errors[name]) == rows
        assert sum(map(abs, errors[name])) / rows == pytest.approx(mean, abs=6e-4)
        assert sum(errors[name]) / rows == pytest.approx(bias, abs=6e-4)
        assert max(errors[name], key=abs) == pytest.approx(worst, abs=6e-4)
    assert scores["all"].metrics["mean_error"].value == pytest.approx(sum(map(abs, errors["all"])) / 222)
    assert sum(point.status == "oom" for point in record.points) == 40
    assert record.provenance.commit.startswith("0f8de12")
    assert not record.provenance.dirty
