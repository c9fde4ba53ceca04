"""The blind score: a fixed record, whose errors follow from its own predictions and from the published values."""

import pytest

from reproduce.analysis.scoring.published_points import published_points
from reproduce.experiment import catalog
from results import ROOT
from results.records import read_record

RECORD = ROOT / "results" / "reference" / "blind_score" / "record.json"
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
    errors: dict[str, list[float]] = {"all": []}
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
