"""Sequence parallelism (Korthikanti et al. 2022): exactly what it changes in time, memory and bytes."""

from dataclasses import replace
from functools import partial

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layers.parts import PER_COLLECTIVE
from ptdp_core.layout import Boundary, rank_sizes, step_collectives
from ptdp_core.simulator import Software, load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.memory import layer_bytes, stash_bytes
from ptdp_core.simulator.network import NetworkModel, group_of
from ptdp_core.simulator.peak_memory import peak_memory
from ptdp_core.simulator.step import collective_seconds
from tests.ptdp_core.blocks import apart, column_weights, layer

SELENE = load_cluster("selene")
DEVICE = replace(SELENE, host_per_call=0.0)  # so that stages take what the device takes
MODEL = ModelConfig(16, 8192, 64)
N = MODEL.seq * MODEL.hidden  # elements of a layer's input, with b = 1
RATE = SELENE.memory_bandwidth * SELENE.memory_efficiency


def configured(on, **parallel):
    chosen = {"p": 4, "t": 8, "d": 2, "B": 64, "sequence_parallel": on} | parallel
    return TrainingConfig(MODEL, ParallelConfig(**chosen))


@pytest.mark.parametrize(("t", "b"), [(2, 1), (4, 2), (8, 1), (8, 4)])
def test_a_layer_keeps_what_korthikanti_et_al_count(t, b):
    """Their eq. 2 without it, eq. 4 with it; where everything is recomputed, 2sbh and 2sbh/t."""
    s, h, a = MODEL.seq, MODEL.hidden, MODEL.heads
    off, on = (configured(on, t=t, b=b) for on in (False, True))
    assert layer_bytes(off).intermediate == s * b * h * (10 + 24 / t + 5 * a * s / (h * t))
    assert layer_bytes(on).intermediate == s * b * h / t * (34 + 5 * a * s / h)
    assert layer_bytes(off).input == 2 * s * b * h
    assert layer_bytes(on).input == 2 * s * b * h / t
    assert stash_bytes(on, SELENE, 4, layer_bytes(on)) == 4 * 2 * s * b * h / t


def test_stashed_inputs_and_boundary_tensors_are_1_over_t():
    in_backward = Software(fp32_gradients=True)  # without unscaled gradients the peak is not in the optimizer step
    off, on = (simulate(configured(on), SELENE, in_backward).memory_bytes for on in (False, True))
    for use in ("stashed_activations", "boundary_buffers"):
        assert off[use] == 8 * on[use] > 0
    for use in ("weights", "gradients", "optimizer"):
        assert off[use] == on[use]


def test_inside_a_node_a_gather_and_a_scatter_take_as_long_as_an_all_reduce():
    network = NetworkModel(SELENE)
    for t in (2, 4, 8):
        group = group_of(t, SELENE.gpus_per_node)
        assert 2 * network.one_way(group, 2 * N) == pytest.approx(network.all_reduce(group, 2 * N))
    assert network.one_way(group_of(1, 8), 2 * N) == 0


def test_a_layer_saves_1_minus_1_over_t_of_layer_norms_and_dropout_and_gathers_two_inputs_again():
    model = CostModel(DEVICE)
    off, on = (model.stages(configured(on))[1] for on in (False, True))
    layers, saved = 4, (N - N / 8) / RATE
    gather = model.network.one_way(group_of(8, 8), 2 * N)
    # Bytes an element: two layer norms 4, two bias + dropout + add 7; backward 10 and 13.
    assert off.forward - on.forward == pytest.approx(layers * 22 * saved)
    assert off.recompute - on.recompute == pytest.approx(layers * 22 * saved)
    assert off.layers_backward - on.layers_backward == pytest.approx(layers * (46 * saved - 2 * gather))
    assert off.weight_gradient == on.weight_gradient


def test_the_ends_save_their_layer_norm_positions_and_dropout():
    model = CostModel(DEVICE)
    off, on = (model.stages(configured(on)) for on in (False, True))
    saved, one_way = (N - N / 8) / RATE, model.network.one_way(group_of(8, 8), 2 * N)
    # The embedding scatters what it all-reduced, and gathers its gradient; the logits gather their input twice more.
    assert off[0].extra_forward - on[0].extra_forward == pytest.approx(11 * saved + one_way)
    assert off[0].extra_backward - on[0].extra_backward == pytest.approx(5 * saved - one_way)
    assert off[-1].extra_forward - on[-1].extra_forward == pytest.approx(4 * saved - one_way)
    assert off[-1].extra_backward - on[-1].extra_backward == pytest.approx(10 * saved)


