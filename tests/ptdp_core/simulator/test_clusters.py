"""The shipped cluster files: complete, sourced, and against public measurements of the machines that they describe."""

from dataclasses import MISSING, replace

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import PAPER, Software, load_cluster, simulate
from ptdp_core.simulator.cluster import (
    CLUSTER_FOLDER,
    NETWORK_FOLDER,
    NUMBERS,
    cluster_files,
    cluster_label,
    cluster_path,
    read_parameters,
)
from ptdp_core.simulator.kernels import KernelModel
from ptdp_core.simulator.network import Group, NetworkModel
from results.records import UNITS

NAMES = sorted(path.stem for path in CLUSTER_FOLDER.glob("*.toml"))
FABRICS = [f"h100+{path.stem}" for path in NETWORK_FOLDER.glob("*.toml")]
MODERN = ("a100-80", "h100", "h200", "b200")
VARIANTS = ("a100-40", "a800", "h100-500w", "h800", "b300", "gb200", "gb300", "gh200", "mi300x", "mi350x", "mi355x")
H100 = load_cluster("h100")
GPT = TrainingConfig(ModelConfig(32, 8192, 64), ParallelConfig(p=4, t=8, d=2, b=1, B=64))

# MiB and bus bandwidth in GB/s: github Azure/AI-benchmarking-guide, nccl-tests on ND H100 v5, H200 v5
SINGLE_NODE = {
    "h100": [(16, 234.45), (32, 295.53), (64, 361.78), (128, 400.61), (256, 423.38), (512, 438.46)],
    "h200": [(16, 240.41), (32, 300.91), (64, 368.11), (128, 412.45), (256, 432.24), (512, 442.72)],
}
# M, N, K, batch and TFLOP/s of short runs, in which the clock does not fall: github openxla/xla, sm_90
SHORT_GEMMS = [
    (4096, 4096, 4096, 1, 783.3),
    (4096, 4096, 2048, 1, 738.7),
    (4096, 4096, 1024, 1, 677.4),
    (4096, 2048, 4096, 1, 758.4),
    (4096, 1024, 4096, 1, 738.5),
    (2048, 2048, 4096, 1, 738.0),
    (4096, 4096, 4096, 2, 807.7),
    (4096, 4096, 1024, 2, 693.0),
    (4096, 4096, 512, 2, 607.7),
    (4096, 4096, 256, 2, 464.0),
    (2048, 2048, 2048, 4, 725.7),
    (1024, 1024, 4096, 4, 735.9),
]


def test_the_clusters_of_today_are_there_with_four_and_eight_hcas():
    assert {*MODERN, *(f"{name}-4hca" for name in MODERN), "selene"} <= set(NAMES)
    for name in MODERN:
        whole, half = load_cluster(name), load_cluster(f"{name}-4hca")
        assert (whole.gpus_per_hca, half.gpus_per_hca) == (1, 2)
        assert vars(replace(half, name=whole.name, gpus_per_hca=1)) == vars(whole)


@pytest.mark.parametrize("name", [*NAMES, *FABRICS])
def test_every_number_says_where_it_comes_from(name):
    needed = {name for name, field in NUMBERS.items() if field.default is MISSING}
    assert needed <= set(read_parameters(name)) <= NUMBERS.keys()
    for parameter in read_parameters(name).values():
        assert parameter.low <= parameter.value <= parameter.high
        assert parameter.unit in UNITS
        assert parameter.set_with
        assert len(parameter.source) > 15, parameter.name
        if parameter.source.startswith("assumed"):  # nobody measured it: the range says so
            assert parameter.high / parameter.low > 1.25, (name, parameter.name)
    if name.removesuffix("-4hca") in (*MODERN, *VARIANTS):  # no training run was looked at, but for two numbers
        known = ("public", "mechanism")
        fitted = {n for n, p in read_parameters(name).items() if p.set_with not in known}
        fitted -= {"expert_launch_time", "expert_cast_time"}
        assert all(read_parameters(name)[n] == read_parameters("selene")[n] for n in fitted)


@pytest.mark.parametrize("name", [*NAMES, *FABRICS])
def test_every_cluster_simulates(name):
    estimate = simulate(GPT, load_cluster(name))
    assert 0.15 < estimate.throughput_per_gpu / load_cluster(name).peak_flops < 0.75


def test_newer_gpus_are_faster():
    times = [simulate(GPT, load_cluster(name)).iteration_time for name in ("selene", *MODERN)]
    assert times == sorted(times, reverse=True)


