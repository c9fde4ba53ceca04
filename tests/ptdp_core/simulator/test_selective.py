"""Selective recomputation (Korthikanti et al. 2022): what it keeps, and what runs again, exactly."""

from dataclasses import replace

import pytest

from ptdp_core import formulas
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layers.techniques import RECOMPUTATION_BACKWARD, RECOMPUTATION_FORWARD
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import layer_bytes, stash_bytes, working_bytes
from ptdp_core.simulator.peak_memory import peak_memory
from tests.ptdp_core.blocks import apart, layer, part

SELENE = load_cluster("selene")
DEVICE = replace(SELENE, host_per_call=0.0)  # where only the GPU takes time
DENSE = replace(SELENE, allocator_efficiency=1.0)
# 22B, 175B, 530B and 1T of Korthikanti et al.: layers, h, heads, p, v, b, B
MODELS = [
    (48, 6144, 64, 1, 1, 4, 4),
    (96, 12288, 96, 8, 3, 1, 64),
    (105, 20480, 128, 35, 3, 1, 280),
    (128, 25600, 160, 64, 1, 1, 512),
]


def config(recompute, model=1, t=8, **parallel):
    layers, hidden, heads, p, v, b, B = MODELS[model]
    sizes = {"p": p, "t": t, "v": v, "b": b, "B": B, "recompute": recompute} | parallel
    return TrainingConfig(ModelConfig(layers, hidden, heads), ParallelConfig(**sizes))


@pytest.mark.parametrize("model", range(len(MODELS)))
@pytest.mark.parametrize("t", [1, 8])
def test_a_layer_keeps_what_the_formulas_say(model, t):
    """sbh(10 + 24/t + 5as/(ht)) bytes, selective sbh(10 + 24/t), full 2sbh (Korthikanti et al. 2022).

    With sequence parallelism selective keeps 34sbh/t.
    """
    _, h, a, _, _, b, _ = MODELS[model]
    s, sbh = 2048, 2048 * b * h
    kept = {
        name: stash_bytes(own := config(name, model, t), DENSE, 1, layer_bytes(own))
        for name in ("none", "selective", "full")
    }
    assert kept["none"] == pytest.approx(sbh * (10 + 24 / t + 5 * a * s / (h * t)), rel=1e-15)
    assert kept["selective"] == pytest.approx(sbh * (10 + 24 / t), rel=1e-15)
    assert kept["full"] == 2 * sbh
    both = config("selective", model, t, sequence_parallel=True)
    assert stash_bytes(both, DENSE, 1, layer_bytes(both)) == 34 * sbh / t


def test_the_core_being_recomputed_counts_while_it_is_there():
    """In the attention's backward pass: 5as/(ht) of the core, 2as/(ht) of a gradient of the scores, no MLP."""
    _, h, a, _, _, b, _ = MODELS[0]
    sbh, scores = 2048 * b * h, b * a * 2048**2 / 8
    attention = (5 + 2) * scores - (5 + 16 / 8) * sbh + 2 * 2 * sbh
    assert attention > (16 / 8 + 4) * sbh  # more than in the MLP
    assert working_bytes(config("selective", 0), False, layer_bytes(config("selective", 0))) == attention


def test_what_runs_again_is_the_attention_core():
    """Two GEMMs of 2bs^2h/t FLOPs each, softmax and dropout: 8 bytes of each of the bas^2/t scores."""
    core = part(layer(ModelConfig(*MODELS[1][:3]), 1, 8), "attention.core").forward
    assert sum(2 * m * n * k * batch for m, n, k, batch in core.gemms) == 4 * 2048**2 * 12288 // 8
    assert (core.traffic_bytes, core.kernels, core.all_reduce_bytes) == (8 * 96 * 2048**2 / 8, 2, ())
    model, layers = CostModel(DEVICE), 96 // (8 * 3)
    none, selective = (model.stages(config(name))[1] for name in ("none", "selective"))
    again = sum(model.kernels.gemm(*gemm) for gemm in core.gemms) + model.kernels.memory_bound(core.traffic_bytes, 2)
    assert selective.recompute == pytest.approx(layers * again, rel=1e-12)
    assert none == selective._replace(recompute=0.0)


def test_unfused_operators_run_again_unfused():
    model = CostModel(DEVICE)
    fused, unfused = (model.stages(config("selective", fused=on))[1].recompute for on in (True, False))
    more = model.kernels.memory_bound(33 * 96 * 2048**2 / 8, 4)  # to fp32, scale, mask, softmax, to fp16
    assert unfused - fused == pytest.approx(4 * more, rel=1e-9)
    whole = layer(config("none").model, 1, 8)
    assert part(whole, "attention.core").unfused[0].kernels < apart(whole).kernels


def test_where_the_host_is_the_limit_its_calls_count():
    """The host issues the core's calls and the checkpoint function's, in the midst of the layer's backward pass."""
    slow = CostModel(replace(SELENE, host_per_call=1.0))
    core = part(layer(config("none").model, 1, 8), "attention.core").forward
    again = core.calls + RECOMPUTATION_BACKWARD.calls
    none, selective = (slow.stages(config(name))[1] for name in ("none", "selective"))
    assert selective.recompute == pytest.approx(4 * again)
    assert selective.forward - none.forward == pytest.approx(4 * RECOMPUTATION_FORWARD.calls)


@pytest.mark.parametrize("model", range(len(MODELS)))
def test_time_memory_and_traffic_lie_where_they_should(model):
    none, selective, full = (simulate(config(name, model), SELENE) for name in ("none", "selective", "full"))
    assert none.iteration_time < selective.iteration_time < full.iteration_time
    assert none.peak_memory > selective.peak_memory > full.peak_memory
    assert selective.traffic == none.traffic
    assert peak_memory(selective.config, CostModel(SELENE)) == selective.peak_memory
    assert least_time(selective.config, CostModel(SELENE)) <= selective.iteration_time


def test_flops_of_the_model_and_of_the_hardware():
    model, B = ModelConfig(*MODELS[1][:3]), 64
    executed = {name: formulas.hardware_flops_per_iteration(model, B, name) for name in ("none", "selective", "full")}
    assert executed["none"] == formulas.model_flops_per_iteration(model, B)
    assert executed["full"] == formulas.flops_per_iteration(model, B)
    assert executed["selective"] - executed["none"] == 96 * 4 * B * 2048**2 * 12288
