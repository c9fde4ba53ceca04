"""The price of fused attention: rates of public microbenchmarks, per GPU, kernel, sequence and head."""

import pytest

from ptdp_core.simulator.cluster import load_cluster
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.kernels import USUAL_ROWS, KernelModel
from ptdp_core.simulator.software import Software

# teraFLOP/s with a causal mask and heads of 128, whose FLOPs count what the mask leaves: forward, backward, together.
A100_TOGETHER = {512: 99, 1024: 133, 2048: 155, 4096: 173, 8192: 182, 16384: 189}  # Dao 2023, Figure 4
H100_FORWARD = {512: 315, 1024: 410, 2048: 484, 4096: 518, 8192: 529, 16384: 539}  # Shah et al. 2024, cuDNN
H100_BACKWARD = {512: 305, 1024: 408, 2048: 465, 4096: 499, 8192: 518, 16384: 516}


def rate(kernels, seq, head=128, *, forward=True, backward=True):
    """teraFLOP/s of some passes over one sequence and head, counted as the benchmarks do."""
    square = 2.0 * seq * seq * head
    passes = [(2 * square, False)] * forward + [(5 * square, True)] * backward
    seconds = sum(kernels.attention(flops, seq, head, back, USUAL_ROWS) for flops, back in passes)
    return sum(flops for flops, _ in passes) / 2 / seconds / 1e12


def test_rates_follow_the_published_ones_over_the_sequence():
    a100, h100 = KernelModel(load_cluster("a100-80")), KernelModel(load_cluster("h100"))
    for seq, measured in A100_TOGETHER.items():
        assert rate(a100, seq) == pytest.approx(measured, rel=0.03)
    for measured, passes in ((H100_FORWARD, {"backward": False}), (H100_BACKWARD, {"forward": False})):
        for seq, value in measured.items():
            assert rate(h100, seq, **passes) == pytest.approx(value, rel=0.08)


def test_smaller_heads_and_earlier_kernels_are_slower():
    a100, h100 = load_cluster("a100-80"), load_cluster("h100")
    assert rate(KernelModel(a100), 16384, 64) == pytest.approx(171, rel=0.03)
    second = CostModel(h100, Software(flash_attention_2=True)).kernels
    first = CostModel(h100, Software(flash_attention_1=True)).kernels
    assert rate(second, 16384, backward=False) == pytest.approx(335, rel=0.03)
    assert rate(first, 16384) < 0.65 * rate(second, 16384)


def test_a_cluster_without_rates_prices_attention_as_large_products_of_the_whole_square():
    selene = KernelModel(load_cluster("selene"))
    assert selene.attention(1e15, 2048, 128, True, 2048) == 1e15 / selene.sustained
