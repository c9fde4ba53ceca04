"""Section 3.5: sizes by hand, the optimum by search, and the claims on results made to hold and not to."""

from dataclasses import replace

import pytest

from ptdp_core.formulas import checkpoint_memory
from reproduce.artifacts import table_recompute_memory as module
from reproduce.experiment.results import Results
from reproduce.running import runner


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    plan = runner.plan(module.ARTIFACT, tmp_path_factory.mktemp("recompute"))
    return runner.run(plan, ["reproduce", module.ARTIFACT.id]).record


def everywhere(record, metric, value, count=10):
    """The results with a metric changed at the first `count` points."""
    changed = tuple(
        replace(p, metrics={**p.metrics, metric: replace(p.metrics[metric], value=value)})
        for p in record.points[:count]
    )
    return Results((*changed, *record.points[count:]), "simulated")


def test_sizes_by_hand(record):
    last = record.points[-1].metrics  # 1T: t=8, b=1, h=25600, a=160
    unit = 2048 * 25600
    assert last["input_bytes"].value == 2 * unit
    assert last["intermediate_bytes"].value == 10 * unit + 24 * unit // 8 + 5 * 160 * 2048**2 // 8


def test_the_formulas_optimum_is_a_minimum(record):
    for point in record.points:
        values = {name: metric.value for name, metric in point.metrics.items()}
        sizes = values["stage_layers"], values["input_bytes"], values["intermediate_bytes"]
        c = values["optimal_checkpoints"]
        best = checkpoint_memory(c, *sizes)
        assert best <= min(checkpoint_memory(c * 1.01, *sizes), checkpoint_memory(c / 1.01, *sizes))
        assert 1 <= values["optimal_layers_per_checkpoint"] <= values["stage_layers"]


def test_the_simulated_optimum_is_no_worse_than_every_layer(record):
    for point in record.points:
        values = {name: metric.value for name, metric in point.metrics.items()}
        assert values["peak_at_best"] <= values["peak_memory"] <= values["peak_at_worst"]
        assert values["peak_without_recomputation"] > values["peak_memory"]


def test_checkpointing_every_1_or_2_can_fail(record):
    for judge, metric in (
        (module.every_1_or_2_by_formula, "optimal_layers_per_checkpoint"),
        (module.every_1_or_2_simulated, "best_layers_per_checkpoint"),
    ):
        assert judge(everywhere(record, metric, 2)).verdict == "holds"
        assert judge(everywhere(record, metric, 3)).verdict == "contradicted"


def test_throughput_and_memory_can_fail(record):
    assert module.checkpoints_and_throughput(Results(record.points, "simulated")).verdict == "holds"
    assert module.checkpoints_and_throughput(everywhere(record, "throughput_spread", 0.02, 1)).verdict == "contradicted"
    flat = everywhere(record, "peak_at_worst", 1.0)
    same = replace(flat.points[0].metrics["peak_at_best"], value=1.0)
    points = tuple(replace(p, metrics={**p.metrics, "peak_at_best": same}) for p in flat.points)
    assert module.checkpoints_and_throughput(Results(points, "simulated")).verdict == "contradicted"


def test_much_larger_can_fail(record):
    assert module.intermediate_much_larger(Results(record.points, "simulated")).verdict == "holds"
    assert module.intermediate_much_larger(everywhere(record, "intermediate_bytes", 1, 1)).verdict == "contradicted"


def test_recomputation_required_can_fail(record):
    fits = everywhere(record, "peak_without_recomputation", 10e9)
    assert module.recomputation_required(fits).verdict == "contradicted"
    only_unpipelined = everywhere(record, "peak_without_recomputation", 10e9, 4)
    assert (
        module.recomputation_required(only_unpipelined).verdict
        == module.recomputation_required(Results(record.points, "simulated")).verdict
    )
