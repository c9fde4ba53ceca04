"""State-space layers, layers by a pattern and experts behind a latent: by hand, and beside the recurrence itself."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ptdp_core import formulas
from ptdp_core.config import ModelConfig
from ptdp_core.layers.blocks import LayerRun, block, layer_of
from ptdp_core.layers.kinds import GpuShare
from ptdp_core.layers.state_space import CHUNK, States, scan
from ptdp_core.layout import rank_elements
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import layer_bytes
from ptdp_core.simulator.network import group_of
from reproduce.planning.models import find, named
from reproduce.planning.space import TrainingJob, grids
from reproduce.planning.time_shares import time_shares
from tests.ptdp_core.blocks import KEPT, configuring

H100 = load_cluster("h100")
SIZES = {"norm": "rmsnorm", "positions": "none", "tied_embeddings": False, "bias": False}
PLAIN = ModelConfig(8, 512, 8, 1024, 8192, **SIZES)
HYBRID = replace(PLAIN, layer_pattern="M-M*", mamba_heads=16)
LATENT = replace(
    PLAIN, layer_pattern="ME*E", mamba_heads=16, experts=16, experts_per_token=2, expert_ffn_hidden=256, mtp_layers=1
)
STATES = States(heads=16, head=64, groups=8, state=128)

configured = configuring(B=8, **KEPT)


def flops(gemms):
    return sum(2 * m * n * k * batch for m, n, k, batch in gemms)


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    # The technical reports (arXiv:2512.20848 and NVIDIA's of Super and Ultra, without the layer of multi-token
    # prediction; arXiv:2504.03624); active ones with the embedding.
    [("nano", 31.6, 3.6), ("super", 120.6, 12.7), ("ultra", 550, 55), ("nemotron-h-8b", 8.1, 8.1)],
)
def test_hybrid_models_have_the_parameters_of_their_reports(name, billions, active):
    model = replace(named(name if "-" in name else f"nemotron-3-{name}"), mtp_layers=0)
    assert formulas.parameters(model) / 1e9 == pytest.approx(billions, rel=0.005)
    assert formulas.active_parameters(model) / 1e9 == pytest.approx(active, rel=0.02)


def test_the_scan_is_the_recurrence_and_its_products_are_those_that_are_counted():
    """In chunks, with one product where `scan` has one, against the recurrence token by token."""
    rng, tokens = np.random.default_rng(0), 3 * CHUNK
    H, P, G, N = 4, 6, 2, 5
    x, B, C = (rng.normal(size=size) for size in ((tokens, H, P), (tokens, G, N), (tokens, G, N)))
    decay = -rng.uniform(0.01, 0.3, size=(tokens, H))
    state, expected = np.zeros((H, N, P)), np.zeros_like(x)
    for i in range(tokens):
        for h in range(H):
            state[h] = np.exp(decay[i, h]) * state[h] + np.outer(B[i, h // 2], x[i, h])
            expected[i, h] = C[i, h // 2] @ state[h]

    counted = 0

    def product(a, b):
        nonlocal counted
        counted += 2 * a.shape[0] * b.shape[1] * a.shape[1]
        return a @ b

    state, found = np.zeros((H, N, P)), np.zeros_like(x)
    for first in range(0, tokens, CHUNK):
        part = slice(first, first + CHUNK)
        scores = [product(C[part, g], B[part, g].T) for g in range(G)]
        for h in range(H):
            sums = np.cumsum(decay[part, h])
            mask = np.tril(np.exp(np.minimum(0, sums[:, None] - sums[None, :])))
            inside = product(scores[h // 2] * mask, x[part, h])
            found[part, h] = inside + product(np.exp(sums)[:, None] * C[part, h // 2], state[h])
            new = product(B[part, h // 2].T, np.exp(sums[-1] - sums)[:, None] * x[part, h])
            state[h] = np.exp(sums[-1]) * state[h] + new
    assert found == pytest.approx(expected, abs=1e-9)
    small = States(H, P, G, N)
    assert counted == flops(scan(GpuShare(tokens, 1), small).forward.gemms) == small.scan_flops(tokens)


def test_the_backward_scan_has_two_products_for_each_forward_one_and_computes_scores_and_states_again():
    """But scores, which a product of matrices makes of C and B for a group, are needed by two gradients of a head."""
    part, Q, N, P = scan(GpuShare(1024, 2), STATES), CHUNK, 128, 64
    chunks = 2 * 1024 // CHUNK
    again = chunks * (8 * Q * Q * N + 16 * N * P * Q)
    by_head, by_group = 16 * (4 * Q * N * P + 2 * Q * Q * P), 8 * 2 * Q * Q * N
    assert flops(part.backward.gemms) == 2 * (again + chunks * (by_head + by_group))
    assert part.weights.gemms == ()


@pytest.mark.parametrize("t", [1, 2, 8])
def test_tensor_ranks_share_heads_and_groups_and_all_that_is_kept(t):
    one, shared = (layer_of(configured(HYBRID, t=ranks), HYBRID.layer_kind(0)) for ranks in (1, t))
    assert flops(shared.forward.gemms) * t == flops(one.forward.gemms)
    tokens, inner, projected = 1024, 16 * 64, 2 * 16 * 64 + 2 * 8 * 128 + 16
    # norm's input and output, then the first linear's output, the scan's result and the gated norm's
    assert shared.kept_bytes == 2 * tokens * (2 * 512 + (projected + 2 * inner) / t)
    names = {item.name: item.elements for item in one.parameters}
    assert names["mamba.convolution.weight"] == 4 * (inner + 2 * 8 * 128)
    assert sum(rank_elements(configured(HYBRID, p=2))) == formulas.parameters(HYBRID)
    assert [call.operation for call in shared.collectives.forward] == ["all_reduce"] * (t > 1)


def test_attention_and_an_mlp_by_themselves_add_up_to_a_layer_of_both():
    model, run = replace(PLAIN, layer_pattern="*-d"), LayerRun.of(configured(PLAIN, t=2).parallel)
    attention, mlp, both = (block(model, run, model.layer_kind(layer)) for layer in range(3))
    assert attention.parts + mlp.parts == both.parts
    assert both == layer_of(configured(PLAIN, t=2))


@pytest.mark.parametrize(
    "layout",
    [{}, {"p": 2, "t": 2}, {"d": 2, "sharded_optimizer": True}, {"c": 2, "t": 2}, {"d": 4, "data_parallel": "zero3"}],
)
def test_a_pattern_of_whole_layers_is_the_model_without_it(layout):
    plain, pattern = (
        simulate(configured(model, **layout), H100) for model in (PLAIN, replace(PLAIN, layer_pattern="d"))
    )
    assert plain.iteration_time == pattern.iteration_time
    assert plain.memory_bytes == pattern.memory_bytes
    assert plain.traffic == pattern.traffic


def test_stages_have_the_layers_of_the_pattern():
    costs, config = CostModel(H100), configured(HYBRID, p=4)
    mamba, mlp, attention = (costs._layer(config, HYBRID.layer_kind(layer)) for layer in (0, 1, 3))
    stages = costs.stages(config)
    for stage in (1, 2):  # layers 2 and 3, M and *; 4 and 5, M and -
        other = (attention, mlp)[stage - 1]
        assert stages[stage].layers_forward == pytest.approx(mamba.layers_forward + other.layers_forward)
    estimate = simulate(config, H100)
    assert least_time(config, costs) <= estimate.iteration_time
    assert sum(time_shares(estimate, H100).values()) == pytest.approx(estimate.iteration_time)


def test_a_pattern_s_layers_keep_what_they_keep_in_the_mean():
    config = configured(HYBRID)
    kept = [layer_of(config, HYBRID.layer_kind(layer)).kept_bytes for layer in range(8)]
    assert layer_bytes(config).kept == round(sum(kept) / 8)


def test_experts_behind_a_latent_exchange_and_compute_that():
    latent = replace(LATENT, expert_latent=128)
    plain, behind = (layer_of(configured(model, d=4, e=4), model.usual_kind) for model in (LATENT, latent))
    sizes = [[call.elements for call in layer.collectives.forward] for layer in (plain, behind)]
    assert sizes[1] == [size // 4 for size in sizes[0]]
    fewer = 16 * 2 * 256 * (512 - 128) - 2 * 512 * 128
    assert formulas.parameters(LATENT) - formulas.parameters(latent) == 5 * fewer  # four layers and that of MTP
    assert simulate(configured(latent, d=4, e=4), H100).iteration_time > 0


def test_a_state_space_layer_with_an_mlp_is_both_alone_one_after_the_other():
    together, apart = replace(HYBRID, layers=2, layer_pattern="md"), replace(HYBRID, layers=4, layer_pattern="M-*-")
    assert formulas.parameters(together) == formulas.parameters(apart)
    one, other = (simulate(configured(model), H100) for model in (together, apart))
    assert one.iteration_time == pytest.approx(other.iteration_time, rel=0.02)


def test_a_config_json_of_nemotron_h_is_read_whichever_way_it_names_its_layers(tmp_path):
    keys = {
        "model_type": "nemotron_h",
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "intermediate_size": 1024,
        "vocab_size": 8192,
        "mamba_num_heads": 16,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        "chunk_size": 128,
        "mlp_hidden_act": "relu2",
        "use_conv_bias": True,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(keys | {"hybrid_override_pattern": "M-*-"}))
    known = find(str(path))
    assert (known.model.layer_pattern, known.missing) == ("M-*-", ())
    path.write_text(json.dumps(keys | {"layers_block_type": ["mamba", "mlp", "attention", "mlp"], "chunk_size": 256}))
    other = find(str(path))
    assert other.model == known.model
    assert other.unmodelled() == "chunk_size=256 (counted as 128)"


def test_plan_tries_what_a_model_with_state_space_layers_can_be():
    """Long sequences are not shared, and tensor ranks share its groups out: every layout that is tried is legal."""
    long = replace(HYBRID, seq=32768, kv_heads=8, heads=8, mamba_groups=4)
    tried = grids(TrainingJob(long, 64, 64), 8)
    assert {t for _, t, _, _ in tried} == {1, 2, 4}
    assert {c for _, _, c, _ in tried} == {1}
    assert {c for _, _, c, _ in grids(TrainingJob(replace(long, layer_pattern=""), 64, 64), 8)} > {1}
    for p, t, c, d in tried:
        assert configured(long, p=p, t=t, c=c, d=d, B=64).parallel.n == 64


def test_a_scan_is_as_slow_as_its_efficiency_says_and_nothing_else_is():
    """By hand: at a quarter of the speed, three times the scan's and the convolution's own time come on top."""
    config = configured(replace(HYBRID, hidden=4096, heads=32, mamba_heads=128, seq=8192))
    whole, slow = (CostModel(replace(H100, host_per_call=0.0, scan_efficiency=share)) for share in (1.0, 0.25))
    for kind in config.model.layer_kinds:
        parts = layer_of(config, kind).parts
        works = [part for part in parts if part.name in ("mamba.scan", "mamba.convolution")]
        before, after = (model._layer(config, kind) for model in (whole, slow))
        for passed, own in (("forward", "layers_forward"), ("backward", "layers_backward")):
            seconds = sum(whole.seconds(getattr(work, passed), group_of(1, 8)) for work in works)
            assert getattr(after, own) - getattr(before, own) == pytest.approx(3 * seconds)
        assert (after == before) == (kind.mixer != "mamba")
