"""Table 2 and Figure 10: the same points, the row that must not fit, and each claim both ways."""

import pytest

from benchmarks.records import Metric
from ptdp_core.config import TrainingConfig
from reproduce.artifacts import fig_zero3, table_zero3
from reproduce.experiment import published
from reproduce.experiment.claims import judge
from reproduce.output import tables, theme
from reproduce.running import runner


@pytest.fixture
def verdict(results_for):
    def of(module, id, oom=lambda point: False, **metrics):
        claim = next(claim for claim in module.ARTIFACT.claims if claim.id == id)
        return judge(claim, results_for(module.ARTIFACT, metrics, oom=oom)).verdict

    return of


def speeds(gains):
    """ZeRO-3 at 100, PTD-P ahead by (model, doubling)."""
    counts = {"175B": (384, 768, 1536), "530B": (560, 1120, 2240)}

    def of(point):
        model = point.parameters["model"]
        if point.series.startswith("ZeRO"):
            return 100.0
        return 100.0 * (1 + gains[model][counts[model].index(point.parameters["gpus"])])

    return of


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
    row = list(tables.result_table(table_zero3.ARTIFACT, run.record).iloc[-1])
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


def test_gains(verdict):
    said = {"175B": (0.06, 0.70, 2), "530B": (0.24, 0.70, 2)}
    for id in ("fewest_gpus_6_and_24_percent", "doubled_gpus_70_percent"):
        assert verdict(table_zero3, id, throughput_per_gpu=speeds(said)) == "holds"
    off = {"175B": (0.06, 0.70, 2), "530B": (0.15, 0.85, 2)}
    for id in ("fewest_gpus_6_and_24_percent", "doubled_gpus_70_percent"):
        assert verdict(table_zero3, id, throughput_per_gpu=speeds(off)) == "contradicted"


def test_memory(verdict):
    out = lambda *keys: lambda point: point.key in keys  # noqa: E731
    small, large = table_zero3.DID_NOT_FIT, "zero_3_530b_640"
    assert verdict(table_zero3, "did_not_fit_on_560", oom=out(small)) == "holds"
    assert verdict(table_zero3, "did_not_fit_on_560") == "contradicted"
    assert verdict(table_zero3, "did_not_fit_on_560", oom=out(small, large)) == "contradicted"
    assert verdict(table_zero3, "too_large_for_a_server") == "holds"


def test_scaling(verdict):
    zero3 = lambda point: point.series.startswith("ZeRO")  # noqa: E731
    falls = lambda point: 1e5 - point.parameters["gpus"] * (9 if zero3(point) else 1)  # noqa: E731
    assert verdict(fig_zero3, "scales_more_gracefully", throughput_per_gpu=falls) == "holds"
    assert verdict(fig_zero3, "scales_more_gracefully", throughput_per_gpu=lambda point: 1.0) == "contradicted"


def test_cross_node_bytes_count_an_eighth_of_zero_3(verdict):
    zero3 = lambda point: point.series.startswith("ZeRO")  # noqa: E731
    uses = dict.fromkeys(("pipeline_traffic", "embedding_traffic"), lambda point: 1.0)
    for ratio, expected in ((30, "holds"), (20, "contradicted")):
        data = {"data_traffic": lambda point, r=ratio: r if zero3(point) else 1.0}
        assert verdict(fig_zero3, "less_cross_node_communication", **uses, **data) == expected


def test_exposed_share(verdict):
    time = {"iteration_time": lambda point: 1.0}
    rises = {"data_parallel_time": lambda point: point.parameters["gpus"] / 1e4}
    assert verdict(fig_zero3, "batch_too_small_to_hide", **time, **rises) == "holds"
    flat = {"data_parallel_time": lambda point: 0.1}
    assert verdict(fig_zero3, "batch_too_small_to_hide", **time, **flat) == "contradicted"
    assert verdict(fig_zero3, "fixed_batch_sizes") == "paper inconsistent"


def test_line_styles_are_the_papers(tmp_path):
    run = runner.run(runner.plan(fig_zero3.ARTIFACT, tmp_path), ["reproduce"])
    with theme.style():
        axes = fig_zero3.ARTIFACT.draw(fig_zero3.ARTIFACT, run.record).axes[0]
    styles = {line.get_label(): line.get_linestyle() for line in axes.lines if "(paper)" not in line.get_label()}
    assert styles == {f"{s}, {m}": {"175B": ":", "530B": "-"}[m] for s in ("ZeRO-3", "PTD-P") for m in ("175B", "530B")}
    colors = {line.get_label().split(",")[0]: line.get_color() for line in axes.lines}
    assert len(set(colors.values())) == 2
