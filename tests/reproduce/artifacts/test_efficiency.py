"""Tensor-parallel time and GEMM rates of a simulated point, and what Table 1 prints besides."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from reproduce.experiment import quantities as q
from reproduce.experiment.sweep import Point
from reproduce.papers.shared import efficiency
from reproduce.running.simulated import simulated_metrics

POINT, SELENE = Point("k", "", "k", {}), load_cluster("selene")


def metrics(cluster=SELENE, **parallel):
    config = TrainingConfig(ModelConfig(8, 4096, 32), ParallelConfig(**{"p": 2, "t": 4, "B": 8, **parallel}))
    estimate = simulate(config, cluster)
    return estimate, efficiency.kernel_metrics(POINT, estimate, cluster)


def test_no_tensor_parallelism_no_reductions():
    assert metrics(t=1)[1][q.TENSOR_TIME.name] == 0


def test_reductions_grow_with_microbatches_and_shrink_without_recomputation():
    _, at_8 = metrics(B=8)
    _, two = metrics(B=16)
    _, none = metrics(B=8, recompute="none")
    assert two[q.TENSOR_TIME.name] == pytest.approx(2 * at_8[q.TENSOR_TIME.name])
    # 6 all-reduces a layer with the recomputed forward pass, 4 without, and a few at both ends of the model
    ratio = none[q.TENSOR_TIME.name] / at_8[q.TENSOR_TIME.name]
    assert 4 / 6 < ratio < 4.5 / 6


def test_reductions_are_a_part_of_computation():
    estimate, rates = metrics()
    compute = sum(estimate.phase_times[name] for name in ("forward", "recompute", "backward", "embedding_and_logits"))
    assert 0 < rates[q.TENSOR_TIME.name] < compute


def test_the_rate_inside_gemms_is_the_slowest_gpu_s():
    """For which all wait, as in the simulated iteration; here 2,048 H100s."""
    h100 = load_cluster("h100")
    spread, alike = (
        metrics(cluster, d=256, B=256)[1][q.GEMM_RATE.name] for cluster in (h100, replace(h100, gpu_spread=0))
    )
    assert 0.965 < spread / alike < 0.98


def test_rates_are_below_the_peak():
    estimate, rates = metrics()
    assert estimate.throughput_per_gpu < rates[q.GEMM_RATE.name] < SELENE.peak_flops
    printed = simulated_metrics(estimate, SELENE, (q.SHARE_OF_PEAK, q.AGGREGATE_THROUGHPUT))
    assert printed["share_of_peak"].value == pytest.approx(estimate.throughput_per_gpu / SELENE.peak_flops)
    assert printed["aggregate_throughput"].value == pytest.approx(estimate.throughput_per_gpu * 8)
