"""Kernel and network models against public timings and exact formulas."""

from dataclasses import replace
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.kernels import KernelModel
from ptdp_core.simulator.network import Group, NetworkModel, group_of, leaves_node

SELENE = load_cluster("selene")
# The public timings are of the 40 GB board: the same chip with slower memory.
A100_40GB = replace(SELENE, memory_bandwidth=1555e9)

# M, N, K, batch, TFLOP/s: EleutherAI cookbook, A100 sample results
PUBLIC_GEMMS = [
    (8192, 12288, 4096, 1, 241.6),
    (8192, 4096, 4096, 1, 234.9),
    (8192, 16384, 4096, 1, 241.1),
    (8192, 4096, 16384, 1, 252.8),
    (8192, 51200, 4096, 1, 255.4),
    (2048, 2048, 256, 64, 130.2),
    (2048, 256, 2048, 64, 219.0),
    (2048, 2048, 128, 64, 91.6),
    (2048, 128, 2048, 64, 134.8),
    (2048, 2048, 144, 64, 93.3),
    (2048, 144, 2048, 64, 127.1),
    (1024, 1024, 1024, 128, 227.3),
    (1024, 1024, 2048, 128, 243.3),
]


def tflops(model, M, N, K, batch):
    return 2 * M * N * K * batch / model.gemm(M, N, K, batch) / 1e12


def test_gemm_model_against_public_timings():
    model = KernelModel(A100_40GB)
    errors = [tflops(model, M, N, K, batch) / rate - 1 for M, N, K, batch, rate in PUBLIC_GEMMS]
    assert sum(map(abs, errors)) / len(errors) < 0.06
    assert max(map(abs, errors)) < 0.2


@given(st.sampled_from([128, 512, 2048, 8192]), st.integers(1, 96), st.integers(1, 96))
def test_gemm_never_beats_the_plateau_nor_the_memory(M, n, k):
    N, K = 128 * n, 128 * k
    seconds = KernelModel(SELENE).gemm(M, N, K)
    assert seconds >= 2 * M * N * K / (SELENE.gemm_plateau * SELENE.peak_flops)
    assert seconds >= 2 * (M * K + K * N + M * N) / SELENE.memory_bandwidth


@given(st.integers(1, 40), st.integers(1, 40))
def test_more_of_a_gemm_takes_no_less_time(n, k):
    model = KernelModel(SELENE)
    assert model.gemm(2048, 128 * n, 128 * k) <= model.gemm(2048, 128 * (n + 1), 128 * k)
    assert model.gemm(2048, 128 * n, 128 * k) < model.gemm(2048, 128 * n, 128 * (k + 1)) + 1e-12


def test_a_ring_inside_a_node():
    network = NetworkModel(SELENE)
    size = 50e6
    expected = SELENE.nvlink_latency_8 + 2 * 7 / 8 * size / SELENE.nvlink_bandwidth_8
    assert network.all_reduce(Group(8, 8), size) == pytest.approx(expected)
    assert network.one_way(Group(8, 8), size, 2) < network.all_reduce(Group(8, 8), size)
    assert network.all_reduce(Group(1, 1), size) == 0


@pytest.mark.parametrize(("low", "between", "high"), [(2, 3, 4), (4, 6, 8)])
def test_sizes_between_the_measured_ones_lie_between(low, between, high):
    network = NetworkModel(SELENE)
    times = [network.all_reduce(Group(size, size), 50e6) for size in (low, between, high)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("gpus_on_a_node", "hcas"),
    [
        (8, 8.0),  # a group alone on its nodes has all eight
        (4, 1.0),  # GPUs 0, 2, 4, 6: each has half an HCA, and rings cross the CPU
        (2, 0.5),  # GPUs 0 and 4
        (1, 0.5),  # two GPUs on a switch choose the same HCA
    ],
)
def test_groups_side_by_side_on_a_node_share_its_hcas(gpus_on_a_node, hcas):
    network = NetworkModel(replace(SELENE, tree_hop_latency=1.0))
    group = Group(4 * gpus_on_a_node, gpus_on_a_node)
    seconds = network.all_reduce(group, 1e10, gradients=True)
    share = (group.size - 1) / group.size
    assert seconds == pytest.approx(2 * share * 1e10 / (hcas * SELENE.allreduce_hca_bandwidth), rel=1e-2)


