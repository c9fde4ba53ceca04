"""A whole run, and what limits it: the arithmetic from the iteration, the options, and their errors."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.plot import estimate_figure
from reproduce.cli import main
from reproduce.experiment.metrics import METRICS
from reproduce.planning import elasticities, run_cost
from reproduce.planning.amounts import amount, sequences
from reproduce.planning.run_cost import TrainingRun
from reproduce.planning.what_if import evaluate
from results.records import read_record
from results.records.errors import UsageError

GPT = {"layers": 24, "hidden": 2304, "heads": 24, "p": 2, "t": 2, "d": 2, "B": 64}
PLAN = ("plan", "--layers", "4", "--hidden", "512", "--heads", "8", "--gpus", "2", "--batch", "8K")


@pytest.fixture
def estimate():
    config = TrainingConfig(ModelConfig(24, 2304, 24), ParallelConfig(p=2, t=2, d=2, B=64))
    return simulate(config, load_cluster())


@pytest.fixture
def cluster():
    return load_cluster()


def test_a_run_is_as_many_iterations_as_its_tokens(estimate, cluster):
    found = run_cost.values(estimate, cluster, TrainingRun(1e9, price=2.5, power=1000, pue=1.2))
    seconds = 1e9 / (64 * 2048) * estimate.iteration_time
    assert found["run_time"] * 86400 == pytest.approx(seconds)
    assert found["gpu_time"] == pytest.approx(8 * seconds)
    assert found["cost"] == pytest.approx(8 * seconds / 3600 * 2.5)
    assert found["energy"] == pytest.approx(8 * seconds * 1200)


def test_the_days_are_the_models_flops_over_its_throughput(estimate, cluster):
    flops = model_flops_per_iteration(estimate.config.model, 64) / (64 * 2048) * 1e9
    days = flops / (8 * estimate.model_flops_utilization * cluster.peak_flops) / 86400
    assert run_cost.values(estimate, cluster, TrainingRun(1e9))["run_time"] == pytest.approx(days)


def test_a_gpu_takes_less_power_in_the_bubble(estimate, cluster):
    mean = run_cost.mean_power(estimate, cluster, TrainingRun(1.0, pue=1.0))
    waits = (estimate.phase_times["bubble"] + estimate.phase_times["host"]) / estimate.iteration_time
    assert mean == pytest.approx(cluster.busy_power - waits * (cluster.busy_power - cluster.idle_power))
    unknown = replace(cluster, busy_power=0.0, idle_power=0.0)
    assert run_cost.mean_power(estimate, unknown, TrainingRun(1.0)) is None
    assert "energy" not in run_cost.values(estimate, unknown, TrainingRun(1.0))


def test_the_intervals_are_those_of_the_iteration(estimate, cluster):
    metrics = run_cost.run_metrics(estimate, cluster, TrainingRun(1e9, price=2.0))
    assert {metric.origin for metric in metrics.values()} == {"derived"}
    for metric in metrics.values():
        assert metric.interval.high / metric.value == pytest.approx(1.072, abs=1e-3)


def test_failures_and_stragglers_make_a_run_longer(estimate, cluster):
    plain = run_cost.values(estimate, cluster, TrainingRun(1e9))["run_time"]
    failing = run_cost.document(estimate, cluster, TrainingRun(1e9, gpu_mtbf=8e4, checkpoint=30, restart=300))
    assert failing["failures"]["mtbf"] == 1e4
    assert failing["run_time"] == pytest.approx(plain / failing["failures"]["effective_share"])
    slow = run_cost.document(estimate, cluster, TrainingRun(1e9, straggler=0.1))
    assert 0.01 < slow["straggler_slowdown"] < slow["worst_straggler_slowdown"] < 0.1
    assert slow["run_time"] == pytest.approx(plain * (1 + slow["straggler_slowdown"]))


def test_a_run_that_gets_nowhere_is_an_error_and_not_a_hang(estimate, cluster):
    with pytest.raises(UsageError, match="gets nowhere"):
        run_cost.document(estimate, cluster, TrainingRun(1e9, gpu_mtbf=8.0, checkpoint=30, restart=300))


def test_every_elasticity_is_a_simulation_with_that_change(estimate, cluster):
    rows = {row["change"]: row for row in elasticities.elasticities(estimate, cluster)}
    nvlink = {name: 2 * getattr(cluster, name) for name in elasticities.NVLINK}
    assert rows["NVLink x2"]["iteration_time"] == simulate(estimate.config, replace(cluster, **nvlink)).iteration_time
    doubled = replace(estimate.config, parallel=replace(estimate.config.parallel, B=128))
    assert rows["batch x2"]["faster_by"] == pytest.approx(
        2 * estimate.iteration_time / simulate(doubled, cluster).iteration_time - 1
    )
    assert rows["GEMM rate +10%"]["faster_by"] > 0
    none = replace(estimate.config, parallel=replace(estimate.config.parallel, recompute="none"))
    for change in ("least recomputation that fits", "memory +16 GB, least recomputation"):
        assert rows[change]["iteration_time"] == simulate(none, cluster).iteration_time
    gains = [row["faster_by"] for row in rows.values()]
    assert gains == sorted(gains, reverse=True)
    assert {"1 more microbatch", "b=2", "v=2", "zb-h1, v=1"} <= rows.keys()


def test_another_recomputation_leaves_out_the_modules_of_the_selective_one(cluster):
    """They were kept, which no configuration with recompute='auto' may have: an internal error."""
    parallel = ParallelConfig(p=2, t=2, d=2, B=64, recompute="selective", recompute_modules="operators")
    config = TrainingConfig(ModelConfig(24, 2304, 24), parallel)
    rows = {row["change"]: row for row in elasticities.elasticities(simulate(config, cluster), cluster)}
    plain = replace(parallel, recompute="none", recompute_modules="core_attn")
    least = simulate(replace(config, parallel=plain), cluster).iteration_time
    assert rows["least recomputation that fits"]["iteration_time"] == least
    assert rows["memory +16 GB, least recomputation"]["iteration_time"] == least


def test_modules_that_fit_are_less_recomputation_than_whole_layers():
    point = {"model": "llama-3-70b", "t": 2, "d": 256, "B": 512, "data_parallel": "zero3", "attention": "sdpa"}
    point |= {"sequence_parallel": True, "recompute": "selective", "recompute_modules": "operators"}
    answer = evaluate(point, 1, "h100", sensitivity=True)
    whole = evaluate(point | {"recompute": "auto", "recompute_modules": "core_attn"}, 1, "h100")
    assert answer["status"] == whole["status"] == "ok"
    assert whole["iteration_time"] > answer["iteration_time"]
    gains = {row["change"]: row["faster_by"] for row in answer["elasticities"]}
    assert gains["least recomputation that fits"] == 0


def test_the_days_and_their_interval_are_the_last_to_leave_a_narrow_table(estimate, cluster):
    run = TrainingRun(1e12, price=2.5, power=1000)
    shown = {name: METRICS[name].simulated(estimate, cluster) for name in run_cost.SHOWN}
    table = run_cost.table([("ours", shown, run_cost.document(estimate, cluster, run))])
    assert [column.what for column in table.columns][1:4] == ["time of the run", "days, interval", "GPU hours"]
    assert len(table.columns) == 9


def test_what_limits_an_iteration_is_what_a_faster_rate_of_it_would_save(estimate, cluster):
    """Its largest parts, and the rates by the share of the time in proportion to them."""
    said = elasticities.what_limits(estimate, cluster)
    parts, bound = said.removeprefix("spent on ").split("; bound by ")
    assert parts.startswith("computation ")
    first = bound.split(", ")[0].removeprefix("matrix products ")
    faster = simulate(estimate.config, replace(cluster, peak_flops=1.001 * cluster.peak_flops)).iteration_time
    assert float(first.removesuffix("%")) / 100 == pytest.approx(
        (1 - faster / estimate.iteration_time) / (1 - 1 / 1.001), abs=0.02
    )
    slow = replace(cluster, host_per_call=1e-3)
    assert elasticities.what_limits(simulate(estimate.config, slow), slow).endswith("; bound by the host 100%")


def test_products_in_8_bits_are_faster_with_the_rate_of_products():
    h100 = load_cluster("h100")
    config = TrainingConfig(ModelConfig(8, 8192, 64), ParallelConfig(t=8, B=8, fp8_recipe="delayed"))
    rows = {row["change"]: row for row in elasticities.elasticities(simulate(config, h100), h100)}
    assert rows["GEMM rate +10%"]["faster_by"] > 0.02


def test_amounts_are_read_as_people_write_them():
    assert [amount(text) for text in ("1T", "300B", "1.5t", "7", "2e9", "4M")] == [1e12, 3e11, 1.5e12, 7, 2e9, 4e6]
    assert (sequences("512", 8192), sequences("4M", 8192), sequences("1.5M", 2048)) == (512, 512, 768)
    for text in ("abc", "-1T", "0", "", "1 T T", "1Q", "nan", "inf"):
        with pytest.raises(UsageError, match="is no amount"):
            amount(text)
    with pytest.raises(UsageError, match=r"'4X' is no amount; .*; try 4M$"):
        sequences("4X", 8192)
    with pytest.raises(UsageError, match="needs whole ones; try 1638, a number of sequences"):
        sequences("3.2M", 2048)


def test_a_point_has_its_run_and_its_elasticities_in_text_and_json(points_file, said, as_json):
    points = points_file(GPT, {**GPT, "B": "128K"}, {**GPT, "heads": 7})
    command = ("simulate", points, "--tokens", "300B", "--price", "2.5", "--sensitivity")
    one, same, invalid = as_json(*command, code=4)["points"]
    assert one["run"] == same["run"]
    assert one["run"]["cost"] == pytest.approx(one["run"]["gpu_time"] / 3600 * 2.5)
    assert one["run"]["run_time"] * 86400 == pytest.approx(3e11 / one["tokens_per_s"])
    assert one["elasticities"][0]["faster_by"] > 0
    assert "run" not in invalid
    printed = said(*command, code=4)
    for text in ("GPU hours", "energy", "300 billion tokens", "what limits it", "NVLink x2", "++++"):
        assert text in printed


@pytest.mark.slow
def test_the_chart_of_what_limits_it_has_a_bar_for_each_change(points_file, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(estimate_figure.theme, "figure_bytes", lambda figure, *_: drawn.append(figure) or b"")
    assert main(["simulate", str(points_file(GPT)), "--sensitivity", "--plot", str(tmp_path / "gains.svg")]) == 0
    (axes,) = drawn[0].axes
    estimate = simulate(TrainingConfig(ModelConfig(24, 2304, 24), ParallelConfig(p=2, t=2, d=2, B=64)), load_cluster())
    rows = elasticities.elasticities(estimate, load_cluster())
    assert [bar.get_width() for bar in axes.patches] == [pytest.approx(100 * row["faster_by"]) for row in rows]


def test_a_plan_has_its_run_in_text_json_and_record(tmp_path, said, as_json):
    run = ("--tokens", "1B", "--price", "2", "--mtbf", "1000", "--checkpoint-seconds", "5", "--restart-seconds", "60")
    options = (*run, "--sensitivity", "--results", str(tmp_path))
    document = as_json(*PLAN, *options)
    assert document["batch"] == 4
    assert document["run"]["failures"]["mtbf"] == 1000 * 3600 / 2
    assert document["elasticities"]
    first = read_record(next(tmp_path.glob("plan/*/record.json"))).points[0]
    assert first.metrics["cost"].value == pytest.approx(document["run"]["cost"])
    assert (first.metrics["run_time"].unit, first.metrics["run_time"].origin) == ("d", "derived")
    printed = " ".join(said(*PLAN, *options).split())
    assert f" {document['run']['cost']:,.0f} " in printed
    assert "The whole run by rank, derived" in printed
    assert "What limits rank 1" in printed
    assert "rank 2: " in next(tmp_path.glob("plan/*/table.md")).read_text(encoding="utf-8")


def test_the_proof_of_the_search_is_in_words_and_in_json(tmp_path, said, as_json):
    job = ("plan", "--layers", "24", "--hidden", "2304", "--heads", "24", "--gpus", "32", "--batch", "512")
    job += ("--results", tmp_path)
    document = as_json(*job)
    counts, bound = document["counts"], document["discarded_above_s"]
    assert counts["discarded_by_bound"] > 0
    printed = " ".join(said(*job).split())
    assert f"of {counts['legal']:,} legal layouts" in printed
    assert f"{counts['discarded_by_bound']:,} cannot be faster than {bound:.3f} s" in printed
