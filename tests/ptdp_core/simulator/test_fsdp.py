"""ZeRO-3 as PyTorch's FSDP runs it, beside the one of Section 5.2."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig, padded_vocab
from ptdp_core.layout import rank_elements, rank_sizes
from ptdp_core.simulator import simulate
from ptdp_core.simulator.cluster import load_cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.software import Software
from ptdp_core.simulator.step import gradient_reduction
from ptdp_core.simulator.zero3 import sharded_stages

H100 = load_cluster("h100")
FSDP = Software(fp32_gradients=True, fused_cross_entropy=True, fsdp=True)


def config(d=8, m=1, **parallel):
    sizes = {"p": 1, "t": 1, "b": 2, "B": 2 * d * m, "attention": "sdpa", "recompute": "none"} | parallel
    return TrainingConfig(ModelConfig(40, 5120, 40), ParallelConfig(d=d, data_parallel="zero3", **sizes))


def communication(config, software):
    return simulate(config, H100, software).phase_times["data_parallel"]


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_microbatch_gathers_twice_and_reduces_once_in_fp32(m, recompute):
    run = config(m=m, recompute=recompute)
    sent = simulate(run, H100, FSDP).traffic["data"]
    assert sent == round(m * (2 * 2 + 4) * rank_elements(run)[0] * 7 / 8)


def test_gathering_late_costs_what_prefetching_hides():
    run, late = config(), replace(FSDP, backward_post=True)
    assert communication(run, late) > 1.5 * communication(run, FSDP)
    bytes_in_turn = (2 + 4) * rank_elements(run)[0] * 7 / 8
    assert communication(run, late) > bytes_in_turn / H100.nvlink_bandwidth_8


def test_communication_grows_with_microbatches_and_with_nodes():
    late = replace(FSDP, backward_post=True)
    assert communication(config(m=4), late) == pytest.approx(4 * communication(config(), late))
    times = [communication(config(d=d), late) for d in (8, 64, 512)]
    assert times == sorted(times)


def test_tensor_parallelism_divides_what_is_gathered_and_what_is_kept():
    shared = config(t=8, sequence_parallel=True)
    (held,) = rank_elements(shared)
    assert held < rank_elements(config())[0] / 7.9
    estimate = simulate(shared, H100, FSDP)
    assert estimate.traffic["data"] == round(8 * held * 7 / 8)
    assert estimate.memory_bytes["gradients"] + estimate.memory_bytes["optimizer"] == pytest.approx(12 * held / 8)


def test_hybrid_sharding_gathers_inside_of_nodes_and_reduces_across():
    """Two nodes of 8: each has a copy of the states, whose gradients are all-reduced once, an eighth by each GPU."""
    whole, hybrid = config(d=16), config(d=16, zero3_shards=8)
    two, one = simulate(whole, H100, FSDP), simulate(hybrid, H100, FSDP)
    assert one.memory_bytes["optimizer"] == pytest.approx(2 * two.memory_bytes["optimizer"], rel=1e-6)
    late = replace(FSDP, backward_post=True)
    inside = communication(config(d=8), late)
    across = gradient_reduction(CostModel(H100, late), hybrid, rank_elements(hybrid)[0], 0.0)
    assert across > 0
    assert communication(hybrid, late) == pytest.approx(inside + across, rel=1e-9)


def test_a_rank_without_a_layer_gathers_nothing():
    without = config(m=3, p=3, pipeline_layout="E|t*20|t*20L")
    stages = sharded_stages(without, CostModel(H100, FSDP))
    assert [stage.sharding_forward > 0 for stage in stages] == [False, True, True]


def test_experts_are_sharded_over_those_that_hold_the_same():
    """Of 8 experts each GPU has one: nothing of it is gathered, and its states are not sharded."""
    model = ModelConfig(4, 1024, 16, experts=8, experts_per_token=2)
    run = TrainingConfig(model, ParallelConfig(d=8, e=8, B=8, data_parallel="zero3", recompute="none"))
    (held,), (of_experts,) = rank_elements(run), [sizes.experts for sizes in rank_sizes(run)]
    estimate = simulate(run, H100, FSDP)
    assert estimate.traffic["data"] == round(8 * (held - of_experts) * 7 / 8)
    assert estimate.memory_bytes["gradients"] == round(4 * ((held - of_experts) / 8 + of_experts))


def test_a_pipeline_gathers_the_layers_of_each_stage_for_every_microbatch():
    staged = config(d=4, m=8, p=2)
    assert simulate(staged, H100, FSDP).traffic["data"] == round(8 * 8 * max(rank_elements(staged)) * 3 / 4)


def test_a_fused_loss_keeps_six_bytes_a_logit_less():
    run = TrainingConfig(ModelConfig(2, 1024, 16, vocab=512000), config().parallel)
    plain, fused = (
        simulate(run, H100, replace(FSDP, fused_cross_entropy=on)).memory_bytes["working_activations"]
        for on in (False, True)
    )
    assert plain - fused == 6 * 2 * run.model.seq * padded_vocab(run.model.vocab, run.parallel.t)
