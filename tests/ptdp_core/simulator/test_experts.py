"""Experts in the simulator: products, bytes sent, memory and time against counts made another way."""

from dataclasses import replace
from itertools import pairwise

import pytest

from ptdp_core.formulas import attention_core_flops, layer_forward_flops
from ptdp_core.layers.blocks import heads_of, layer_of
from ptdp_core.layers.parts import total
from ptdp_core.layout import rank_elements, rank_sizes
from ptdp_core.schedules import build
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import family_least_memory, family_least_time, least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.kernels import slowest_of
from ptdp_core.simulator.memory import deferred_bytes, layer_bytes
from ptdp_core.simulator.stage_times import StageTimes, hidden_in_pair
from ptdp_core.simulator.step import gradient_reduction, weight_gather
from ptdp_core.simulator.waits import expert_exchange
from tests.ptdp_core.blocks import KEPT, configuring, llama, part

H100 = load_cluster("h100")
MODEL = llama(*(4, 2048, 16, 4096, 32000), ffn_hidden=4096, experts=32, experts_per_token=4, expert_ffn_hidden=1024)
SHARED = replace(MODEL, shared_expert_ffn_hidden=2048)
EXPERT = 3 * 2048 * 1024  # elements: gate, up and down

configured = configuring(MODEL, d=8, B=64, sharded_optimizer=True, **KEPT)


def experts_of(config):
    """The parts of a layer between router and combine."""
    names = "router", "dispatch", "experts.up", "experts.activation", "experts.down", "combine"
    return [part(layer_of(config), f"mlp.{name}") for name in names]


def kept(config):
    return sum(each.inside + each.output for each in experts_of(config))


def flops(work):
    return sum(2 * m * n * k * count for m, n, k, count in work.gemms)


@pytest.mark.parametrize("model", [MODEL, SHARED])
@pytest.mark.parametrize("e", [1, 4, 8, 32])
def test_a_layer_s_products_are_those_of_the_weights_that_a_token_goes_through(model, e):
    """Wherever the experts are; the backward pass has twice the products of the forward pass."""
    config = configured(model, d=32, e=e)
    forward, backward = layer_of(config).forward, layer_of(config).backward
    assert flops(forward) == layer_forward_flops(model, 1) - attention_core_flops(model, 1)
    assert flops(backward) == 2 * flops(forward)


def test_unfused_experts_move_what_their_operators_read_and_write() -> None:
    """Bytes of an element that each operator of torchtitan's modules reads and writes, less what one kernel moves."""
    config, tokens, sent, h, width = configured(e=8, B=8), 4096, 4 * 4096, 2048, 1024
    rows = experts_of(config)[1].output / (2 * h)
    cast, back, weighted, added = (2, 4), (4, 2), (4, 4), (2 + 2, 2)
    forward = {
        "dispatch": rows * h * sum((2, 2)),  # received rows and a row of zeros put together
        "experts.activation": rows * width * (sum((2, 2)) + sum((4, 2)) - sum((4, 2))),  # silu, product; both in one
        "combine": sent * h * (sum((*cast, *weighted, *back, *added)) - 2) + tokens * h * sum((2, 2)),
    }
    of_both = (4 + 4, 4), (4, 0)  # the gradient of a row's weight: a product with the row, and its sum
    backward = {
        "dispatch": rows * h * sum((2, 2)) + tokens * h * 2 + sent * h * (sum(added) - sum((2, 2))),
        "experts.activation": 0,
        "combine": sent * h * (sum((*cast, *weighted, *back)) + sum(map(sum, of_both))),
    }
    for name, apart in zip(("forward", "backward"), (forward, backward), strict=True):
        for of_part, expected in apart.items():
            fused, unfused = (
                getattr(part(layer_of(each), f"mlp.{of_part}"), name).traffic_bytes
                for each in (config, configured(e=8, B=8, fused=False))
            )
            assert unfused - fused == expected, (name, of_part)


