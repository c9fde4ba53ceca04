"""Latent attention, first layers without experts, and layers of multi-token prediction in formulas and simulator."""

from dataclasses import replace

import pytest

from ptdp_core import formulas
from ptdp_core.config import ModelConfig
from ptdp_core.layout import rank_elements, rank_sizes, stage_layers
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import family_least_time, least_time
from ptdp_core.simulator.costs import CostModel
from reproduce.planning.models import named
from reproduce.planning.space import stage_splits
from tests.ptdp_core.blocks import KEPT, configuring, layer

DEEPSEEK = named("deepseek-v3")
SMALL = replace(
    DEEPSEEK,
    layers=8,
    hidden=512,
    heads=8,
    kv_heads=0,
    seq=256,
    vocab=1024,
    ffn_hidden=1024,
    experts=16,
    expert_ffn_hidden=128,
)
DENSE = replace(SMALL, experts=0, experts_per_token=0, expert_ffn_hidden=0, shared_expert_ffn_hidden=0, dense_layers=0)
H100 = replace(load_cluster("h100"), expert_launch_time=0.0)  # which would be most of such small layers' time

config = configuring(B=32, **KEPT)


def gemm_flops(work):
    return sum(2 * m * n * k * batch for m, n, k, batch in work.gemms)


def test_parameters_are_those_of_the_published_weights():
    # The files of weights on the hub hold 671.0 billion without the layer of multi-token prediction (DeepSeek-AI 2024,
    # arXiv:2412.19437, Section 4.2: 671B, of which 37B are activated for each token).
    main = replace(DEEPSEEK, mtp_layers=0)
    assert formulas.parameters(main) == 671_026_404_352
    assert formulas.active_parameters(main) == pytest.approx(37e9, rel=0.02)
    assert formulas.parameters(named("kimi-k2")) == pytest.approx(1.03e12, rel=0.01)


