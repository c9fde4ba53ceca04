"""Offloading to the host's memory: bytes that leave the GPU, what hides the copies, one line for what cannot be."""

from dataclasses import replace

import pytest

from ptdp_core.config import OFFLOADED, ParallelConfig, TrainingConfig
from ptdp_core.layers.blocks import heads_of
from ptdp_core.layers.techniques import READ
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import layer_bytes
from ptdp_core.simulator.peak_memory import peak_memory
from tests.ptdp_core.simulator.test_recompute_modules import LATENT, LLAMA, MIXTURE, H, S

H100 = load_cluster("h100")


def configured(offload="", model=LLAMA, **parallel):
    chosen = {"B": 8, "attention": "sdpa", "recompute": "none", "offload": offload} | parallel
    return TrainingConfig(model, ParallelConfig(**chosen))


@pytest.mark.parametrize(
    ("model", "modules", "elements"),
    [
        (LLAMA, "attn_norm", H),
        (LLAMA, "qkv_linear", H),
        (LLAMA, "core_attn", H + 2 * 8 * 128 + 2 * 16),  # queries, keys and values, and fp32 sums of exponentials
        (LLAMA, "attn_proj", H),
        (LLAMA, "attn_norm,mlp_norm", 2 * H),
        (MIXTURE, "expert_fc1", 2 * H),
        (MIXTURE, "moe_act", 2 * 2 * 1024),
        (LATENT, "core_attn", heads_of(LATENT).all + 2 * 16),
    ],
)
def test_what_a_module_reads_leaves_the_gpu(model, modules, elements):
    before, after = layer_bytes(configured(model=model)), layer_bytes(configured(modules, model))
    assert after.moved == 2 * S * elements
    assert without_moved(after) == before
    twice = layer_bytes(configured(f"{modules},{modules}", model))
    assert twice == after


def without_moved(layer):
    """The layer's bytes without its moved ones: two layers' are on the GPU while a backward pass goes through it."""
    return layer._replace(moved=0, working=layer.working - 2 * layer.moved)


def test_whole_layers_leave_nothing_and_what_is_recomputed_need_not_move():
    for modules in ({}, {"recompute": "selective", "recompute_modules": "mlp,layernorm"}):
        layer = layer_bytes(configured("layers", MIXTURE if not modules else LLAMA, **modules))
        assert layer.moved == layer.kept > 0
    assert set(READ) == set(OFFLOADED) - {"optimizer"}


@pytest.mark.parametrize(("offload", "layers"), [("layers", 0), ("layers", 1), ("core_attn,mlp_norm", 2)])
def test_a_pass_waits_for_what_its_copies_take_longer(offload, layers):
    config = configured(offload, MIXTURE, offload_layers=layers)
    (none,) = CostModel(H100).stages(configured(model=MIXTURE))
    (fast,) = CostModel(replace(H100, host_bandwidth=1e15)).stages(config)
    assert fast._replace(moved=0.0) == none
    bandwidth = 1e6
    (slow,) = CostModel(replace(H100, host_bandwidth=bandwidth)).stages(config)
    copies = (layers or 4) * layer_bytes(config).moved / bandwidth
    assert slow.layers_forward == pytest.approx(copies)
    assert slow.layers_backward == pytest.approx(copies)
    again = replace(config, parallel=replace(config.parallel, recompute="selective", recompute_modules="moe"))
    (slow,) = CostModel(replace(H100, host_bandwidth=bandwidth)).stages(again)
    assert slow.recompute > 0
    assert slow.recompute + slow.layers_backward == pytest.approx((layers or 4) * layer_bytes(again).moved / bandwidth)


def test_memory_and_time_of_a_pipeline():
    kept, moved = (simulate(configured(offload, p=2, d=2), H100) for offload in ("", "layers"))
    assert moved.iteration_time >= kept.iteration_time
    assert moved.memory_bytes["stashed_activations"] == 0 < kept.memory_bytes["stashed_activations"]
    half = simulate(configured("layers", p=2, d=2, offload_layers=1), H100)
    assert half.memory_bytes["stashed_activations"] == pytest.approx(kept.memory_bytes["stashed_activations"] / 2)
    assert peak_memory(moved.config, CostModel(H100)) == moved.peak_memory < half.peak_memory < kept.peak_memory
    faster = simulate(moved.config, load_cluster("gb200"))
    assert faster.iteration_time < moved.iteration_time


@pytest.mark.parametrize(("schedule", "v"), [("gpipe", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-v", 2)])
def test_bounds_of_time_and_memory_hold_in_any_schedule(schedule, v):
    """Split passes keep what their linears read until W, which was brought back for I."""
    model = replace(MIXTURE, layers=8)
    kept, moved = (
        simulate(configured(offload, model, p=4, v=v, schedule=schedule, B=16), H100)
        for offload in ("", "core_attn,expert_fc1,moe_act,optimizer")
    )
    costs = CostModel(H100)
    assert least_time(moved.config, costs) <= moved.iteration_time
    assert kept.iteration_time <= moved.iteration_time
    assert peak_memory(moved.config, costs) == moved.peak_memory < kept.peak_memory


@pytest.mark.parametrize("how", [{"p": 2}, {"d": 4, "sharded_optimizer": True}, {"d": 4, "data_parallel": "zero3"}])
def test_the_optimizer_s_states_come_and_go_during_its_step(how):
    here, there = (simulate(configured(offload, **how), H100) for offload in ("", "optimizer"))
    states = here.memory_bytes["optimizer"]
    assert there.memory_bytes == here.memory_bytes | {"optimizer": 0}
    assert there.phase_times["optimizer"] == pytest.approx(states / H100.host_bandwidth, rel=0.01)
    quick = simulate(there.config, replace(H100, host_bandwidth=1e15))
    assert quick.phase_times == here.phase_times


def test_auto_recomputes_no_whole_layers_that_are_offloaded():
    config = configured("layers", recompute="auto")
    assert simulate(config, replace(H100, memory_bytes=6e9)).config.parallel.recompute == "none"
