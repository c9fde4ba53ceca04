"""Section 3.5: sizes by hand, and the optimum by search."""

from ptdp_core.formulas import recomputation_memory


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
        best = recomputation_memory(c, *sizes)
        assert best <= min(recomputation_memory(c * 1.01, *sizes), recomputation_memory(c / 1.01, *sizes))
        assert 1 <= values["optimal_layers_per_checkpoint"] <= values["stage_layers"]


def test_the_simulated_optimum_is_no_worse_than_every_layer(record):
    for point in record.points:
        values = {name: metric.value for name, metric in point.metrics.items()}
        assert values["peak_at_best"] <= values["peak_memory"] <= values["peak_at_worst"]
        assert values["peak_without_recomputation"] > values["peak_memory"]