def test_the_gather_of_inputs_and_the_scatter_of_gradients_hide_under_gemms():
    config, overlapped = configured(True), Software(overlapped_all_reduce=True)
    model = CostModel(DEVICE)
    one_way = model.network.one_way(group_of(8, 8), 2 * N)
    weights = column_weights(layer(MODEL, 1, 8))
    inputs = [gemm for gemm in layer(MODEL, 1, 8).backward.gemms if gemm[:2] == (MODEL.seq, MODEL.hidden)]
    assert len(inputs) == len(weights) == 2
    hidden = sum(min(one_way, model.kernels.gemm(*gemm)) for gemm in (*weights, *inputs))
    before, after = (CostModel(DEVICE, software).stages(config)[1] for software in (Software(), overlapped))
    assert before.backward - after.backward == pytest.approx(4 * hidden)


def test_a_host_call_is_counted_for_every_collective():
    off, on = (layer(MODEL, 1, 8, sequence_parallel=on).forward for on in (False, True))
    assert (len(off.all_reduce_bytes), len(off.one_way_bytes)) == (2, 0)
    assert (len(on.all_reduce_bytes), len(on.one_way_bytes)) == (0, 4)
    assert on.calls - off.calls == 2 * (1 + PER_COLLECTIVE)
    assert on.gemms == off.gemms
    unfused = [apart(layer(MODEL, 1, 8, sequence_parallel=on)) for on in (False, True)]
    assert unfused[0].traffic_bytes - unfused[1].traffic_bytes == 16 * (N - N / 8)


def test_scatter_gather_is_void():
    """Boundary tensors are 1/t by themselves, and nobody gathers them."""
    on, without = (simulate(configured(True, scatter_gather=asked), SELENE) for asked in (True, False))
    assert replace(without, config=on.config) == on
    assert CostModel(SELENE).gather(on.config, Boundary.of(on.config).gather) == 0
    assert on.traffic["pipeline"] == simulate(configured(False), SELENE).traffic["pipeline"]


@pytest.mark.parametrize("recompute", ["full", "none"])
def test_bytes_are_those_of_four_passes_and_of_the_sum_of_gradients(recompute):
    config = configured(True, recompute=recompute)
    m, layers, share = config.parallel.m, 4, 7 / 8
    one_ways = 4 + 6 + (4 if recompute == "full" else 0)
    summed = max(sizes.whole for sizes in rank_sizes(config)) * 2 * share * SELENE.gradient_bytes
    passes = m * layers * one_ways * N * share * SELENE.element_bytes
    assert simulate(config, SELENE).traffic["tensor"] == round(passes + summed)


def test_gradients_of_whole_parameters_are_summed_after_the_flush():
    config = configured(True, d=1, B=32)
    estimate, model = simulate(config, SELENE), CostModel(SELENE)
    seconds = partial(collective_seconds, model, config)
    once = [[(call.group, seconds(call)) for call in rank] for rank in step_collectives(config)]
    assert [[group for group, _ in rank] for rank in once] == [["tp", "embedding"], ["tp"], ["tp"], ["tp", "embedding"]]
    assert min(seconds for rank in once for _, seconds in rank) > 0
    total = sum(seconds for rank in once for _, seconds in rank)
    assert estimate.phase_times["data_parallel"] == pytest.approx(total / 4)


def test_without_tensor_parallelism_nothing_changes():
    off, on = (simulate(configured(on, t=1), SELENE) for on in (False, True))
    assert replace(on, config=off.config) == off


@pytest.mark.parametrize("parallel", [{}, {"v": 2}, {"recompute": "none"}, {"schedule": "zb-h1"}, {"p": 2, "t": 16}])
def test_bounds_hold_and_phases_add_up(parallel):
    estimate = simulate(configured(True, **parallel), SELENE)
    assert sum(estimate.phase_times.values()) == pytest.approx(estimate.iteration_time)
    assert least_time(estimate.config, CostModel(SELENE)) <= estimate.iteration_time
    assert peak_memory(estimate.config, CostModel(SELENE)) == estimate.peak_memory
    # Equal where the peak is in the optimizer step.
    assert estimate.peak_memory <= simulate(configured(False, **parallel), SELENE).peak_memory
