"""Precisions other than the paper's: what a cluster file may say of bytes, and what follows from it."""

from dataclasses import replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layers.blocks import LayerRun, ends
from ptdp_core.layers.parts import Work
from ptdp_core.simulator import load_cluster, read_parameters, simulate
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.network import Group
from ptdp_core.simulator.step import gradient_reduction, optimizer_step
from tests.ptdp_core.blocks import layer

SELENE = load_cluster("selene")
WIDE = replace(SELENE, element_bytes=4, gradient_bytes=4)
CONFIG = TrainingConfig(ModelConfig(8, 1024, 16, 512, 4096), ParallelConfig(p=2, t=2, d=2, b=2, B=16))


def test_a_file_may_leave_the_precision_out_or_say_it(tmp_path):
    assert (SELENE.element_bytes, SELENE.gradient_bytes, SELENE.optimizer_bytes) == (2, 2, 60)
    path = tmp_path / "mine.toml"
    entry = 'value = 4\nunit = "B"\nrange = [4, 4]\nsource = "fp32 throughout"\nset_with = "mechanism"\n'
    path.write_text(f'base = "selene"\n\n[element_bytes]\n{entry}')
    assert read_parameters(str(path))["element_bytes"].value == 4
    assert load_cluster(str(path)).element_bytes == 4
    assert load_cluster(str(path)).gradient_bytes == 2


def test_messages_and_reductions_grow_with_the_elements():
    narrow, wide = (CostModel(cluster).messages(CONFIG)[0][0] for cluster in (SELENE, WIDE))
    assert wide == 2 * narrow
    before, after = simulate(CONFIG, SELENE), simulate(CONFIG, WIDE)
    for use in ("pipeline", "tensor", "data", "embedding"):
        assert after.traffic[use] == pytest.approx(2 * before.traffic[use], abs=1)
    kept = replace(CONFIG, parallel=replace(CONFIG.parallel, recompute="none"))
    stashed = [simulate(kept, cluster).memory_bytes["stashed_activations"] for cluster in (SELENE, WIDE)]
    assert stashed[1] == 2 * stashed[0] > 0
    states = [
        sum(estimate.memory_bytes[use] for use in ("weights", "gradients", "optimizer")) for estimate in (before, after)
    ]
    assert states[0] == states[1]
    assert after.memory_bytes["weights"] == 2 * before.memory_bytes["weights"]
    only_gradients = simulate(CONFIG, replace(SELENE, gradient_bytes=4))
    assert only_gradients.traffic["pipeline"] == before.traffic["pipeline"]
    assert only_gradients.traffic["data"] == after.traffic["data"]


def test_times_on_the_wire_and_of_operands_grow_with_the_elements():
    """Differences of two sizes, which have no latency in them."""

    def reduced(cluster):
        model, group = CostModel(replace(cluster, host_per_call=0.0)), Group(2, 2)
        few, many = (Work(all_reduce_bytes=(size,)) for size in (1e8, 2e8))
        return model.seconds(many, group) - model.seconds(few, group)

    def gradients(cluster):
        rate = replace(cluster, memory_bandwidth=1e30)  # without the copies
        few, many = (gradient_reduction(CostModel(rate), CONFIG, parameters, 0.0) for parameters in (1e8, 2e8))
        return many - few

    def operands(cluster):
        return CostModel(cluster).kernels.gemm(64, 64, 2**24)

    slow_memory = {"gemm_memory_efficiency": 1e-4}  # so that operands bound the product
    assert reduced(WIDE) == pytest.approx(2 * reduced(SELENE))
    assert gradients(WIDE) == pytest.approx(2 * gradients(SELENE))
    assert operands(replace(WIDE, **slow_memory)) == pytest.approx(2 * operands(replace(SELENE, **slow_memory)))


@pytest.mark.parametrize(
    ("work", "factor"),
    [
        (layer(CONFIG.model, 2, 1).forward, 2.0),
        (layer(CONFIG.model, 2, 1).backward, 2.0),
        # 38 bytes an element of the logits in fp16, 40 in fp32: most of them are fp32 anyway.
        (Work(traffic_bytes=38.0, wide_bytes=36.0), 40 / 38),
    ],
    ids=["forward", "backward", "logits"],
)
def test_traffic_doubles_but_for_what_is_fp32_anyway(work, factor):
    alone = work._replace(gemms=(), kernels=0)
    times = [CostModel(replace(cluster, host_per_call=0.0)).seconds(alone, Group(1, 1)) for cluster in (SELENE, WIDE)]
    assert times[1] / times[0] == pytest.approx(factor)


def test_logits_say_which_of_their_traffic_is_fp32():
    L = 2 * 512 * 4096
    assert ends(CONFIG.model, LayerRun(2))[1].forward.wide_bytes == 36 * L
    assert ends(CONFIG.model, LayerRun(2))[1].backward.wide_bytes == 12 * L
    both = ends(CONFIG.model, LayerRun(2))[1].forward + ends(CONFIG.model, LayerRun(2))[1].backward
    assert both.wide_bytes == 48 * L


def test_the_optimizer_moves_what_the_file_says():
    half = replace(SELENE, optimizer_bytes=30.0)

    def moving(cluster):
        return optimizer_step(CostModel(cluster), CONFIG, 1e9)

    assert moving(half) == pytest.approx(moving(SELENE) / 2)