def test_a_variant_differs_from_its_base_in_what_its_board_lacks():
    alone = TrainingConfig(ModelConfig(8, 4096, 32), ParallelConfig(b=2, B=64))
    for name, base in (("a800", "a100-80"), ("h800", "h100")):  # NVLink alone: a GPU by itself does not notice
        variant, other = load_cluster(name), load_cluster(base)
        assert simulate(alone, variant).iteration_time == simulate(alone, other).iteration_time
        assert simulate(GPT, variant).iteration_time > simulate(GPT, other).iteration_time
    smaller, larger = load_cluster("a100-40"), load_cluster("a100-80")
    assert KernelModel(smaller).memory_bound(1e9, 1) > KernelModel(larger).memory_bound(1e9, 1)
    assert simulate(GPT, load_cluster("h100-500w")).iteration_time > simulate(GPT, H100).iteration_time


@pytest.mark.parametrize(("name", "base"), [("b300", "b200"), ("gb300", "gb200")])
def test_blackwell_ultra_has_more_memory_and_twice_the_network(name, base):
    ultra, older = load_cluster(name), load_cluster(base)
    assert ultra.memory_bytes > 1.4 * older.memory_bytes
    assert ultra.hca_bandwidth == 2 * older.hca_bandwidth
    assert (ultra.peak_flops, ultra.gpus_per_node) == (older.peak_flops, older.gpus_per_node)
    replicas = replace(GPT, parallel=replace(GPT.parallel, d=8, B=256))  # on more GPUs than NVLink joins
    assert simulate(replicas, ultra).iteration_time < simulate(replicas, older).iteration_time


@pytest.mark.parametrize("name", SINGLE_NODE)
def test_all_reduces_inside_a_node_against_public_measurements(name):
    network = NetworkModel(load_cluster(name))
    for mebibytes, bus_bandwidth in SINGLE_NODE[name]:
        size = mebibytes * 2**20
        measured = 2 * 7 / 8 * size / (bus_bandwidth * 1e9)
        assert network.all_reduce(Group(8, 8), size) == pytest.approx(measured, rel=0.04)


@pytest.mark.parametrize(("mebibytes", "seconds"), [(10, 157e-6), (100, 647e-6), (1024, 4.52e-3)])
def test_all_reduces_over_two_nodes_against_public_measurements(mebibytes, seconds):
    """github drmysore/nebius-h100-16gpu-benchmark; the largest uses NVLink SHARP, not modelled here."""
    ours = NetworkModel(H100).all_reduce(Group(16, 8), mebibytes * 2**20)
    assert ours == pytest.approx(seconds, rel=0.3 if mebibytes > 1000 else 0.05)


def test_a_ring_over_128_nodes_against_a_public_measurement():
    """NVIDIA/nccl-tests issue 322: 16 GiB in 93.5 ms on 1024 H100."""
    assert NetworkModel(H100).all_reduce(Group(1024, 8), 2**34) == pytest.approx(93.46e-3, rel=0.03)


def test_gemms_in_short_runs_against_public_measurements():
    model = KernelModel(replace(H100, gemm_plateau=1.0, gemm_half_depth=0.0))
    errors = [2 * m * n * k * b / model.gemm(m, n, k, b) / (rate * 1e12) - 1 for m, n, k, b, rate in SHORT_GEMMS]
    assert sum(map(abs, errors)) / len(errors) < 0.06
    assert max(map(abs, errors)) < 0.13


def test_a_cluster_file_names_its_training_program(tmp_path):
    assert load_cluster("selene").software == PAPER
    assert load_cluster("h100").software == Software(
        overlapped_all_reduce=True, fused_accumulation=True, fp32_gradients=True, fused_cross_entropy=True, fsdp=True
    )
    assert load_cluster("h200").software == H100.software  # its base's
    older = simulate(GPT, H100, PAPER)
    assert simulate(GPT, H100).iteration_time < older.iteration_time
    assert simulate(GPT, H100) == simulate(GPT, H100, H100.software)
    file = tmp_path / "plain.toml"
    plain = 'name = "plain"\ndescription = "h100 with the paper\'s program"\nbase = "h100"\nsoftware = []\n'
    file.write_text(plain + "gradient_bytes = 2\n")
    assert simulate(GPT, load_cluster(str(file))).iteration_time == older.iteration_time
    file.write_text('name = "wrong"\ndescription = "-"\nbase = "h100"\nsoftware = ["warp_drive"]\n')
    load_cluster.cache_clear()
    with pytest.raises(ValueError, match=r"software=.'warp_drive'.; needs a list of some of overlapped_all_reduce"):
        load_cluster(str(file))


