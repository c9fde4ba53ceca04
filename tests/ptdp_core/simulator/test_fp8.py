"""FP8: bytes of casting against counts by hand, products against public measurements, and bf16 as it was."""

from dataclasses import fields, replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layers.blocks import layer_of
from ptdp_core.layers.techniques import RECIPES
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.kernels import narrow_kernels
from ptdp_core.simulator.memory import layer_bytes

H100 = load_cluster("h100")
LLAMA = ModelConfig(
    32, 4096, 32, 4096, 32000, kv_heads=8, ffn_hidden=14336, activation="swiglu", tied_embeddings=False, bias=False
)


def configured(recipe="none", **parallel):
    sizes = {"t": 2, "d": 4, "B": 64, "recompute": "none", "attention": "sdpa", "fp8_recipe": recipe} | parallel
    return TrainingConfig(LLAMA, ParallelConfig(**sizes))


def test_every_recipe_of_a_configuration_is_known():
    (field,) = (item for item in fields(ParallelConfig) if item.name == "fp8_recipe")
    assert field.metadata["choices"] == ("none", *RECIPES)


@pytest.mark.parametrize(
    ("recipe", "per_element", "launches"),
    [
        ("delayed", 2 + 1 + 1, 4),
        ("tensorwise", 2 + 2 + 1 + 1, 8),  # read once more, for the largest element
        ("blockwise", 2 + 2 * (128 + 4) / 128, 4),
        ("mxfp8", 2 + 2 * (32 + 1) / 32, 4),
        ("nvfp4", 3 * 2 + 2 * (16 / 2 + 1) / 16, 12),  # read twice more, two elements a byte
    ],
)
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_casting_reads_and_writes_the_inputs_and_gradients_of_four_linears(
    recipe, per_element, launches, sequence_parallel
):
    config = configured(recipe, sequence_parallel=sequence_parallel)
    tokens, h, between = 4096, 4096, 4096 // (2 if sequence_parallel else 1)
    plain, cast = layer_of(configured(sequence_parallel=sequence_parallel)), layer_of(config)
    # inputs: of query-key-value and the MLP, of the projection, of the MLP's second linear
    into = cast.forward.traffic_bytes - plain.forward.traffic_bytes
    assert into == pytest.approx(per_element * tokens * (2 * between + h // 2 + 14336 // 2))
    # gradients of the outputs: of the projection and the MLP, of query-key-value (4096 + 2 * 1024), of gate and up
    out_of = cast.backward.traffic_bytes - plain.backward.traffic_bytes
    assert out_of == pytest.approx(per_element * tokens * (2 * between + 6144 // 2 + 2 * 14336 // 2))
    for name in ("forward", "backward"):
        assert getattr(cast, name).kernels - getattr(plain, name).kernels == launches


def test_the_linears_products_are_in_fp8_and_no_others():
    for attention in ("operators", "sdpa"):
        plain, cast = (layer_of(configured(name, attention=attention)) for name in ("none", "delayed"))
        for name, count in (("forward", 4), ("backward", 8), ("weights", 4)):
            before, after = getattr(plain, name), getattr(cast, name)
            narrow = [gemm for _, gemm in after.narrow_gemms]
            assert len(narrow) == count
            assert sorted((*narrow, *after.gemms)) == sorted(before.gemms)
            assert {elements for elements, _ in after.narrow_gemms} == {"fp8"}
            assert all(batch == 1 for *_, batch in narrow)
            assert all(batch == 16 for *_, batch in after.gemms)  # of the attention's heads


def test_a_large_product_takes_as_long_as_measured():
    """Azure AI-benchmarking-guide, long runs of random data at 8192, FP8: 1290 TFLOP/s on H100, 2877 on GB200."""
    for name, measured in (("h100", 1290e12), ("gb200", 2877e12)):
        assert 2 * 8192**3 / narrow_kernels(load_cluster(name), "fp8").gemm(8192, 8192, 8192) == pytest.approx(
            measured, rel=0.03
        )


def test_fp8_is_faster_but_less_than_twice_and_its_recipes_differ_by_their_casting():
    times = {
        name: simulate(configured(name, b=4), H100).iteration_time for name in ("none", *RECIPES) if name != "nvfp4"
    }
    assert times["none"] / 2 < times["delayed"] < times["mxfp8"] < times["tensorwise"]
    assert times["mxfp8"] == times["blockwise"]  # a byte for 32 elements, or four for 128
    assert times["tensorwise"] < times["none"]
    again = simulate(configured("delayed", b=4, recompute="full"), H100)
    assert again.phase_times["recompute"] == pytest.approx(again.phase_times["forward"], rel=0.01)  # cast again


# TFLOP/s of long runs of large products on random data (Azure AI-benchmarking-guide).
LONG_RUNS = [("gb200", "fp8", 2807), ("gb200", "fp4", 6616), ("gb300", "fp8", 3308), ("gb300", "fp4", 8640)]


@pytest.mark.parametrize(("name", "elements", "measured"), LONG_RUNS)
def test_large_products_are_as_fast_as_each_machine_s_own_long_runs(name, elements, measured):
    cluster, size = load_cluster(name), 16384
    seconds = narrow_kernels(cluster, elements).gemm(size, size, size) - cluster.kernel_gap
    assert 2e-12 * size**3 / seconds == pytest.approx(measured, rel=0.04)


def test_a_step_with_products_of_four_bits_is_faster_than_one_with_sixteen():
    cluster = load_cluster("gb200")
    large = {"b": 4, "B": 64, "sequence_parallel": True}
    by_recipe = {
        name: simulate(configured(name, **large), cluster).iteration_time for name in ("none", "mxfp8", "nvfp4")
    }
    assert by_recipe["nvfp4"] < by_recipe["none"]


def test_overlapped_collectives_hide_behind_products_of_fp8():
    model, tensor_parallel = CostModel(H100), configured("delayed", t=8, sequence_parallel=True)
    stages = model.stages(tensor_parallel)
    assert stages[0].layers_backward < model.stages(configured(t=8, sequence_parallel=True))[0].layers_backward


@pytest.mark.parametrize(("recipe", "kept"), [("delayed", 1), ("mxfp8", 33 / 32)])
def test_fp8_keeps_inputs_of_linears_in_one_byte(recipe, kept):
    before, after = (layer_bytes(configured(name)).intermediate for name in ("none", recipe))
    tokens, h, f = 4096, 4096, 14336
    assert before - after == pytest.approx(tokens * ((2 - kept) * (2 * h + f / 2) - kept * h / 2), abs=1)


def test_each_linear_that_reads_an_input_keeps_a_cast_of_its_own_and_a_router_sixteen_bits():
    """Of latent attention two linears read the norm's output, of an expert that all tokens share and a router one."""
    latent = replace(LLAMA, kv_heads=0, positions="rotary", kv_latent=512, query_latent=1536, rotary_dim=64)
    mixture = replace(LLAMA, experts=8, experts_per_token=2, shared_expert_ffn_hidden=1024)
    for model, part, bytes_ in ((latent, "attention_norm", 2), (LLAMA, "attention_norm", 1), (mixture, "mlp_norm", 3)):
        config = replace(configured("delayed"), model=model)
        (kept,) = (each.output for each in layer_of(config).parts if each.name == part)
        assert kept == bytes_ * 4096 * 4096
    routed = replace(mixture, shared_expert_ffn_hidden=0, expert_latent=1024)  # a router and the latent's linear
    (kept,) = (
        each.output for each in layer_of(replace(configured("delayed"), model=routed)).parts if each.name == "mlp_norm"
    )
    assert kept == 3 * 4096 * 4096


@pytest.mark.parametrize(("recipe", "each"), [("delayed", 2), ("mxfp8", 33 / 16), ("none", 0)])
def test_casts_of_weights_that_stay_beside_them_are_two_of_each_matrix_in_layers(recipe, each):
    config = configured(recipe, t=1, d=8)
    usual, casts = (
        simulate(config, H100, replace(H100.software, kept_casts=kept)).memory_bytes["weights"]
        for kept in (False, True)
    )
    matrices = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)
    assert casts - usual == round(each * matrices)
