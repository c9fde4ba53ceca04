"""The paper's formulas against its own numbers, and against independent counts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core import formulas
from ptdp_core.config import ModelConfig
from ptdp_core.fields import choices
from ptdp_core.layout import chunk_parameters, layer_parameters
from reproduce.planning.models import named
from results import ROOT

PUBLISHED = json.loads((ROOT / "reproduce" / "papers" / "sc21" / "published.json").read_text())["artifacts"]
TABLE_1 = PUBLISHED["table_weak_scaling"]["rows"]
DAY = 86400


def model_of(row):
    return ModelConfig(row["layers"], row["hidden"], row["heads"])


@pytest.mark.parametrize("row", TABLE_1, ids=lambda row: f"{row['parameters_B']}B")
def test_equation_2_gives_table_1s_parameters(row):
    assert formulas.parameters(model_of(row)) / 1e9 == pytest.approx(row["parameters_B"], abs=0.05)


def test_equation_2_counts_the_parameters_of_a_written_out_model():
    model = ModelConfig(layers=3, hidden=8, heads=2, seq=5, vocab=7)
    h = 8
    attention = h * 3 * h + 3 * h + h * h + h
    mlp = h * 4 * h + 4 * h + 4 * h * h + h
    layer_norms = 2 * 2 * h
    # eq. 2 has no final layer norm (2h)
    assert formulas.parameters(model) == 3 * (attention + mlp + layer_norms) + 7 * h + 5 * h


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
    ],
)
def test_parameters_of_later_models_are_those_of_their_published_weights(name, published):
    assert formulas.parameters(named(name)) == published


def test_gpt_2_has_its_published_parameters_and_equation_2_no_final_layer_norm():
    assert formulas.parameters(ModelConfig(12, 768, 12, 1024, 50257)) + 2 * 768 == 124_439_808


MODELS = st.builds(
    ModelConfig,
    layers=st.integers(1, 3),
    hidden=st.just(64),
    heads=st.just(8),
    seq=st.integers(1, 9),
    vocab=st.integers(1, 300),
    kv_heads=st.sampled_from([0, 1, 2, 8]),
    ffn_hidden=st.sampled_from([0, 40]),
    activation=st.sampled_from(choices(ModelConfig)["activation"]),
    norm=st.sampled_from(choices(ModelConfig)["norm"]),
    positions=st.sampled_from(choices(ModelConfig)["positions"]),
    tied_embeddings=st.booleans(),
    bias=st.booleans(),
)


@given(MODELS)
def test_parameters_are_those_that_the_layout_lists(model):
    listed = sum(parameter.elements for parameter in chunk_parameters(model, range(model.layers), 1))
    assert listed == formulas.parameters(model) + (2 * model.hidden if model.is_gpt else 0)
    matrices = [parameter.elements for parameter in layer_parameters(model, 0) if parameter.is_matrix]
    assert sum(matrices) == formulas.layer_weights(model)


def test_flops_of_a_llama_are_the_sum_of_its_products():
    """Llama 3 8B: 32 heads of 128, 8 of them for keys and values, an MLP of three matrices 4096 x 14336."""
    model, B, s = named("llama-3-8b"), 16, 8192
    queries_and_output, keys_and_values = 2 * 4096 * 4096, 2 * 4096 * 1024
    per_token = 2 * (queries_and_output + keys_and_values + 3 * 4096 * 14336) + 2 * (2 * s * 4096)
    logits = 2 * 4096 * 128256
    assert formulas.model_flops_per_iteration(model, B) == 3 * B * s * (32 * per_token + logits)
    assert formulas.flops_per_iteration(model, B) == B * s * (4 * 32 * per_token + 3 * logits)


@given(st.integers(1, 200), st.integers(1, 200).map(lambda k: 64 * k), st.integers(1, 4096))
def test_equation_3_equals_the_appendixs_sum_of_gemms(layers, hidden, B):
    model = ModelConfig(layers, hidden, heads=1)
    s, h, V = model.seq, hidden, model.vocab
    forward = 6 * B * s * h**2 + 2 * B * s**2 * h + 2 * B * s**2 * h + 2 * B * s * h**2 + 16 * B * s * h**2
    assert formulas.flops_per_iteration(model, B) == 4 * layers * forward + 6 * B * s * h * V
    closed = 96 * B * s * layers * h**2 * (1 + s / (6 * h) + V / (16 * layers * h))
    assert formulas.flops_per_iteration(model, B) == pytest.approx(closed, rel=1e-12)
    assert formulas.model_flops_per_iteration(model, B) == 3 * layers * forward + 6 * B * s * h * V


@pytest.mark.parametrize("row", PUBLISHED["table_zero3"]["rows"])
def test_full_training_time_gives_table_2s_days(row):
    model = ModelConfig(96, 12288, 96) if row["parameters_B"] < 200 else ModelConfig(105, 20480, 128)
    seconds = formulas.training_time(model, row["B"], 300e9, row["gpus"], row["throughput_per_gpu"] * 1e12)
    # teraFLOP/s are printed as whole numbers: half a unit of 44 is 1.2 %
    assert seconds / DAY == pytest.approx(row["training_time"], rel=0.012, abs=0.5)


def test_figure_6_from_the_bubble_formula_with_t_1():
    for row in PUBLISHED["fig_bubble"]["rows"]:
        n, b_prime, d = row["n"], row["b_prime"], row["d"]
        value = formulas.bubble_fraction_data_parallel(n, d, b_prime)
        assert value == pytest.approx(row["bubble_fraction"], abs=0.0051)
        assert value == pytest.approx(formulas.bubble_fraction(n // d, b_prime / d))


def test_communication_volumes():
    model = ModelConfig(96, 12288, 96)
    assert formulas.pipeline_elements(model, b=1) == 2048 * 12288
    assert formulas.scatter_gather_elements(model, b=1, t=8) == 2048 * 12288 / 8
    # four all-reduces a layer, each sending 2(t-1)/t of bsh
    assert formulas.tensor_parallel_elements(model, b=1, t=8) == 4 * 2 * 7 / 8 * 2048 * 12288
    assert formulas.tensor_parallel_elements(model, b=1, t=1) == 0
    assert formulas.ring_factor(4) == 0.75


@given(st.integers(1, 64), st.floats(1, 1e9), st.floats(1, 1e9), st.floats(0.5, 2))
def test_checkpoint_optimum_is_the_minimum(layers, a_in, a_mid, factor):
    best = formulas.optimal_kept_inputs(layers, a_in, a_mid)
    least = formulas.recomputation_memory(best, layers, a_in, a_mid)
    assert least <= formulas.recomputation_memory(best * factor, layers, a_in, a_mid) * (1 + 1e-12)