@pytest.mark.parametrize(("t", "etp", "share"), [(1, 0, 1), (4, 4, 4), (4, 1, 4)])
def test_tensor_ranks_share_the_products_of_experts_by_width_or_by_token(t, etp, share):
    whole = configured(d=16)
    config = configured(d=16, t=t, etp=etp, sequence_parallel=t > 1, e=4)

    def linears(each):
        return total(own.forward for own in experts_of(each) if own.name in ("mlp.experts.up", "mlp.experts.down"))

    assert flops(linears(config)) * share == flops(linears(whole))


@pytest.mark.parametrize(
    "sizes",
    [
        {"d": 8, "e": 4},
        {"d": 8, "e": 8, "t": 2, "sequence_parallel": True},
        {"d": 8, "e": 16, "t": 2, "etp": 1, "sequence_parallel": True},
        {"d": 4, "e": 2, "c": 2, "p": 2},
    ],
)
def test_every_gpu_s_experts_are_all_of_them_as_often_as_there_are_replicas(sizes):
    parallel = configured(**sizes).parallel
    held = [sizes.experts for sizes in rank_sizes(configured(**sizes))]
    gpus = parallel.d * parallel.c * parallel.t
    assert sum(held) * gpus == MODEL.layers * MODEL.experts * EXPERT * parallel.groups["edp"].number
    assert all(some < every for some, every in zip(held, rank_elements(configured(**sizes)), strict=True))


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_all_to_all_carries_k_rows_of_every_token_but_those_of_the_rank_s_own_experts(recompute):
    """Dispatch and combine, forward and backward, and forward once more if layers are computed again."""
    config = configured(e=8, recompute=recompute)
    exchanges = 6 if recompute == "full" else 4
    rows = 4096 * 4 * 7 // 8
    assert simulate(config, H100).traffic["experts"] == exchanges * config.parallel.m * 4 * 2 * rows * 2048


@pytest.mark.parametrize("etp", [1, 4])
def test_whole_experts_of_tensor_ranks_are_sent_a_part_of_the_tokens(etp):
    alone = simulate(configured(e=4), H100).traffic["experts"]
    sent = simulate(configured(t=4, etp=etp, e=4, sequence_parallel=True), H100).traffic["experts"]
    assert sent * (4 if etp == 1 else 1) == alone


def test_without_expert_parallelism_nothing_is_sent_to_experts():
    assert "experts" not in simulate(configured(), H100).traffic
    assert expert_exchange(CostModel(H100), configured()) == 0.0


def test_across_nodes_the_exchange_takes_the_nodes_links():
    """Of 16 GPUs on two nodes half of what each sends leaves its node, 8 GPUs' worth over the node's links."""
    model, size = CostModel(H100), 2 * 4096 * 4 * 2048
    inside, across = (expert_exchange(model, configured(d=e, e=e)) / 2 for e in (8, 16))
    node = H100.tensor_hca_bandwidth * H100.gpus_per_node / H100.gpus_per_hca
    assert across > 8 * 8 / 16 * size / node > inside


