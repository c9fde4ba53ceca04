"""Selective recomputation by module: bytes that are no longer kept, work that runs again, one line for others."""

from dataclasses import replace

import pytest

from ptdp_core.config import ParallelConfig, TrainingConfig
from ptdp_core.engine.settings import Settings, check
from ptdp_core.layers.blocks import heads_of, layer_of
from ptdp_core.layers.techniques import RECOMPUTATION_BACKWARD, RECOMPUTATION_FORWARD, modules_of
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import layer_bytes
from tests.ptdp_core.blocks import llama

H100 = load_cluster("h100")
S, H, F = 4096, 2048, 8192
LLAMA = llama(4, H, 16, S, 32000, ffn_hidden=F)
MIXTURE = replace(LLAMA, experts=8, experts_per_token=2, expert_ffn_hidden=1024)
LATENT = replace(LLAMA, kv_heads=0, kv_latent=512, query_latent=1024, rotary_dim=64)


def configured(model=LLAMA, modules="", **parallel):
    how = {"recompute": "selective", "recompute_modules": modules} if modules else {"recompute": "none"}
    chosen = {"B": 8, "attention": "sdpa"} | how | parallel
    return TrainingConfig(model, ParallelConfig(**chosen))


@pytest.mark.parametrize(
    ("model", "modules", "saved"),
    [
        (LLAMA, "layernorm", 2 * 2 * H),  # what query-key-value and the MLP's first linear read
        (LLAMA, "mlp", 2 * 2 * F + 2 * F),  # gate and up, and their product
        (LLAMA, "mlp_act", 2 * F),  # the product: its two factors are kept, as by xFormers' fused SwiGLU
        (LLAMA, "layernorm,mlp", 2 * 2 * H + 2 * 2 * F + 2 * F),
        (LLAMA, "operators", 2 * 2 * H + 2 * F),
        (LLAMA, "core_attn", 0),  # fused attention keeps no scores
        (MIXTURE, "moe_act", 2 * 2 * 1024),
        (MIXTURE, "experts", 2 * (2 * 2 * 1024 + 2 * 1024)),  # what they receive is kept
        (MIXTURE, "moe", 2 * (2 * H + 2 * 2 * 1024 + 2 * 1024) + 4 * 8),
        (LATENT, "mla_up_proj", 2 * heads_of(LATENT).all + 2 * (1024 + 512)),
    ],
)
def test_a_recomputed_module_keeps_nothing_but_its_input(model, modules, saved):
    before, after = layer_bytes(configured(model)), layer_bytes(configured(model, modules))
    assert before.kept - after.kept == S * saved
    assert before.intermediate == after.intermediate


def test_with_written_scores_the_core_is_the_usual_choice():
    usual = TrainingConfig(LLAMA, ParallelConfig(B=8, recompute="selective"))
    named = configured(modules="core_attn", attention="operators")
    assert simulate(usual, H100) == simulate(named, H100)
    both = configured(modules="core_attn,mlp", attention="operators")
    assert layer_bytes(named).kept - layer_bytes(both).kept == S * (2 * 2 * F + 2 * F)


@pytest.mark.parametrize(
    ("model", "modules"), [(LLAMA, "mlp"), (LLAMA, "layernorm"), (MIXTURE, "moe_act"), (MIXTURE, "experts")]
)
def test_what_runs_again_is_the_module_s_forward_pass(model, modules):
    device = CostModel(replace(H100, host_per_call=0.0, expert_launch_time=0.0))
    (none,), (again,) = (device.stages(configured(model, each)) for each in ("", modules))
    work = modules_of(layer_of(configured(model)), (modules,)).forward
    seconds = sum(device.kernels.gemm(*gemm) for gemm in work.gemms)
    seconds += device.kernels.memory_bound(work.traffic_bytes, work.kernels)
    assert again.recompute == pytest.approx(4 * seconds)
    assert again._replace(recompute=0.0) == none
    slow = CostModel(replace(H100, host_per_call=1.0, expert_launch_time=0.0))
    (none,), (again,) = (slow.stages(configured(model, each)) for each in ("", modules))
    assert again.recompute == pytest.approx(4 * (work.calls + RECOMPUTATION_BACKWARD.calls))
    assert again.forward - none.forward == pytest.approx(4 * RECOMPUTATION_FORWARD.calls)


def test_local_experts_are_launched_again_where_their_products_are():
    busy = CostModel(replace(H100, host_per_call=0.0, expert_launch_time=1.0))
    none, again = (busy.stages(configured(MIXTURE, each))[0].recompute for each in ("", "experts"))
    assert again - none == pytest.approx(4 * 2 * MIXTURE.experts, rel=1e-3)


def test_collectives_of_a_recomputed_module_are_sent_again():
    """Of an MLP g forward, one of eight all-reduces more; of experts dispatch and combine."""
    none, mlp = (simulate(configured(modules=each, t=4), H100).traffic["tensor"] for each in ("", "mlp"))
    assert mlp * 4 == none * 5
    none, moe = (simulate(configured(MIXTURE, each, d=4, e=4), H100).traffic["experts"] for each in ("", "moe"))
    assert moe * 4 == none * 6
    assert simulate(configured(MIXTURE, "experts", d=4, e=4), H100).traffic["experts"] == none


@pytest.mark.parametrize("modules", ["mlp", "layernorm", "operators", "core_attn,mlp,layernorm"])
def test_time_and_memory_lie_between_nothing_and_everything(modules):
    none, some = (simulate(configured(modules=each, attention="operators", p=2), H100) for each in ("", modules))
    full = simulate(configured(recompute="full", attention="operators", p=2), H100)
    assert none.iteration_time < some.iteration_time < full.iteration_time
    assert none.peak_memory > some.peak_memory > full.peak_memory
    assert least_time(some.config, CostModel(H100)) <= some.iteration_time


def test_the_engine_recomputes_modules_too():
    check(Settings(LLAMA, configured(modules="core_attn,mlp", attention="operators").parallel))
