"""What training programs do beyond the paper's code: exactly what each switch changes."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layout import layer_passes
from ptdp_core.simulator import PAPER, Software, load_cluster, simulate
from ptdp_core.simulator.costs import EXPOSED_ACCUMULATION, CostModel
from ptdp_core.simulator.network import Group
from tests.ptdp_core.blocks import column_weights, layer

SELENE = load_cluster("selene")
CONFIG = TrainingConfig(ModelConfig(16, 8192, 64), ParallelConfig(p=4, t=8, d=4, b=1, B=64))
DEVICE = replace(SELENE, host_per_call=0.0)


def stage(software, cluster=DEVICE):
    return CostModel(cluster, software).stages(CONFIG)[1]


def test_the_papers_code_is_the_default():
    assert simulate(CONFIG, SELENE) == simulate(CONFIG, SELENE, PAPER)
    assert not any(vars(PAPER).values())


def test_an_all_reduce_hides_under_the_gemm_for_its_weights():
    model, group = CostModel(DEVICE), Group(8, 8)
    size = 2 * layer_passes(CONFIG, "tp").backward[0].elements
    reduced = model.network.all_reduce(group, size)
    query_key_value, h_to_4h = column_weights(layer(CONFIG.model, 1, 8))
    assert query_key_value[0] == 3 * 8192 // 8
    assert h_to_4h[0] == 4 * 8192 // 8
    saved = sum(min(reduced, model.kernels.gemm(*gemm)) for gemm in (query_key_value, h_to_4h))
    layers = 4
    before, after = stage(PAPER), stage(Software(overlapped_all_reduce=True))
    assert before.backward - after.backward == pytest.approx(layers * saved)
    assert before.forward == after.forward


def test_accumulation_inside_the_gemm_reads_and_writes_the_sum_in_place_of_a_result():
    parameters = 12 * 8192**2 / 8
    before, after = stage(PAPER), stage(Software(fused_accumulation=True))
    rate = SELENE.memory_bandwidth * SELENE.memory_efficiency
    exposed = EXPOSED_ACCUMULATION
    assert before.backward - after.backward == pytest.approx(4 * (6 - exposed * 2) * parameters / rate)
    wide = stage(Software(fused_accumulation=True, fp32_gradients=True))
    assert wide.backward - after.backward == pytest.approx(4 * exposed * 4 * parameters / rate)


def test_gradients_summed_in_fp32_take_twice_the_memory_and_need_no_unscaled_copy():
    before, after = simulate(CONFIG, SELENE), simulate(CONFIG, SELENE, Software(fp32_gradients=True))
    assert after.memory_bytes["gradients"] == 2 * before.memory_bytes["gradients"]
    assert after.memory_bytes["unscaled_gradients"] == 0


def test_a_host_that_waits_for_each_kernel_adds_its_own_time():
    work, group = layer(CONFIG.model, 1, 8).forward, Group(8, 8)
    seconds = CostModel(DEVICE).seconds(work, group)
    blocking = CostModel(SELENE, Software(blocking_launches=True)).seconds(work, group)
    assert blocking == pytest.approx(seconds + work.calls * SELENE.host_per_call)
