"""Table 2 and Figure 10: the same points, the row that must not fit, and how lines are drawn."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.artifacts import fig_zero3, table_zero3
from reproduce.experiment import published
from reproduce.output import tables, theme
from reproduce.running import runner
from results.records import Metric


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

    metric = table_zero3.training_time(None, Estimate, None)["training_time"]
    assert isinstance(metric, Metric)
    assert metric.value == pytest.approx(300e9 / (1536 * 2048) * 60 / 86400)


def test_line_styles_are_the_papers(tmp_path):
    run = runner.run(runner.plan(fig_zero3.ARTIFACT, tmp_path), ["reproduce"])
    with theme.style():
        axes = fig_zero3.ARTIFACT.draw(fig_zero3.ARTIFACT, run.record).axes[0]
    styles = {line.get_label(): line.get_linestyle() for line in axes.lines if "(paper)" not in line.get_label()}
    assert styles == {f"{s}, {m}": {"175B": ":", "530B": "-"}[m] for s in ("ZeRO-3", "PTD-P") for m in ("175B", "530B")}
    colors = {line.get_label().split(",")[0]: line.get_color() for line in axes.lines}
    assert len(set(colors.values())) == 2