def test_hcas_that_gpus_share_by_wiring():
    half = NetworkModel(replace(SELENE, gpus_per_hca=2))
    whole = NetworkModel(SELENE)
    alone, side_by_side = Group(32, 8), Group(4, 1)
    size = 1e11  # so large that latencies do not count
    assert half.all_reduce(alone, size) == pytest.approx(2 * whole.all_reduce(alone, size), rel=1e-3)
    assert half.all_reduce(side_by_side, size) == pytest.approx(whole.all_reduce(side_by_side, size), rel=1e-3)
    assert half.message(1e8, between_nodes=True, concurrent=1) == pytest.approx(2e8 / SELENE.hca_bandwidth)


def test_small_reductions_over_many_nodes_go_by_a_tree():
    """Its latency grows with the logarithm of the nodes, a ring's with their number."""
    tree, ring = NetworkModel(SELENE), NetworkModel(replace(SELENE, tree_hop_latency=1.0))
    for nodes in (4, 16, 64):
        group = Group(8 * nodes, 8)
        hops = 2 * (7 + log2(nodes))
        assert tree.all_reduce(group, 1e3) == pytest.approx(hops * SELENE.tree_hop_latency, rel=1e-3)
        assert tree.all_reduce(group, 1e3) < ring.all_reduce(group, 1e3)


def test_inside_a_node_there_is_no_tree():
    free_hops = NetworkModel(replace(SELENE, tree_hop_latency=1e-12))
    assert free_hops.all_reduce(Group(8, 8), 1e3) == NetworkModel(SELENE).all_reduce(Group(8, 8), 1e3)


@pytest.mark.parametrize("gpus", [16, 72])
def test_larger_nvlink_domains(gpus):
    """Latency goes on growing with the logarithm of the GPUs; the switch gives each its bandwidth."""
    network = NetworkModel(SELENE)
    latency = SELENE.nvlink_latency_8 + log2(gpus / 8) * (SELENE.nvlink_latency_8 - SELENE.nvlink_latency_4)
    expected = latency + 2 * (gpus - 1) / gpus * 1e8 / SELENE.nvlink_bandwidth_8
    assert network.all_reduce(Group(gpus, gpus), 1e8) == pytest.approx(expected)


def test_rows_that_no_tensor_core_kernel_can_load_are_slow():
    """A head dimension of 108 is 216 bytes, no multiple of 16."""
    model = KernelModel(SELENE)
    aligned, unaligned = model.gemm(2048, 2048, 112, 64), model.gemm(2048, 2048, 108, 64)
    assert unaligned == pytest.approx(2 * 2048 * 2048 * 108 * 64 / (SELENE.gemm_unaligned * SELENE.peak_flops))
    assert unaligned > 5 * aligned


def test_placement_is_tensor_then_data_then_pipeline():
    assert group_of(8, 8).nodes == 1
    assert group_of(16, 8).nodes == 2
    assert group_of(4, 8, 8) == Group(4, 1)
    assert group_of(32, 8, 2) == Group(32, 4)
    assert group_of(4, 8, 1) == Group(4, 4)
    # t*d = 2 GPUs a stage: four stages share a node, and every fourth link leaves it
    assert [leaves_node(2, pp, (pp + 1) % 8, 8) for pp in range(8)] == [False, False, False, True] * 2


def test_messages_share_the_hca():
    network = NetworkModel(SELENE)
    assert network.message(1e8, between_nodes=True, concurrent=1) == pytest.approx(1e8 / SELENE.p2p_bandwidth)
    assert network.message(1e8, between_nodes=True, concurrent=2) == pytest.approx(2e8 / SELENE.hca_bandwidth)
    assert network.message(1e8, between_nodes=False, concurrent=1) < 1e8 / SELENE.hca_bandwidth
