"""Attention over a window in some of the layers, sinks, and norms behind attention and MLP: counts by hand."""

from dataclasses import replace

import pytest

from ptdp_core import formulas
from ptdp_core.config import LayerKind
from ptdp_core.layers.attention import attended
from ptdp_core.layers.blocks import layer_of
from ptdp_core.layout import rank_elements
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from tests.ptdp_core.blocks import KEPT, configuring, llama

H100 = load_cluster("h100")
FULL = llama(8, 2048, 16, 8192, 32000)
WINDOWED = replace(FULL, window=512)

configured = configuring(B=8, **KEPT)


@pytest.mark.parametrize(("s", "window"), [(7, 0), (7, 1), (7, 3), (7, 6), (64, 16)])
def test_pairs_of_a_window_are_those_that_each_query_sees(s, window):
    """Twice what the mask leaves, less the diagonal once, as s^2 is of all where each query sees all before it."""
    visible = sum(min(query + 1, window or s) for query in range(s))
    assert attended(s, window) == 2 * visible - (window or s)


def test_only_layers_of_the_pattern_have_the_window():
    model = replace(WINDOWED, window_layers="wwf")
    assert [model.layer_kind(layer).window for layer in range(8)] == [512, 512, 0, 512, 512, 0, 512, 512]
    assert model.layer_kinds == (LayerKind(window=512), LayerKind())
    assert FULL.layer_kinds == (LayerKind(),)


@pytest.mark.parametrize("t", [1, 4])
@pytest.mark.parametrize("c", [1, 2])
def test_attention_s_products_shrink_to_the_window_s_and_nothing_else_does(t, c):
    full, windowed = (layer_of(configured(model, t=t, c=c)) for model in (FULL, WINDOWED))
    for name in ("forward", "backward"):
        before, after = getattr(full, name), getattr(windowed, name)
        share = attended(8192, 512) / 8192**2
        assert [each.flops for each in after.attention] == [each.flops * share for each in before.attention]
        assert all(each.seq == 512 for each in after.attention)
        assert before._replace(attention=()) == after._replace(attention=())
    assert full.kept_bytes == windowed.kept_bytes


def test_a_stage_takes_as_long_as_its_layers_of_both_kinds():
    """Four stages of two layers: with the pattern 'wwff' every stage has layers of one kind."""
    costs, pattern = CostModel(H100), replace(WINDOWED, window_layers="wwff")
    full, windowed, both = (costs.stages(configured(model, p=4)) for model in (FULL, WINDOWED, pattern))
    assert windowed[1].layers_forward < full[1].layers_forward
    assert [both[stage].layers_forward for stage in range(4)] == [
        (full if stage % 2 else windowed)[stage].layers_forward for stage in range(4)
    ]
    estimate = simulate(configured(pattern, p=4), H100)
    assert simulate(configured(WINDOWED, p=4), H100).iteration_time < estimate.iteration_time
    assert least_time(estimate.config, CostModel(H100)) <= estimate.iteration_time


def test_flops_are_those_of_what_is_seen():
    core = formulas.attention_core_flops(FULL, 1)
    saved = 1 - attended(8192, 512) / 8192**2
    alternating = replace(WINDOWED, window_layers="wf")
    less = formulas.forward_flops(FULL, 1) - formulas.forward_flops(alternating, 1)
    assert less == pytest.approx(4 * core * saved, rel=1e-12)


def test_sinks_and_further_norms_are_parameters_of_every_layer():
    more = replace(FULL, sinks=True, post_norms=True)
    assert formulas.parameters(more) - formulas.parameters(FULL) == 8 * (16 + 2 * 2048)
    assert sum(rank_elements(configured(more, p=2, t=4))) - sum(rank_elements(configured(FULL, p=2, t=4))) == 8 * (
        16 // 4 + 2 * 2048
    )
    bytes_of = [layer_of(configured(model)).forward.traffic_bytes for model in (FULL, more)]
    assert bytes_of[1] - bytes_of[0] == 2 * 4 * 8192 * 2048
    # A norm keeps its input, which nobody else has kept: the results of attention and of the MLP.
    assert layer_of(configured(more)).kept_bytes - layer_of(configured(FULL)).kept_bytes == 2 * 2 * 8192 * 2048


def test_gated_gelu_costs_what_swiglu_costs():
    assert simulate(configured(replace(FULL, activation="geglu")), H100).iteration_time == (
        simulate(configured(FULL), H100).iteration_time
    )


def test_a_kind_of_attention_without_a_fused_kernel_is_built_of_operators():
    """In layers with the window alone, or in all of a model with sinks; other models do not notice."""
    pattern = replace(WINDOWED, window_layers="wf")
    windows = configured(pattern, attention_kernels="windows=none")
    for kind in pattern.layer_kinds:
        how = "operators" if kind.window else "sdpa"
        assert layer_of(windows, kind) == layer_of(configured(pattern, attention=how), kind)
        assert windows.writes_scores(kind) is (kind.window > 0)
    sinks = configured(replace(pattern, sinks=True), attention_kernels="sinks=none,windows=flash_attention_2")
    operators = replace(sinks, parallel=replace(sinks.parallel, attention="operators"))
    times = [simulate(config, H100) for config in (sinks, operators)]
    assert times[0].iteration_time == times[1].iteration_time > simulate(configured(pattern), H100).iteration_time
    assert times[0].peak_memory == times[1].peak_memory
    again = replace(sinks, parallel=replace(sinks.parallel, recompute="selective"))
    assert again.recomputed_modules() == ("core_attn",)
    assert not replace(again, model=FULL).recomputed_modules()
    assert simulate(replace(sinks, model=FULL), H100).phase_times == simulate(configured(FULL), H100).phase_times


@pytest.mark.parametrize("kernel", ["flash_attention_1", "flash_attention_2"])
def test_an_earlier_kernel_takes_as_much_longer_as_the_cluster_says(kernel):
    usual, earlier = (configured(WINDOWED, attention_kernels=each) for each in ("", f"windows={kernel}"))
    costs = CostModel(replace(H100, host_per_call=0.0))
    for name in ("forward", "backward"):
        before, after = getattr(layer_of(usual), name), getattr(layer_of(earlier), name)
        ((fast,), (slow,)) = ([costs.kernels.attention(*each) for each in of.attention] for of in (before, after))
        assert slow == pytest.approx(fast / getattr(H100, kernel))
        assert before._replace(attention=()) == after._replace(attention=())