@pytest.mark.parametrize(("p", "v"), [(1, 1), (2, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize("dense", [0, 1, 3, 8])
@pytest.mark.parametrize("mtp", [0, 1, 2])
def test_pipeline_ranks_hold_all_parameters_together(p, v, dense, mtp):
    model = replace(SMALL, dense_layers=dense, mtp_layers=mtp)
    whole = config(model, p=p, v=v)
    assert sum(rank_elements(whole)) == formulas.parameters(model)
    layers_with_experts = model.layers - dense + mtp
    assert sum(sizes.experts for sizes in rank_sizes(whole)) == layers_with_experts * 16 * 3 * 512 * 128


@pytest.mark.parametrize("latent", [{"query_latent": 64}, {"query_latent": 0}, {"kv_latent": 32, "rotary_dim": 16}])
def test_the_products_of_a_layer_are_those_of_the_formula(latent):
    model = replace(DENSE, **latent)
    forward = layer(model, 2, 1).forward
    assert gemm_flops(forward) == formulas.layer_forward_flops(model, 2)
    assert gemm_flops(layer(model, 2, 1).backward) == 2 * gemm_flops(forward)
    # By hand, of 2*256 tokens: queries, keys and values from their latents, scores over 128 + 64, over values of 128.
    queries = 512 * model.query_latent + model.query_latent * 8 * (128 + model.rotary_dim)
    queries = queries or 512 * 8 * (128 + model.rotary_dim)
    keys = 512 * (model.kv_latent + model.rotary_dim) + model.kv_latent * 8 * 256
    weights = queries + keys + 8 * 128 * 512 + 3 * 512 * 1024
    assert gemm_flops(forward) == 2 * 512 * weights + 2 * 2 * 8 * 256**2 * (128 + model.rotary_dim + 128)


def test_latent_attention_without_a_turned_part_costs_what_as_many_heads_cost():
    flat = replace(DENSE, rotary_dim=0)
    usual = replace(flat, kv_latent=0, query_latent=0)
    flat_layer, usual_layer = (layer(model, scores=False) for model in (flat, usual))
    assert flat_layer.forward.attention == usual_layer.forward.attention
    assert flat_layer.backward.attention == usual_layer.backward.attention


def test_a_model_whose_layers_all_come_first_is_one_without_experts():
    alone = replace(SMALL, mtp_layers=0)
    first = simulate(config(replace(alone, dense_layers=8), d=2), H100)
    assert first.iteration_time == simulate(config(replace(DENSE, mtp_layers=0), d=2), H100).iteration_time
    assert first.peak_memory >= simulate(config(replace(DENSE, mtp_layers=0), d=2), H100).peak_memory


def test_each_stage_takes_as_long_as_its_layers_of_both_kinds():
    model, costs = replace(SMALL, mtp_layers=0), CostModel(H100)
    dense, mixed, both = (costs.stages(config(replace(model, dense_layers=count), p=4)) for count in (8, 0, 3))
    for without, stage in zip((2, 1, 0, 0), range(4), strict=True):
        for part in ("layers_forward", "layers_backward", "weight_gradient"):
            expected = (without * getattr(dense[stage], part) + (2 - without) * getattr(mixed[stage], part)) / 2
            assert getattr(both[stage], part) == pytest.approx(expected, rel=1e-12)


def test_multi_token_prediction_is_one_layer_and_the_logits_once_more():
    costs, plain = CostModel(H100), replace(SMALL, mtp_layers=0, dense_layers=0)
    (without,), (further,) = (costs.stages(config(replace(plain, mtp_layers=count))) for count in (0, 1))
    assert further.layers_forward == pytest.approx(without.layers_forward * 9 / 8)
    logits = further.extra_forward - without.extra_forward
    assert 0 < logits < 2 * without.extra_forward
    more = formulas.model_flops_per_iteration(replace(plain, mtp_layers=1), 1) - formulas.model_flops_per_iteration(
        plain, 1
    )
    merge = 3 * 2 * 256 * 2 * 512**2
    assert more == 3 * formulas.layer_forward_flops(plain, 1) + formulas.logit_flops(plain, 1) + merge


def test_a_layout_names_layers_of_multi_token_prediction():
    model = replace(SMALL, dense_layers=1)
    written = config(model, p=4, pipeline_layout="Et*3|(t*2|)*2tmL")
    assert [len(chunk) for chunk in (range(3), range(2), range(2), range(2))] == [
        round(stage.layers_forward / CostModel(H100).stages(written)[2].layers_forward * 2)
        for stage in CostModel(H100).stages(written)
    ]


def test_latents_are_kept_for_the_backward_pass():
    latent = config(replace(DENSE, mtp_layers=0))
    usual = config(replace(latent.model, kv_latent=0, query_latent=0, rotary_dim=0))
    rounded = lambda each: simulate(each, H100).memory_bytes["stashed_activations"]  # noqa: E731
    tokens, heads = 256, 8
    expected = 8 * (2 * tokens * (2 * (1536 + 512) + 64) + 2 * tokens * heads * 2 * 64) / H100.allocator_efficiency
    assert rounded(latent) - rounded(usual) == pytest.approx(expected, rel=1e-6)


def test_sizes_left_out_of_a_model_are_those_of_a_gpt():
    attention = [item.name for item in layer(ModelConfig(1, 64, 2)).parameters if "attention." in item.name]
    assert attention == [
        f"attention.{name}" for name in ("qkv.weight", "qkv.bias", "projection.weight", "projection.bias")
    ]


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8, 9])
def test_the_planner_splits_all_layers_among_the_stages(p):
    model = replace(SMALL, dense_layers=2, mtp_layers=1)
    splits, costs = stage_splits(model, p), CostModel(H100)
    for v, pipeline_layout in splits:
        made = config(model, p=p, v=v, pipeline_layout=pipeline_layout, B=p * v)
        held = stage_layers(model.all_layers, p * v, pipeline_layout)
        assert sum(map(len, held)) == 9
        assert sum(rank_elements(made)) == formulas.parameters(model)
        seconds = simulate(made, H100).iteration_time
        assert family_least_time(made, costs) <= least_time(made, costs) * (1 + 1e-9) <= seconds * (1 + 2e-9)
    assert splits