def test_a_sharded_optimizer_shards_experts_over_the_ranks_that_hold_the_same():
    """Of E experts a GPU holds E/e, and updates 1/(d/e) of them; of all else it updates 1/d. fp16: 2, 12 bytes."""
    config = configured(d=8, e=4)
    memory = simulate(config, H100).memory_bytes
    of_experts = MODEL.layers * MODEL.experts * EXPERT // 4
    others = rank_elements(config)[0] - of_experts
    states = 12 if H100.element_bytes == 2 else 8
    assert memory["weights"] == H100.element_bytes * (others + of_experts)
    assert memory["optimizer"] == states * (others // 8 + of_experts // 2)


def test_experts_of_tensor_ranks_are_reduced_where_nothing_else_has_replicas():
    """t = 4, e = 2: two tensor ranks have the same whole experts."""
    two, four = (configured(d=1, t=4, e=e, etp=1, sequence_parallel=True) for e in (2, 4))
    assert [each.parallel.groups["edp"].number for each in (two, four)] == [2, 1]
    model = CostModel(H100)
    of_experts = rank_sizes(two)[0].experts
    assert (
        gradient_reduction(model, two, of_experts, 0.0, of_experts)
        > 0
        == gradient_reduction(model, four, 1e9, 0.0, 1e9)
    )
    assert weight_gather(model, two, of_experts, of_experts) > 0


def test_time_and_activations_grow_smoothly_with_imbalance():
    """A product's rows are filled up to whole loads, so that no number of tokens is slower than the next larger one.

    An expert with 3% more tokens may need one more row of tiles than before.
    """
    estimates = [simulate(configured(e=8, expert_imbalance=1 + step / 100), H100) for step in range(0, 31, 3)]
    times = [estimate.iteration_time for estimate in estimates]
    kept = [estimate.memory_bytes["stashed_activations"] for estimate in estimates]
    assert times == sorted(times)
    assert kept == sorted(kept)
    assert max(after / before for before, after in pairwise(times)) < 1.06


def test_a_capacity_bounds_what_the_busiest_rank_computes_and_receives():
    balanced, bounded, free = (
        simulate(configured(e=8, **more), H100).iteration_time
        for more in ({}, {"expert_imbalance": 1.3, "capacity_factor": 1.0}, {"expert_imbalance": 1.3})
    )
    assert bounded == balanced < free


def fused(how="-overlap", **parallel):
    return configured(schedule=f"dualpipev{how}", **{"p": 2, "v": 2, "d": 16, "B": 256, **parallel})


def test_a_fused_pair_hides_what_the_other_pass_computes_meanwhile():
    """By hand: exchanges of 3 seconds beside computations of 4 and 9, of 2 and 1; recomputation doubles a B's."""
    stage = StageTimes(0.0, 4.0 + 3.0, 0.0, 9.0 + 3.0, exchange=3.0)
    assert hidden_in_pair(stage, stage) == (3.0, 3.0)
    short = StageTimes(0.0, 2.0 + 3.0, 0.0, 1.0 + 3.0, exchange=3.0)
    assert hidden_in_pair(short, short) == (1.0, 2.0)
    assert hidden_in_pair(short, stage) == (3.0, 2.0)
    recomputed = stage._replace(recompute=5.0 + 3.0, recomputed_exchange=3.0)  # half of its exchanges find a partner
    assert hidden_in_pair(stage, recomputed) == (3.0, 3.0)
    assert hidden_in_pair(short, recomputed) == (3.0, 2.0)
    assert hidden_in_pair(StageTimes(0.0, 5.0, 0.0, 9.0), stage) == (0.0, 0.0)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_fused_pairs_take_forward_and_backward_less_what_is_hidden_in_pair(recompute):
    config = fused(e=16, recompute=recompute)
    estimate, one_after_the_other = (
        simulate(each, H100, timeline=True) for each in (config, fused("", e=16, recompute=recompute))
    )
    stages = CostModel(slowest_of(H100, config.parallel.n)).stages(config)
    table = build("dualpipev-overlap", 2, config.parallel.m, 2)
    for row in estimate.timeline:
        for event, following in pairwise(row):
            if event.action in table.fused:
                assert (event.start, event.end) == (following.start, following.end)
                forward, backward = stages[event.action.stage], stages[following.action.stage]
                taken = forward.forward + backward.backward - sum(hidden_in_pair(forward, backward))
                assert event.end - event.start == pytest.approx(taken, abs=1e-11)
    assert estimate.iteration_time < 0.97 * one_after_the_other.iteration_time
    assert sum(estimate.phase_times.values()) == pytest.approx(estimate.iteration_time)
    saved = sum(
        one_after_the_other.phase_times[phase] - estimate.phase_times[phase] for phase in ("forward", "backward")
    )
    exchanged = config.parallel.m * 2 * MODEL.layers / 2 * expert_exchange(CostModel(H100), config)
    assert 0 < saved < exchanged
    assert estimate.traffic == one_after_the_other.traffic
    assert estimate.peak_memory == one_after_the_other.peak_memory


def test_without_expert_parallelism_a_fused_pair_hides_nothing():
    estimate = simulate(fused(), H100)
    others = simulate(fused(""), H100)
    assert all(estimate.phase_times[phase] == others.phase_times[phase] for phase in ("forward", "backward"))


def test_the_bubble_of_fused_passes_has_its_causes():
    estimate = simulate(fused(e=16), H100, bubble_times=True)
    assert sum(estimate.bubble_times.values()) == pytest.approx(estimate.phase_times["bubble"])
    assert estimate.bubble_times["fill_and_drain"] > 0


@pytest.mark.parametrize("sizes", [{"e": 16}, {}, {"e": 16, "recompute": "full"}, {"e": 4, "B": 4096}])
def test_bounds_stay_below_fused_passes(sizes):
    config = fused(**sizes)
    assert least_time(config, CostModel(H100)) <= simulate(config, H100).iteration_time


@pytest.mark.parametrize("model", [MODEL, SHARED])
@pytest.mark.parametrize("sizes", [{"e": 8}, {"e": 4, "p": 2, "d": 4}, {"e": 2, "t": 4, "etp": 1}])
def test_bounds_of_the_search_stay_below(model, sizes):
    config = configured(model, **sizes, sequence_parallel=sizes.get("t", 1) > 1)
    costs, estimate = CostModel(H100), simulate(config, H100)
    assert family_least_time(config, costs) <= estimate.iteration_time
    assert least_time(config, costs) <= estimate.iteration_time
    assert family_least_memory(config, costs) <= sum(estimate.memory_bytes.values())


def test_experts_do_not_show_in_a_dense_model_s_values():
    dense = replace(MODEL, experts=0, experts_per_token=0, expert_ffn_hidden=0)
    shown = configured(dense).to_plain()
    assert not {"experts", "e", "etp", "head_dim", "capacity_factor", "expert_imbalance"} & shown.keys()


@pytest.mark.parametrize(("recipe", "wide"), [("none", 2), ("delayed", 1)])
def test_of_every_row_the_linears_inputs_and_the_first_one_s_output_are_kept(recipe, wide):
    """Outputs are summed as they come, so that none are kept."""
    config = configured(e=8, b=2, fp8_recipe=recipe)
    tokens, rows = 2 * 4096, 2 * 4096 * 4
    assert kept(config) == rows * (wide * (2048 + 1024) + 2 * 2 * 1024) + 4 * tokens * 32
    dense = configured(replace(MODEL, experts=0, experts_per_token=0), b=2, fp8_recipe=recipe)
    without = layer_bytes(config).intermediate - kept(config)
    mlp = tokens * (wide * 4096 + 2 * 2 * 4096)
    # The router keeps its input in bf16, where an MLP's first linear keeps it in FP8.
    assert layer_bytes(dense).intermediate - without == mlp - (2 - wide) * tokens * 2048


def test_what_is_put_off_are_inputs_and_output_gradients_of_the_rows():
    config = configured(p=2, d=4, e=4, schedule="zb-h1")
    rows = 4096 * 4
    of_experts = 2 * rows * (2048 + 2 * 1024 + 1024 + 2048)
    attention = 2 * 4096 * (2 * 2048 + heads_of(MODEL).all + MODEL.heads * MODEL.head_size)
    assert deferred_bytes(config, H100, 2, False, layer_bytes(config)) == round(
        2 * (of_experts + attention) / H100.allocator_efficiency
    )


def test_layers_without_a_common_mlp_cast_two_linears_to_fp8():
    """The delayed recipe reads 2 bytes of an element and writes 2, in a kernel for each tensor."""
    for model, linears, width in ((MODEL, 2, 2048 + 2048), (SHARED, 4, 2048 + 2048 + 2048 + 2048)):
        works = [
            total(
                each.forward
                for each in layer_of(configured(model, fp8_recipe=recipe)).parts
                if "experts" not in each.name
            )
            for recipe in ("none", "delayed")
        ]
        assert works[1].kernels - works[0].kernels == linears
        assert works[1].traffic_bytes - works[0].traffic_bytes == 4 * 4096 * width
