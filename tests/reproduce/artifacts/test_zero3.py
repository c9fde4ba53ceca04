"""Table 2 and Figure 10: the same points, the row that must not fit, and how lines are drawn."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.experiment import published
from reproduce.output import tables, theme
from reproduce.papers.sc21 import fig_zero3, table_zero3
from reproduce.running import runner


def test_the_rows_are_the_papers():
    rows, points = published.rows("table_zero3"), table_zero3.rows()
    for point, row in zip(points, rows, strict=True):
        config = TrainingConfig.from_plain(point.parameters)
        assert (config.parallel.n, config.parallel.b, config.parallel.B) == (row["gpus"], row["b"], row["B"])
        assert config.parallel.p * config.parallel.t == row["model_parallel_size"]
        assert (config.parallel.data_parallel == "zero3") == (row["scheme"] == "ZeRO-3")
        if row["scheme"] == "ZeRO-3":
            assert config.parallel.m == 1
        assert point.paper["throughput_per_gpu"].value == row["throughput_per_gpu"] * 1e12
        assert point.paper["training_time"].value == row["training_time"]


def test_the_figure_has_the_tables_points():
    table, figure = table_zero3.ARTIFACT.points("paper"), fig_zero3.ARTIFACT.points("paper")
    assert table[:-1] == figure
    extra = table[-1]
    assert extra.key == table_zero3.DID_NOT_FIT
    assert (extra.parameters["gpus"], extra.parameters["b"], extra.parameters["d"]) == (560, 4, 560)
    assert not extra.paper


def test_the_expected_oom_shows_as_such(tmp_path):
    run = runner.run(runner.plan(table_zero3.ARTIFACT, tmp_path), ["reproduce"])
    *others, last = run.record.points
    assert all(point.status == "ok" for point in others)
    fits = last.status == "ok"
    row = tables.result_table(table_zero3.ARTIFACT, run.record).cells[-1]
    assert ("oom, as in the paper" in row) == (not fits)
    verdicts = {claim.id: claim.verdict for claim in run.record.claims}
    assert verdicts["did_not_fit_on_560"] == "inconclusive"  # by 27 MB of 80.2 GB


def test_days_are_the_iterations_of_300_billion_tokens():
    class Parallel:
        B = 1536

    class Model:
        seq = 2048

    class Config:
        parallel, model = Parallel, Model

    class Estimate:
        config, iteration_time = Config, 60.0

    assert table_zero3.training_time(None, Estimate, None)["training_time"] == pytest.approx(
        300e9 / (1536 * 2048) * 60 / 86400
    )


def test_each_model_has_a_panel_that_tells_every_interval_and_names_every_number_of_gpus(tmp_path):
    record = runner.run(runner.plan(fig_zero3.ARTIFACT, tmp_path), ["reproduce"]).record
    with theme.style():
        panels = fig_zero3.ARTIFACT.draw(fig_zero3.ARTIFACT, record).axes
    for axes, model in zip(panels, fig_zero3.MODELS, strict=True):
        points = [point for point in record.points if point.series.endswith(model)]
        high = [1e-12 * point.metrics["throughput_per_gpu"].interval.high for point in points]
        told = [f"to {end:.0f}" for end in high if end > axes.get_ylim()[1]]
        assert sorted(text.get_text() for text in axes.texts) == sorted(told)
        assert told
        sizes = {point.parameters["gpus"] for point in points}
        assert {int(label.get_text()) for label in axes.get_xticklabels()} == sizes
        ours = {line.get_label(): len(line.get_xdata()) for line in axes.lines if "(paper)" not in line.get_label()}
        assert ours == {"PTD-P": 3, "ZeRO-3": 3}
