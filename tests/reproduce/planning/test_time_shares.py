"""What an iteration's time goes to, against iterations in which it costs nothing: layers with and without experts."""

from dataclasses import replace

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import costs, load_cluster, simulate
from reproduce.planning.time_shares import time_shares

MIXTURE = {"layers": 32, "hidden": 2048, "heads": 16, "kv_heads": 8, "ffn_hidden": 5632}
MIXTURE |= {"vocab": 32000, "seq": 2048, "activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}
MIXTURE |= {"bias": False, "tied_embeddings": False, "experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 1024}
MIXTURE |= {"attention": "sdpa", "d": 8, "B": 16}
LAYOUTS = [{"e": 8}, {"e": 8, "recompute": "none"}, {"t": 2, "d": 4, "e": 4, "sequence_parallel": True, "etp": 1}]
LAYOUTS += [{"p": 2, "d": 4, "e": 4, "recompute": "none"}]
PASSES = ("forward", "recompute", "backward")


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("dense", [0, 5, 31, 32])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_layers_with_experts_exchange_tokens(dense, layout, overlapped, monkeypatch):
    h100 = load_cluster("h100")
    cluster, free = (replace(h100, software=replace(h100.software, overlapped_exchange=overlapped)) for _ in range(2))
    config = TrainingConfig.from_plain(MIXTURE | layout | {"dense_layers": dense})
    estimate = simulate(config, cluster)
    with monkeypatch.context() as patched:
        patched.setattr(costs, "expert_exchange", lambda gpu, config: 0.0)
        without = simulate(config, free)
    saved = sum(estimate.phase_times[name] - without.phase_times[name] for name in PASSES)
    shares = time_shares(estimate, cluster)
    assert shares["expert-parallel communication"] == pytest.approx(saved, rel=1e-6, abs=1e-9)
    assert (shares["expert-parallel communication"] > 0) == (dense < 32)
    assert sum(shares.values()) == pytest.approx(estimate.iteration_time)


@pytest.mark.parametrize("dense", [0, 31, 32])
def test_tensor_parallelism_of_a_mixture_is_what_it_would_cost_nothing_without(dense):
    cluster = replace(load_cluster("selene"), host_per_call=0.0)  # neither its program nor its host hides any of it
    config = TrainingConfig.from_plain(MIXTURE | {"t": 2, "d": 4, "dense_layers": dense})
    free = replace(cluster, nvlink_bandwidth_2=1e30, nvlink_latency_2=1e-30)
    estimate, without = simulate(config, cluster), simulate(config, free)
    names = (*PASSES, "embedding_and_logits")
    saved = sum(estimate.phase_times[name] - without.phase_times[name] for name in names)
    assert time_shares(estimate, cluster)["tensor-parallel communication"] == pytest.approx(saved, rel=1e-6)
