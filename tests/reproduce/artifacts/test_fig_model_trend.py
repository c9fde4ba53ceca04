"""Figure 1: the fit against numpy's, the claims on data made to hold and not to, the drawn points."""

from dataclasses import replace

import numpy
import pytest

from benchmarks.records import PaperValue
from reproduce.artifacts import fig_model_trend as module
from reproduce.experiment.results import Results
from reproduce.output import theme
from reproduce.running import runner


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    artifact = replace(module.ARTIFACT, draw=None)
    return runner.run(runner.plan(artifact, tmp_path_factory.mktemp("trend")), ["reproduce", module.ARTIFACT.id]).record


def with_sizes(record, sizes):
    """The results with other models, of these sizes in billions."""
    models = [p for p in record.points if p.series == "models"]
    rest = tuple(p for p in record.points if p.series != "models")
    changed = tuple(
        replace(p, parameters={**p.parameters, "billions": size}) for p, size in zip(models, sizes, strict=True)
    )
    return Results((*changed, *rest), "derived")


def test_the_fit_is_least_squares_in_log_space(record):
    models = [p for p in record.points if p.series == "models"]
    years = [p.parameters["year"] for p in models]
    sizes = [p.parameters["billions"] * 1e9 for p in models]
    slope, intercept, r_squared = module.fit(years, sizes)
    # Centred: the years' own size would cost numpy digits.
    expected = numpy.polyfit([year - 2019 for year in years], numpy.log10(sizes), 1)
    assert (slope, intercept + 2019 * slope) == pytest.approx(tuple(expected))
    assert r_squared == pytest.approx(numpy.corrcoef(years, numpy.log10(sizes))[0, 1] ** 2)
    for point in record.points:
        assert point.metrics["trend_parameters"].value == pytest.approx(
            10 ** numpy.polyval(expected, point.parameters["year"] - 2019)
        )


def test_what_the_paper_shows(record):
    assert [p.label for p in record.points if p.series == "models"][0::5] == ["ELMo (94M)", "GPT-3 (175B)"]
    line = {p.key: p.paper["trend_parameters"] for p in record.points if p.series == "trend line"}
    assert line["line_2020"] == PaperValue(24.74e9, "count", "plot")
    verdicts = {claim.id: claim.verdict for claim in record.claims}
    assert verdicts.pop("exponential_flops") == "not testable here"
    assert set(verdicts.values()) == {"holds"}


@pytest.mark.parametrize("sizes", [[1, 100, 1, 100, 1, 100], [1, 2, 3, 4, 5, 6]])
def test_exponential_growth_can_fail(record, sizes):
    # Not a line at all; and a line with another slope than the paper's.
    assert module.exponential_growth(with_sizes(record, sizes)).verdict == "contradicted"


def test_not_on_one_gpu_can_fail(record):
    assert module.not_on_one_gpu(with_sizes(record, [1, 1, 1, 1, 1, 41])).verdict == "holds"  # 82 GB
    assert module.not_on_one_gpu(with_sizes(record, [1, 1, 1, 1, 1, 39])).verdict == "contradicted"


def test_years_on_a_v100(record, monkeypatch):
    results = Results(record.points, "derived")
    judgement = module.years_on_a_v100(results)
    # 8TP/X by hand: 4.2e23 FLOPs in 288 years of 365.25 days.
    assert judgement.numbers["implied_rate"].value == pytest.approx(8 * 300e9 * 175e9 / (288 * 365.25 * 86400))
    monkeypatch.setattr(module, "V100_SHARE", 0.30)
    assert module.years_on_a_v100(results).verdict == "contradicted"


def test_20_billion_in_a_node(record, monkeypatch):
    judgement = module.up_to_20_billion_in_a_node(Results(record.points, "derived"))
    assert judgement.numbers["at_20_billion"].value == 20e9 * 20 / 8
    assert judgement.numbers["largest"].value == 8 * 80e9 / 20
    for limit in (35e9, 10e9):  # does not fit; the next model of Table 1 fits, too
        monkeypatch.setattr(module, "LIMIT", limit)
        assert module.up_to_20_billion_in_a_node(Results(record.points, "derived")).verdict == "contradicted"


def test_the_figure_shows_the_record(record):
    with theme.style():
        figure = module.draw(module.ARTIFACT, record)
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    models, ours, paper = axes.lines
    line = [p for p in record.points if p.series == "trend line"]
    assert list(models.get_ydata()) == [0.094, 0.34, 1.5, 8.3, 17.2, 175.0]
    assert list(ours.get_ydata()) == [p.metrics["trend_parameters"].value / 1e9 for p in line]
    assert list(paper.get_ydata()) == [p.paper["trend_parameters"].value / 1e9 for p in line]
    assert [text.get_text() for text in axes.texts][-1] == "GPT-3\n(175B)"
