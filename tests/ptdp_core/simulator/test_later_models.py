"""Models after GPT-3 in the simulator: the operator table, activations and messages against counts written out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptdp_core import formulas
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layout import layer_parameters, rank_elements, step_collectives
from ptdp_core.simulator import PHASES, load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import deferred_bytes, layer_bytes
from ptdp_core.simulator.peak_memory import peak_memory
from reproduce.planning.models import named
from tests.ptdp_core.blocks import apart, layer

SELENE = load_cluster("selene")
LLAMA, GPT3 = named("llama-3-8b"), ModelConfig(96, 12288, 96)
FLASH = {"attention": "sdpa"}


def llama(**parallel):
    return TrainingConfig(LLAMA, ParallelConfig(**{"p": 4, "t": 2, "B": 8} | parallel))


def test_a_layer_without_biases_moves_no_byte_for_them():
    """Llama's forward pass at t = 1, b = 1, in bytes a token of width h = 4096; no scores are written."""
    h, kv, f = 4096, 1024, 14336
    norms, adds = 2 * (2 + 2) * h, 2 * (2 + 2 + 2) * h
    rotary, context, swiglu = (2 + 2) * (h + kv), (2 + 2) * h, (2 + 2 + 2) * f
    work = layer(LLAMA, 1, 1, scores=False).forward
    assert work.traffic_bytes == LLAMA.seq * (norms + adds + rotary + context + swiglu)
    assert work.kernels == 2 + 2 + 2 + 1 + 1 + 1
    with_scores = layer(LLAMA, 1, 1).forward
    scores, copies = 32 * LLAMA.seq**2, 2 * (2 * kv + 2 * h) * LLAMA.seq
    assert with_scores.traffic_bytes - work.traffic_bytes == 3 * scores + copies


def test_operators_of_later_models_apart():
    """Llama's additional bytes and kernels without fusion, at t = 1, b = 1; no scores are written."""
    h, kv, f = 4096, 1024, 14336
    transposes = (2 + 2) * (h + 2 * kv)  # query, key, value
    silu = (2 + 2) * f  # written and read once more, between the activation and the product
    # Half of the elements negated, both halves put together, times the sines, times the cosines, added; less the fused.
    rotary = ((2 + 2) // 2 + (2 + 2) + (2 + 2) + (2 + 2) + (2 + 2 + 2) - (2 + 2)) * (h + kv)
    work = apart(layer(LLAMA, 1, 1, scores=False))
    assert work.traffic_bytes == LLAMA.seq * (transposes + silu + rotary)
    assert work.kernels == 3 + 1 + 2 * (5 - 1)


@pytest.mark.parametrize("t", [1, 2, 8])
def test_activations_of_a_layer_are_the_tensors_that_its_backward_pass_reads(t):
    tokens, h, kv, f, a = LLAMA.seq, 4096, 1024, 14336, 32
    inputs_of_norms_and_linears = 2 * 2 * h + 2 * 2 * h
    sharded = 2 * (h + 2 * kv) + 2 * h + 2 * 2 * f + 2 * f  # queries, keys, values; context; gate and up; product
    flash = tokens * (inputs_of_norms_and_linears + (sharded + 4 * a) / t)
    assert layer_bytes(llama(t=t, p=1, **FLASH)).intermediate == flash
    softmax, copies = 2 * a * tokens**2, 2 * 2 * h * tokens
    expected = tokens * (inputs_of_norms_and_linears + sharded / t) + (softmax + copies) / t
    assert layer_bytes(llama(t=t, p=1)).intermediate == expected
    # inputs and output gradients of the four linears
    linears = tokens * (8 * h + 2 * (h + 2 * kv + h + 2 * f + f) / t)
    zero_bubble = llama(t=t, p=1, schedule="zb-h1")
    assert (
        deferred_bytes(zero_bubble, replace(SELENE, allocator_efficiency=1.0), 1, False, layer_bytes(zero_bubble))
        == linears
    )


def test_fused_attention_takes_less_time_and_memory_and_the_less_the_longer_the_sequence():
    gains = []
    for seq in (2048, 8192):
        model = replace(LLAMA, seq=seq)
        parallel = ParallelConfig(t=8, B=4, recompute="none")
        operators_, fused = (
            simulate(TrainingConfig(model, replace(parallel, attention=name)), SELENE) for name in ("operators", "sdpa")
        )
        stashed = [estimate.memory_bytes["stashed_activations"] for estimate in (operators_, fused)]
        assert stashed[0] > stashed[1]
        gains.append(operators_.iteration_time / fused.iteration_time)
    assert 1 < gains[0] < gains[1]
    kept = [layer_bytes(TrainingConfig(replace(LLAMA, seq=s), parallel)).intermediate / s for s in (2048, 8192)]
    assert kept[0] < kept[1]
    parallel = replace(parallel, attention="sdpa")
    kept = [layer_bytes(TrainingConfig(replace(LLAMA, seq=s), parallel)).intermediate / s for s in (2048, 8192)]
    assert kept[0] == kept[1]


def test_an_output_layer_of_its_own_is_on_the_last_stage_and_is_not_reduced_with_the_embedding():
    own, tied = llama(d=2), TrainingConfig(replace(LLAMA, tied_embeddings=True), llama(d=2).parallel)
    assert rank_elements(own) == rank_elements(tied)  # a tied table has two copies
    assert sum(rank_elements(own)) * 2 > formulas.parameters(LLAMA)  # t = 2, norms are on both ranks
    assert simulate(own, SELENE).traffic["embedding"] == 0 < simulate(tied, SELENE).traffic["embedding"]
    assert not any(call.group == "embedding" for rank in step_collectives(own) for call in rank)
    alone = TrainingConfig(LLAMA, ParallelConfig())
    assert rank_elements(alone) == [
        formulas.parameters(LLAMA)  # the vocabulary is a multiple of 128
    ]


def test_a_layer_has_six_parameters_and_two_all_reduces_each_way():
    assert len(layer_parameters(LLAMA, 0)) == 6
    assert len(layer(LLAMA, 1, 2).forward.all_reduce_bytes) == 2
    assert len(layer(LLAMA, 1, 2).backward.all_reduce_bytes) == 2


@given(
    st.sampled_from(["llama-2-7b", "llama-3-8b"]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 8]),
    st.sampled_from(["full", "none"]), st.sampled_from(["operators", "sdpa"]), st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=25)
def test_phases_add_up_and_bounds_hold(name, p, t, recompute, attention, fused):
    parallel = ParallelConfig(p=p, t=t, d=2, B=16, recompute=recompute, attention=attention, fused=fused)
    config = TrainingConfig(named(name), parallel)
    estimate = simulate(config, SELENE)
    assert sum(estimate.phase_times[phase] for phase in PHASES) == pytest.approx(estimate.iteration_time)
    assert least_time(config, CostModel(SELENE)) <= estimate.iteration_time
    assert peak_memory(config, CostModel(SELENE)) == estimate.peak_memory
    assert estimate.throughput_per_gpu < SELENE.peak_flops * SELENE.gemm_plateau * 4 / 3
