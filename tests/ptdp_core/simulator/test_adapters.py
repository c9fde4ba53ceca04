"""Adapters (LoRA) in the simulator: what is trained, and what frozen weights no longer cost."""

from dataclasses import replace

import pytest

from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import layer_of
from ptdp_core.layout import step_collectives
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import cost_model
from tests.ptdp_core.blocks import KEPT, configuring, llama

H100 = load_cluster("h100")
LLAMA = llama(32, 4096, 32, 4096, 128256, ffn_hidden=14336)

configured = configuring(LLAMA, B=8, lora_rank=16, **KEPT)
LAYER = 4096 * (6144 + 4096 + 3 * 14336) + 2 * 4096  # elements


def products(config, backward):
    layer = layer_of(config)
    work = layer.backward if backward else layer.forward
    return sum(2 * m * n * k * count for m, n, k, count in work.gemms)


def test_no_weight_s_gradient_is_computed_but_the_adapters():
    tokens, r = LLAMA.seq, 16
    linears = ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096))
    adapters = sum(2 * tokens * r * (inputs + outputs) for inputs, outputs in linears)
    frozen = sum(2 * tokens * inputs * outputs for inputs, outputs in linears)
    assert products(configured(), False) == frozen + adapters
    assert products(configured(), True) == frozen + 2 * adapters
    assert products(configured(lora_rank=0), True) == 2 * frozen


def test_states_are_the_adapters_and_the_weights_stay():
    whole, few = (simulate(configured(lora_rank=r, d=2), H100) for r in (0, 16))
    assert few.memory_bytes["weights"] == whole.memory_bytes["weights"]
    share = 16 * (4096 + 6144 + 8192 + 4096 + 28672 + 14336 + 4096) / (4096 * (6144 + 4096 + 3 * 14336) + 2 * 4096)
    for states in ("gradients", "optimizer"):
        assert few.memory_bytes[states] == pytest.approx(share * whole.memory_bytes[states], rel=1e-6)
    assert few.phase_times["data_parallel"] < 0.02 * whole.phase_times["data_parallel"]
    assert 0.6 < few.iteration_time / whole.iteration_time < 0.85
    bytes_sent = [result.traffic["data"] for result in (whole, few)]
    assert bytes_sent[1] == pytest.approx(share * bytes_sent[0], rel=1e-6)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_frozen_norms_and_tied_embeddings_are_not_reduced(sequence_parallel):
    model = replace(LLAMA, tied_embeddings=True)
    sizes = {"t": 2, "p": 2, "d": 2, "sequence_parallel": sequence_parallel}
    groups = [
        {call.group for rank in step_collectives(configured(model, lora_rank=r, **sizes)) for call in rank}
        for r in (0, 16)
    ]
    assert groups == [{"dp", "embedding", *(["tp"] if sequence_parallel else [])}, {"dp"}]


@pytest.mark.parametrize("recipe", ["tensorwise", "mxfp8"])
def test_adapters_are_trained_and_reduced_with_fp8_as_without(recipe):
    usual, narrow = (simulate(configured(d=2, fp8_recipe=each), H100) for each in ("none", recipe))
    assert narrow.memory_bytes["optimizer"] == usual.memory_bytes["optimizer"] > 0
    assert narrow.traffic["data"] == usual.traffic["data"] > 0


def test_experts_and_the_output_are_frozen_without_adapters():
    model = replace(LLAMA, experts=8, experts_per_token=2, expert_ffn_hidden=14336)
    whole, few = (simulate(configured(model, lora_rank=r, e=2, d=2), H100) for r in (0, 8))
    assert few.iteration_time < 0.8 * whole.iteration_time
    assert few.memory_bytes["optimizer"] < 0.01 * whole.memory_bytes["optimizer"]


def test_fsdp_shards_frozen_weights_and_reduces_adapters_alone():
    """A layer's weights are gathered twice, in 16 bits; of gradients only the adapters' are there, and sent."""
    whole, few = (simulate(configured(lora_rank=r, d=8, data_parallel="zero3"), H100) for r in (0, 16))
    parameters, layer = LLAMA.layers * LAYER + 2 * LLAMA.vocab * 4096 + 4096, LAYER
    share = 16 * (4096 + 6144 + 8192 + 4096 + 28672 + 14336 + 4096) / layer
    assert few.memory_bytes["weights"] == pytest.approx(2 * parameters / 8 + 2 * 2 * layer, rel=0.01)
    assert few.memory_bytes["optimizer"] == pytest.approx(8 * share * parameters / 8, rel=1e-3)
    assert few.traffic["data"] / whole.traffic["data"] == pytest.approx(2 * 2 / (2 * 2 + 4), rel=0.02)
    assert few.phase_times["data_parallel"] < whole.phase_times["data_parallel"]
    replicas = simulate(configured(d=8, data_parallel="zero2", sharded_optimizer=True), H100)
    assert few.peak_memory < replicas.peak_memory
    assert replicas.iteration_time < few.iteration_time


def test_the_paper_s_zero_3_has_no_adapters():
    with pytest.raises(
        ConfigurationError, match="lora_rank=16 with data_parallel='zero3' of the paper's program; needs"
    ):
        simulate(configured(d=8, data_parallel="zero3"), load_cluster("selene"))


@pytest.mark.parametrize("changes", [{}, {"sharded_optimizer": True}, {"p": 2}, {"t": 2, "sequence_parallel": True}])
def test_no_iteration_is_faster_than_its_bound(changes):
    """Neither reduces, nor steps, nor gathers what is frozen."""
    config = configured(**{"d": 8, "B": 16} | changes)
    assert least_time(config, cost_model(H100, config.parallel.n)) <= simulate(config, H100).iteration_time
