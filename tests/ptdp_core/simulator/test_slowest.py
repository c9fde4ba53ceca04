"""The slowest of many GPUs, for which all others wait: against draws, and against the two nodes that set its spread."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.kernels import KernelModel, slowest_of
from ptdp_core.simulator.network import Group

H100 = load_cluster("h100")


def slower(gpus, cluster=H100):
    return cluster.gemm_plateau / slowest_of(cluster, gpus).gemm_plateau - 1


@pytest.mark.parametrize("gpus", [2, 8, 64, 1024])
def test_the_slowest_is_as_slow_as_the_slowest_of_random_gpus(gpus):
    draw = random.Random(gpus)
    slowest = [max(draw.gauss(0, H100.gpu_spread) for _ in range(gpus)) for _ in range(40_000 // gpus + 400)]
    assert slower(gpus) == pytest.approx(sum(slowest) / len(slowest), rel=0.05)


def test_the_slowest_of_eight_is_that_of_the_nodes_in_its_source():
    for slowest, median in ((745, 755), (1421, 1439)):
        assert 1 / (1 + slower(8)) == pytest.approx(slowest / median, abs=1e-3)


def test_products_and_attention_wait_and_nothing_else_does():
    slow, usual = CostModel(slowest_of(H100, 512)), CostModel(H100)
    for recipe in ({}, {"fp8_recipe": "delayed"}):
        config = TrainingConfig.from_plain(PLAIN | recipe)
        times = [model.stages(config)[1] for model in (usual, slow)]
        assert 1 < times[1].layers_forward / times[0].layers_forward < 1 + slower(512)
    kernels = KernelModel(slowest_of(H100, 512)), KernelModel(H100)
    assert kernels[0].gemm(8192, 8192, 8192) == pytest.approx(kernels[1].gemm(8192, 8192, 8192) * (1 + slower(512)))
    assert kernels[0].memory_bound(1e9, 1) == kernels[1].memory_bound(1e9, 1)
    assert slow.network.all_reduce(Group(8, 8), 1e9) == usual.network.all_reduce(Group(8, 8), 1e9)


PLAIN = {"layers": 8, "hidden": 4096, "heads": 32, "t": 8, "p": 8, "d": 8, "b": 1, "B": 128, "attention": "sdpa"}


def test_an_iteration_is_that_of_the_slowest_of_its_gpus():
    config = TrainingConfig.from_plain(PLAIN)
    alike = replace(slowest_of(H100, config.parallel.n), gpu_spread=0.0)
    assert simulate(config, H100).iteration_time == simulate(config, alike).iteration_time
    assert simulate(config, H100).iteration_time > simulate(config, replace(H100, gpu_spread=0.0)).iteration_time
    assert simulate(config, H100).peak_memory == simulate(config, alike).peak_memory


def test_no_job_s_times_forget_the_slowest_of_its_gpus():
    """`CostModel` is made in one place, which asks for the number of GPUs."""
    root = Path(__file__).parents[3]
    sources = [path for package in ("ptdp_core", "benchmarks", "reproduce") for path in (root / package).rglob("*.py")]
    makes = re.compile(r"(?<!class )CostModel\(|(?<!def )\bslowest_of\(|_of_slowest\(")
    made = {str(path.relative_to(root)): len(makes.findall(path.read_text())) for path in sources}
    assert {path: times for path, times in made.items() if times} == {"ptdp_core/simulator/costs.py": 2}


def test_one_gpu_and_the_papers_cluster_wait_for_nobody():
    assert slowest_of(H100, 1) is H100
    assert all(slowest_of(load_cluster(name), 3072) is load_cluster(name) for name in ("selene", "jean_zay", "vtrain"))
