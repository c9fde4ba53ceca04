"""Kernel and network models against public timings and exact formulas."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptdp_core.layout import RankGrid
from ptdp_core.simulator import load_cluster
from ptdp_core.simulator.kernels import KernelModel
from ptdp_core.simulator.network import Group, NetworkModel, data_group, tensor_group

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


def tflops(model: KernelModel, M: int, N: int, K: int, batch: int) -> float:
    return 2 * M * N * K * batch / model.gemm(M, N, K, batch) / 1e12


def test_gemm_model_against_public_timings() -> None:
    model = KernelModel(A100_40GB)
    errors = [tflops(model, M, N, K, batch) / rate - 1 for M, N, K, batch, rate in PUBLIC_GEMMS]
    assert sum(map(abs, errors)) / len(errors) < 0.06
    assert max(map(abs, errors)) < 0.2


@given(st.sampled_from([128, 512, 2048, 8192]), st.integers(1, 96), st.integers(1, 96))
def test_gemm_never_beats_the_plateau_nor_the_memory(M: int, n: int, k: int) -> None:
    N, K = 128 * n, 128 * k
    seconds = KernelModel(SELENE).gemm(M, N, K)
    assert seconds >= 2 * M * N * K / (SELENE.gemm_plateau * SELENE.peak_flops)
    assert seconds >= 2 * (M * K + K * N + M * N) / SELENE.memory_bandwidth


@given(st.integers(1, 40), st.integers(1, 40))
def test_more_of_a_gemm_takes_no_less_time(n: int, k: int) -> None:
    model = KernelModel(SELENE)
    assert model.gemm(2048, 128 * n, 128 * k) <= model.gemm(2048, 128 * (n + 1), 128 * k)
    assert model.gemm(2048, 128 * n, 128 * k) < model.gemm(2048, 128 * n, 128 * (k + 1)) + 1e-12


def test_a_ring_inside_a_node() -> None:
    network = NetworkModel(SELENE)
    size = 50e6
    expected = SELENE.nvlink_latency_8 + 2 * 7 / 8 * size / SELENE.nvlink_bandwidth_8
    assert network.all_reduce(Group(8, 8), size) == pytest.approx(expected)
    assert network.all_gather(Group(8, 8), size) < network.all_reduce(Group(8, 8), size)
    assert network.all_reduce(Group(1, 1), size) == 0


@pytest.mark.parametrize(("low", "between", "high"), [(2, 3, 4), (4, 6, 8)])
def test_sizes_between_the_measured_ones_lie_between(low: int, between: int, high: int) -> None:
    network = NetworkModel(SELENE)
    times = [network.all_reduce(Group(size, size), 50e6) for size in (low, between, high)]
    assert times == sorted(times)


def test_between_nodes_the_slower_link_counts_and_hcas_add_up() -> None:
    network = NetworkModel(SELENE)
    alone, together = (network.gradient_all_reduce(group, 1e9) for group in (Group(4, 1), Group(32, 8)))
    assert alone == pytest.approx(2 * 3 / 4 * 1e9 / SELENE.allreduce_hca_bandwidth, rel=2e-3)
    assert together == pytest.approx(2 * 31 / 32 * 1e9 / (8 * SELENE.allreduce_hca_bandwidth), rel=5e-2)


def test_placement_is_tensor_then_data_then_pipeline() -> None:
    assert tensor_group(8, 8).nodes == 1
    assert tensor_group(16, 8).nodes == 2
    assert data_group(t=8, d=4, gpus_per_node=8) == Group(4, 1)
    assert data_group(t=2, d=32, gpus_per_node=8) == Group(32, 4)
    assert data_group(t=1, d=4, gpus_per_node=8) == Group(4, 4)
    # t*d = 2 GPUs a stage: four stages share a node, and every fourth link leaves it
    assert [RankGrid(8, 1, 2).leaves_node(pp, (pp + 1) % 8, 8) for pp in range(8)] == [False, False, False, True] * 2


def test_messages_share_the_hca() -> None:
    network = NetworkModel(SELENE)
    assert network.message(1e8, between_nodes=True, concurrent=1) == pytest.approx(1e8 / SELENE.p2p_bandwidth)
    assert network.message(1e8, between_nodes=True, concurrent=2) == pytest.approx(2e8 / SELENE.hca_bandwidth)
    assert network.message(1e8, between_nodes=False, concurrent=1) < 1e8 / SELENE.hca_bandwidth
