"""A layer as data: sums over its parts against closed forms, on random models; what techniques leave alone."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ptdp_core import formulas, layers
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers import techniques
from ptdp_core.layers.blocks import LayerRun, block, heads_of, layer_of

MODULES = sorted(Path(layers.__path__[0]).glob("*.py"))
S = 512
# The first draw of a process may wait for other processes' work.
of_runs = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def runs(draw):
    """A model of one kind of layer, and how a GPU runs it."""
    heads, size = draw(st.sampled_from((8, 16))), draw(st.sampled_from((32, 64)))
    sizes = {
        "activation": draw(st.sampled_from(("gelu", "swiglu", "geglu"))),
        "norm": draw(st.sampled_from(("layernorm", "rmsnorm"))),
        "positions": draw(st.sampled_from(("learned", "rotary"))),
        "bias": draw(st.booleans()),
        "kv_heads": draw(st.sampled_from((0, heads // 2))),
        "ffn_hidden": draw(st.sampled_from((0, 128 * heads))),
    }
    model = ModelConfig(2, heads * size, heads, S, 1000, **sizes)
    t = draw(st.sampled_from((1, 2, 4)))
    return model, LayerRun(
        b=draw(st.sampled_from((1, 2))),
        t=t,
        sequence_parallel=t > 1 and draw(st.booleans()),
        writes_scores=draw(st.booleans()),
        fused=draw(st.booleans()),
        fp8_recipe=draw(st.sampled_from(("none", *techniques.RECIPES))),
    )


def products(work):
    """FLOPs of all products; of fused attention those of the forward pass's two."""
    gemms = (*work.gemms, *(gemm for _, gemm in work.narrow_gemms))
    return sum(2 * m * n * k * count for m, n, k, count in gemms) + sum(each.flops for each in work.attention)


@of_runs
@given(runs())
def test_tensor_ranks_together_compute_the_formulas_products(of):
    model, run = of
    layer = block(model, run, model.usual_kind)
    forward = formulas.layer_forward_flops(model, run.b)
    again = 0 if run.writes_scores else formulas.attention_core_flops(model, run.b) / 2  # scores, computed again
    assert products(layer.forward) * run.t == forward
    assert products(layer.backward) * run.t == 2 * forward + again
    assert products(layer.weights) * run.t == forward - formulas.attention_core_flops(model, run.b)


@of_runs
@given(runs())
def test_a_layer_keeps_what_korthikanti_s_equations_say(of):
    """Their equations 2 and 4, for any widths: 10 or without masks 8 bytes of bsh, and all wide tensors."""
    model, run = of
    assume(run.fp8_recipe == "none")
    tokens, heads = S * run.b, model.heads
    between = (10 if model.dropout else 8) * tokens * model.hidden
    wide = 2 * tokens * (heads_of(model).all + model.heads * model.head_size + (model.branches + 1) * model.mlp_width)
    shared = 4 * tokens * model.heads * model.head_size if model.query_groups < heads else 0
    scores = (5 if model.dropout else 2) * run.b * heads * S**2 + shared
    inside = wide + (scores if run.writes_scores else 4 * tokens * heads)
    kept = block(model, run, model.usual_kind).kept_bytes
    assert kept == between / (run.t if run.sequence_parallel else 1) + inside / run.t


@of_runs
@given(runs())
def test_techniques_change_what_they_say_and_nothing_else(of):
    model, run = of
    plain = block(model, run._replace(fused=True, fp8_recipe="none"), model.usual_kind)
    apart = techniques.unfused(plain)
    assert apart.parameters == plain.parameters
    assert apart.collectives == plain.collectives
    assert apart.kept_bytes == plain.kept_bytes
    assert apart.forward.gemms == plain.forward.gemms
    assert apart.forward.kernels > plain.forward.kernels
    for name, recipe in techniques.RECIPES.items():
        narrow = techniques.in_fp8(plain, recipe)
        assert products(narrow.forward) == products(plain.forward)
        assert len(narrow.weights.narrow_gemms) == len(plain.weights.gemms)
        assert narrow.parameters == plain.parameters
        both = (techniques.unfused(narrow), techniques.in_fp8(apart, recipe))
        assert _counts(both[0]) == _counts(both[1]), name


def _counts(layer):
    return layer.forward, layer.backward, layer.kept_bytes


@of_runs
@given(runs())
def test_sequence_parallelism_sends_as_many_bytes_but_for_inputs_gathered_again(of):
    model, run = of
    assume(run.t > 1)
    plain, cut = (block(model, run._replace(sequence_parallel=on), model.usual_kind) for on in (False, True))
    sent = [sum(call.sent(run.t) for calls in layer.collectives for call in calls) for layer in (plain, cut)]
    again = 2 * S * run.b * model.hidden * (run.t - 1) / run.t
    assert sent[1] == pytest.approx(sent[0] + again)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_module_of_a_layer_is_long_and_no_kind_knows_a_model(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 350
    if path.stem != "blocks":  # which alone makes layers of a model's fields
        assert "ptdp_core.config" not in text


def test_a_choice_of_the_configuration_is_a_layer_s():
    config = TrainingConfig(ModelConfig(2, 512, 8, S), ParallelConfig(t=2, sequence_parallel=True, fused=False))
    assert layer_of(config) is block(config.model, LayerRun.of(config.parallel, experts=False), config.model.usual_kind)
    mixture = ModelConfig(2, 512, 8, S, experts=8, experts_per_token=2, dense_layers=1)
    dense, shared = (
        [layer_of(TrainingConfig(mixture, ParallelConfig(d=8, B=8, e=e)), mixture.layer_kind(k)) for e in (1, 8)]
        for k in (0, 1)
    )
    assert dense[0] is dense[1]  # which does not know who shares experts
    assert shared[0] != shared[1]
    with pytest.raises(ConfigurationError):
        TrainingConfig(ModelConfig(2, 512, 8, S), ParallelConfig(t=3))