def test_the_files_of_a_cluster_are_its_own_and_its_bases():
    assert [path.stem for path in cluster_files("h200-4hca")] == ["h200-4hca", "h200", "h100", "selene"]
    assert [path.stem for path in cluster_files("gh200")] == ["gh200", "slingshot-11", "h100", "selene"]


def test_a_network_takes_the_place_of_the_numbers_between_nodes_and_of_no_other():
    h100, slower = load_cluster("h100"), load_cluster("h100+efa-400")
    assert (slower.tensor_hca_bandwidth, slower.gpus_per_hca) == (7.4e9, 2)
    assert (slower.nvlink_bandwidth_8, slower.gemm_plateau) == (h100.nvlink_bandwidth_8, h100.gemm_plateau)
    replicas = replace(GPT, parallel=replace(GPT.parallel, d=8, B=256))
    assert simulate(replicas, slower).iteration_time > simulate(replicas, h100).iteration_time
    inside = replace(GPT, parallel=ParallelConfig(t=8, B=8))
    assert simulate(inside, slower).iteration_time == simulate(inside, h100).iteration_time
    assert load_cluster("gh200").hca_bandwidth == load_cluster("h100+slingshot-11").hca_bandwidth  # it names it
    assert load_cluster("gh200+roce-400").hca_bandwidth == 44e9  # what is asked for counts more
    assert cluster_label("H100+efa-400") == "h100+efa-400"
    assert "efa-400" in [path.stem for path in cluster_files("h100+efa-400")]


def test_all_reduces_inside_a_node_of_mi300x_against_public_measurements():
    """RCCL on ND MI300X v5, Azure's AI-benchmarking-guide: MiB and bus bandwidth in GB/s."""
    network = NetworkModel(load_cluster("mi300x"))
    for mebibytes, bus in [(16, 171.46), (32, 230.35), (64, 266.34), (128, 290.81), (256, 302.80), (1024, 313.92)]:
        measured = 2 * 7 / 8 * mebibytes * 2**20 / (bus * 1e9)
        assert network.all_reduce(Group(8, 8), mebibytes * 2**20) == pytest.approx(measured, rel=0.04)


# ------------------------------------------------------------------------------------------- files of a user's own


@pytest.fixture
def own(tmp_path):
    """Writes a cluster file of a user's own; returns what `load_cluster` takes."""

    def write(text, name="mine.toml"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_a_value_alone_replaces_the_base_s_and_keeps_what_is_known_of_it(own):
    file = own('base = "h100"\nmemory_bytes = 85e9\nmultiprocessors = 132.0\n')
    mine, base = read_parameters(file), read_parameters("h100")
    changed = mine.pop("memory_bytes")
    assert changed == replace(base["memory_bytes"], value=85e9, source=changed.source, set_with="nothing")
    assert changed.source == f"mine.toml, in place of 8.552e+10 ({base['memory_bytes'].source})"
    assert load_cluster(file).memory_bytes == 85e9
    assert isinstance(load_cluster(file).multiprocessors, int)
    assert {name: number.value for name, number in mine.items()} == {
        name: number.value for name, number in base.items() if name != "memory_bytes"
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("memory_bytes = 1e9", r"memory_bytes=1e\+09 lies outside its plausible range, 8.49e\+10 to 8.59e\+10 B; it"),
        ("gemm_plateau = 0.95", r"gemm_plateau=0.95 lies outside its plausible range, [\d.]+ to [\d.]+; it"),
        ("gpus_per_node = 4", "gpus_per_node=4 lies outside its plausible range, 8 to 8; it"),
    ],
)
def test_a_value_alone_that_is_not_plausible_is_taken_and_said(own, line, said):
    file = own(f'base = "h100"\n{line}\n')
    with pytest.warns(UserWarning, match=f"{said} is taken as it is"):
        cluster = load_cluster(file)
    name, value = line.split(" = ")
    assert getattr(cluster, name) == float(value)


def test_a_file_that_is_its_own_base_is_said(own, tmp_path):
    other = own(f'base = "{tmp_path}/mine.toml"\n', "other.toml")
    with pytest.raises(ValueError, match=r"is its own base; needs another cluster"):
        load_cluster(own(f'base = "{other}"\n'))


def test_names_ignore_case(own):
    assert load_cluster("H100") is load_cluster("h100")
    assert load_cluster(own('base = "Selene"\n')).peak_flops == load_cluster("selene").peak_flops


@pytest.mark.parametrize("name", ["x" * 300, "zero\0", "nothing"])
def test_what_cannot_be_a_name_is_no_file(name, tmp_path):
    with pytest.raises(ValueError, match="is not there: no such file"):
        cluster_path(f"{tmp_path / name}.toml")
    with pytest.raises(ValueError, match="is unknown"):
        cluster_path(name)
