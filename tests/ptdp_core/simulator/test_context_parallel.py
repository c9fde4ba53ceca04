"""Context parallelism: exactly what it changes in work, time, memory and bytes; nothing with one context rank."""

from dataclasses import replace

import pytest

from ptdp_core.layers.attention import Context
from ptdp_core.layers.blocks import heads_of
from ptdp_core.layout import rank_elements, stage_passes
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import exchanged_bytes, layer_bytes
from ptdp_core.simulator.network import Group, NetworkModel, group_of
from ptdp_core.simulator.waits import context_waits
from tests.ptdp_core.blocks import KEPT, configuring, layer, llama

H100 = load_cluster("h100")
EXCHANGES = ("all_gather", "ring", "all_to_all")
MODEL = llama(32, 4096, 32, 32768, 128256, ffn_hidden=14336)

configured = configuring(MODEL, d=2, B=16, sharded_optimizer=True, **KEPT)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_with_one_context_rank_the_exchange_changes_nothing(exchange):
    plain, named = configured(), configured(context_exchange=exchange)
    assert replace(simulate(named, H100), config=plain) == simulate(plain, H100)
    assert configured(c=1).to_plain() == plain.to_plain()


@pytest.mark.parametrize("c", [2, 4, 8])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_attention_and_linears_are_1_over_c_of_a_whole_sequence_s(exchange, c):
    """Of fused attention the products under the causal mask, which the first and the last chunk balance."""
    config = configured(c=c, context_exchange=exchange)
    whole = layer(MODEL, 1, 1, scores=False).forward
    part = layer(config.local_model, 1, 1, scores=False, context=Context(c, exchange)).forward
    assert sum(each.flops for each in part.attention) * c == sum(each.flops for each in whole.attention)
    assert [(m * c, n, k) for m, n, k, _ in part.gemms] == [(m, n, k) for m, n, k, _ in whole.gemms]


@pytest.mark.parametrize("c", [2, 4])
def test_written_scores_are_those_of_a_rank_s_chunks(c):
    """Counted query by query: each chunk of queries has all keys up to its own end, on every rank as many scores."""
    s, chunk = 64, 64 // (2 * c)
    by_rank = [sum((number + 1) * chunk * chunk for number in (rank, 2 * c - 1 - rank)) for rank in range(c)]
    assert {sum(q * k for q, k in Context(c, "all_gather").blocks(s // c))} == set(by_rank)
    assert Context(c, "all_to_all").blocks(s // c) == ((s, s),)
    seen = sum(q * k for q, k in Context(c, "ring").blocks(s // c))
    assert seen == (s // c) ** 2 + (c - 1) * (s // c) ** 2 // 2  # its own, then half of each other's


@pytest.mark.parametrize(("t", "c", "nodes"), [(2, 4, 1), (1, 8, 1), (4, 4, 2), (8, 2, 2), (1, 16, 2)])
def test_the_exchange_stays_in_a_node_as_long_as_t_times_c_gpus_fit_there(t, c, nodes):
    assert group_of(c, H100.gpus_per_node, t).nodes == nodes


def test_gathered_keys_and_values_take_one_gather_forward_and_a_gather_and_a_scatter_backward():
    config, network = configured(c=4), NetworkModel(H100)
    whole = 2 * MODEL.seq * 2 * MODEL.query_groups * MODEL.head_size  # bytes of all keys and values
    one = network.one_way(group_of(4, H100.gpus_per_node, 1), whole)
    assert context_waits(CostModel(H100), config) == pytest.approx((one, 2 * one, 0.0))
    recomputed = configured(c=4, recompute="full")
    assert context_waits(CostModel(H100), recomputed) == context_waits(CostModel(H100), config)


def test_around_a_ring_messages_hide_under_attention_as_long_as_it_lasts():
    c = 4
    config = configured(c=c, context_exchange="ring", recompute="full")
    whole = layer(config.local_model, 1, 1, scores=False, context=Context(c, "ring")).forward
    model, slow = CostModel(H100), CostModel(replace(H100, nvlink_p2p_bandwidth=1e9))
    attends = sum(model.kernels.attention(*each) for each in whole.attention) / c
    step = 2 * 2 * config.local_model.seq * MODEL.query_groups * MODEL.head_size / 1e9
    assert context_waits(model, config) == (0, 0, 0)
    assert step > attends
    forward, backward, again = context_waits(slow, config)
    assert forward == again == pytest.approx((c - 1) * (step - attends))
    assert forward < backward < 2 * (c - 1) * step  # with the gradients' messages, under a longer pass


def test_an_all_to_all_sends_all_but_a_rank_s_own_part():
    network, size = NetworkModel(H100), 1 << 30
    inside = network.all_to_all(Group(8, 8), size)
    assert inside == pytest.approx(7 / 8 * size / H100.nvlink_bandwidth_8 + H100.nvlink_latency_8 / 2)
    assert network.all_to_all(Group(8, 1), size) > inside
    assert network.all_to_all(Group(1, 1), size) == 0


def test_activations_are_1_over_c_and_optimizer_states_1_over_dc():
    alone, shared = configured(), configured(c=4)
    assert layer_bytes(alone).input == 4 * layer_bytes(shared).input
    assert layer_bytes(alone).intermediate == 4 * layer_bytes(shared).intermediate
    states = simulate(alone, H100).memory_bytes, simulate(shared, H100).memory_bytes
    assert states[0]["weights"] == states[1]["weights"]
    assert states[0]["optimizer"] == 4 * states[1]["optimizer"]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_the_exchange_s_memory_is_that_of_its_tensors(exchange):
    config = configured(c=4, t=2, context_exchange=exchange)
    kv = 2 * 2 * MODEL.seq * MODEL.query_groups * MODEL.head_size // 2  # bytes of all keys and values on a tensor rank
    own = 2 * MODEL.seq // 4 * (heads_of(MODEL).all + MODEL.hidden) // 2
    assert exchanged_bytes(config) == {"all_gather": 2 * kv, "ring": kv, "all_to_all": 2 * own}[exchange]


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_traffic_is_that_of_the_layout_s_collectives(exchange, recompute):
    config = configured(c=4, p=2, context_exchange=exchange, recompute=recompute)
    passes = stage_passes(config, 0)
    calls = [call for part in passes for call in part if call.group == "cp"]
    traffic = simulate(config, H100).traffic
    assert traffic["context"] == 2 * config.parallel.m * sum(call.sent(4) for call in calls)
    elements = rank_elements(config)
    assert traffic["data"] == round(max(elements) * 7 / 8 * (2 + 4 if H100.gradient_bytes == 4 else 4))
    assert "context" not in simulate(configured(p=2), H100).traffic


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("parallel", [{"c": 2, "p": 2}, {"c": 4, "t": 2, "sequence_parallel": True}, {"c": 8, "v": 1}])
def test_the_bound_of_a_search_is_below_the_simulated_time(exchange, parallel):
    config = configured(context_exchange=exchange, **parallel)
    least, time = least_time(config, CostModel(H100)), simulate(config, H100).iteration_time
    assert 0.8 * time < least <= time


def test_sequences_too_long_for_a_gpu_fit_when_they_are_shared():
    alone, shared = (simulate(configured(d=16 // c, c=c), H100) for c in (1, 8))
    assert not alone.fits
    assert shared.fits
