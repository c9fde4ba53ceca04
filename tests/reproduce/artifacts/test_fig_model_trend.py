"""Figure 1: the fit against numpy's, the claims' numbers by hand, the drawn points."""

import numpy
import pytest

from reproduce.output import theme
from reproduce.papers.sc21 import fig_model_trend as module
from results.records import PaperValue


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
    assert verdicts.pop("years_on_a_v100") == "inconclusive"
    assert verdicts.pop("up_to_20_billion_in_a_node") == "inconclusive"
    assert set(verdicts.values()) == {"holds"}


def test_numbers_by_hand(record):
    numbers = {name: number.value for claim in record.claims for name, number in claim.numbers.items()}
    # 8TP/X: 4.2e23 FLOPs in 288 years of 365.25 days.
    assert numbers["implied_rate"] == pytest.approx(8 * 300e9 * 175e9 / (288 * 365.25 * 86400))
    activations = 2 * 2048 * 7168 * 40 + 2048 * 7168 * (10 + 24 / 8) + 5 * 56 * 2048**2 / 8
    assert numbers["at_20_billion"] == 20e9 * 20 / 8 + activations
    assert numbers["largest"] == 8 * (80e9 - activations) / 20


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
