"""`reproduce calibrate`: fits recover what made the timings, the file is a cluster's, nothing is half written."""

import os
import re
from dataclasses import asdict, replace
from math import exp, sin
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import Cluster, load_cluster, read_parameters, simulate
from ptdp_core.simulator.cluster import NUMBERS, PAPERS
from ptdp_core.simulator.kernels import KernelModel
from ptdp_core.simulator.network import Group, NetworkModel
from reproduce.annex.calibrate import checking_runs
from reproduce.annex.calibrate.fit import MEASURED, fit
from reproduce.annex.calibrate.gemm_fit import fit_gemms, gemm_error
from reproduce.annex.calibrate.lines import FitPoint, line
from reproduce.annex.calibrate.timings import CPU_LAYERS, GPU_LAYERS, DeviceTimings, Timings, gemms_of, layers_for
from reproduce.annex.calibrate.write import host_of, machine, text, write
from reproduce.cli import main
from results.records import errors
from tests.marks import by_default

SELENE = load_cluster("selene")
# A machine like a laptop: a rank is a core, ranks talk over loopback, everything is fp32.
LAPTOP = replace(
    SELENE,
    peak_flops=90e9,
    gpus_per_node=4,
    multiprocessors=1,
    memory_bandwidth=15e9,
    gemm_plateau=0.95,
    gemm_wave_efficiency=0.9,
    gemm_tile_intensity=12.0,
    gemm_write_efficiency=0.3,
    gemm_memory_efficiency=0.8,
    memory_efficiency=0.7,
    gemm_unaligned=1.0,
    stream_efficiency=1.0,
    kernel_gap=15e-6,
    host_per_call=0.0,
    **{f"nvlink_latency_{k}": k * 200e-6 for k in (2, 4, 8)},
    **{f"nvlink_bandwidth_{k}": 3e9 / k for k in (2, 4, 8)},
    nvlink_p2p_bandwidth=1.6e9,
    exchange_host_time=0.3e-3,
    microbatch_host_time=30e-6,
    iteration_host_time=5e-3,
    element_bytes=4,
    gradient_bytes=4,
    optimizer_bytes=20.0,
)
SIZES = [4096 * 4**i for i in range(8)]


def synthetic(cluster, device, groups=(2, 4)):
    """What would be measured on a machine that is exactly as the cost model says."""
    kernels, network = KernelModel(cluster), NetworkModel(cluster)
    layers = CPU_LAYERS if device == "cpu" else GPU_LAYERS
    all_reduce = {k: {size: network.all_reduce(Group(k, k), size) for size in SIZES} for k in groups}
    fixed = cluster.iteration_host_time - (2 * all_reduce[2][SIZES[0]] if groups else 0)
    timings = DeviceTimings(
        gemms={shape: kernels.gemm(*shape) for shape in gemms_of(layers)},
        copies={size: 2 * size / cluster.memory_bandwidth for size in (2**22, 2**27)},
        operators={size: kernels.memory_bound(cluster.element_bytes * size.moved[1], size.moved[0]) for size in layers},
        optimizer={n: fixed + kernels.streamed(cluster.optimizer_bytes * n) for n in (10**5, 10**6, 10**7)},
        call=cluster.kernel_gap,
        launch=cluster.host_per_call,
        fetch={(2, 128): cluster.microbatch_host_time},
        memory=cluster.memory_bytes,
        reserved=cluster.memory_reserved,
        multiprocessors=cluster.multiprocessors,
    )
    return Timings(
        device,
        "a machine, 4 cores",
        "fp32" if cluster.element_bytes == 4 else "fp16",
        cluster.gpus_per_node,
        timings,
        None,
        all_reduce,
        {k: {size: network.one_way(Group(k, k), size, 2) for size in SIZES} for k in groups},
        {
            (kind, size): cluster.exchange_host_time + size / cluster.nvlink_p2p_bandwidth
            for kind in ("one way", "exchange")
            for size in SIZES
        }
        if groups
        else {},
    )


def as_cluster(calibration):
    values = {name: p.value for name, p in calibration.parameters.items()}
    return Cluster("fitted", gemm_tiles=calibration.gemm_tiles, program=PAPERS, **values)


# ------------------------------------------------------------------------------------------------------------ fits

# Within this much the round trip gives back what the timings were made with: four digits are kept, grids are searched.
ROUND_TRIP = 0.02
BY_LINES = (
    "memory_bandwidth",
    "memory_efficiency",
    "kernel_gap",
    "nvlink_latency_2",
    "nvlink_latency_4",
    "nvlink_bandwidth_2",
    "nvlink_bandwidth_4",
    "nvlink_p2p_bandwidth",
    "exchange_host_time",
    "microbatch_host_time",
    "iteration_host_time",
    "optimizer_bytes",
)


@pytest.mark.parametrize("name", BY_LINES)
def test_the_fit_recovers_what_made_the_timings(name, laptop_fit):
    assert laptop_fit.parameters[name].value == pytest.approx(getattr(LAPTOP, name), rel=ROUND_TRIP)


@pytest.fixture(scope="module")
def laptop_fit():
    return fit(synthetic(LAPTOP, "cpu"))


@pytest.mark.parametrize(
    ("cluster", "device"), by_default([(LAPTOP, "cpu"), (SELENE, "cuda")], (SELENE, "cuda")), ids=["laptop", "selene"]
)
def test_gemm_numbers_that_matter_are_recovered_and_the_products_with_them(cluster, device):
    timings = synthetic(cluster, device).busy.gemms
    fitted = fit_gemms(timings, cluster)
    assert gemm_error(timings, cluster, {name: number.value for name, number in fitted.items()}) < 0.01
    for name in ("gemm_plateau", "gemm_wave_efficiency", "gemm_write_efficiency"):
        true = getattr(cluster, name)
        low, high = fitted[name].low, fitted[name].high
        assert low * (1 - ROUND_TRIP) <= true <= high * (1 + ROUND_TRIP), name


@pytest.mark.parametrize(
    "parallel",
    [
        {"B": 8},
        {"p": 2, "B": 16},
        {"p": 2, "v": 2, "B": 8},
        {"t": 2, "B": 4},
        {"d": 4, "B": 8},
        {"p": 2, "t": 2, "B": 8},
    ],
    ids=str,
)
def test_the_fitted_cluster_predicts_as_the_true_one(parallel, laptop_fit):
    config = TrainingConfig(
        ModelConfig(4, 256, 8, 128, 1024), ParallelConfig(b=2 if "t" in parallel else 1, **parallel)
    )
    expected = simulate(config, LAPTOP).iteration_time
    assert simulate(config, as_cluster(laptop_fit)).iteration_time == pytest.approx(expected, rel=ROUND_TRIP)


def test_a_disturbed_machine_still_gives_its_numbers():
    """Noise of 8% on everything, and one timing in ten that took three times as long."""

    def disturb(values):
        return {
            key: value * exp(0.08 * sin(7.0 * i)) * (3 if i % 10 == 3 else 1)
            for i, (key, value) in enumerate(values.items())
        }

    true = synthetic(LAPTOP, "cpu")
    busy = replace(true.busy, gemms=disturb(true.busy.gemms))
    timings = replace(true, busy=busy, messages=disturb(true.messages))
    parameters = fit(timings).parameters
    assert parameters["nvlink_p2p_bandwidth"].value == pytest.approx(LAPTOP.nvlink_p2p_bandwidth, rel=0.15)
    assert parameters["exchange_host_time"].value == pytest.approx(LAPTOP.exchange_host_time, rel=0.15)
    rate = parameters["gemm_plateau"].value * parameters["peak_flops"].value
    assert rate == pytest.approx(LAPTOP.gemm_plateau * LAPTOP.peak_flops, rel=0.15)


def test_every_number_has_unit_range_source_and_where_it_is_from(laptop_fit):
    selene = read_parameters("selene")
    assert set(selene) - {"host_per_call"} < set(laptop_fit.parameters)
    for name, parameter in laptop_fit.parameters.items():
        assert 0 < parameter.low <= parameter.value <= parameter.high, name
        assert len(parameter.source) > 10
        assert parameter.unit == (selene[name].unit if name in selene else "s")
    of_selene = {name for name, fitted in laptop_fit.parameters.items() if fitted.set_with == "selene"}
    of_network = {name for name in NUMBERS if re.search("hca|switch|network|hop|^p2p", name)}  # on one machine: none
    assert of_network < of_selene <= NUMBERS.keys() - set(BY_LINES)
    assert laptop_fit.parameters["network_latency"].source.startswith("not measured; as on selene: ")
    assert laptop_fit.measured == sum(fitted.set_with == MEASURED for fitted in laptop_fit.parameters.values()) > 20


def test_a_group_that_is_not_there_is_taken_from_the_largest_that_is(laptop_fit):
    eight = laptop_fit.parameters["nvlink_bandwidth_8"]
    assert eight.value == laptop_fit.parameters["nvlink_bandwidth_4"].value
    assert "not measured over 8: there are 4" in eight.source


def test_zero3_goes_at_the_slower_of_the_nodes_links_and_the_network(laptop_fit):
    inside = laptop_fit.parameters["zero3_bandwidth"]
    latency, rate = LAPTOP.nvlink_latency_4, LAPTOP.nvlink_bandwidth_4
    size = SIZES[-1]
    expected = 3 / 4 * size / (latency + 3 / 4 * size / rate)
    assert (inside.value, inside.set_with) == (pytest.approx(expected, rel=ROUND_TRIP), MEASURED)
    fast = synthetic(replace(SELENE, **{f"nvlink_latency_{k}": 1e-6 for k in (2, 4, 8)}), "cuda")
    assert fit(fast).parameters["zero3_bandwidth"].set_with == "selene"


def test_one_device_has_no_links_of_its_own():
    parameters = fit(synthetic(replace(SELENE, gpus_per_node=1), "cuda", groups=())).parameters
    for name in ("nvlink_latency_2", "nvlink_p2p_bandwidth", "zero3_bandwidth"):
        assert (parameters[name].value, parameters[name].set_with) == (getattr(SELENE, name), "selene")
    assert parameters["host_per_call"].value == SELENE.host_per_call
    assert parameters["element_bytes"].value == 2


def test_the_range_reaches_to_a_device_alone():
    both = synthetic(LAPTOP, "cpu")
    alone = replace(both.busy, copies={size: t / 1.5 for size, t in both.busy.copies.items()})
    number = fit(replace(both, alone=alone)).parameters["memory_bandwidth"]
    assert (number.value, number.high) == (pytest.approx(15e9), pytest.approx(22.5e9))


def test_a_line_goes_through_what_lies_on_one():
    rows = [FitPoint(1, size, 1e-4 + size / 2e9) for size in SIZES]
    fixed, rate = line([*rows[:3], rows[3]._replace(seconds=1.0), *rows[4:]])  # an outlier does not move it
    assert (fixed.value, rate.value) == (pytest.approx(1e-4), pytest.approx(2e9))
    fixed, rate = line([FitPoint(1, size, size / 2e9) for size in SIZES])
    assert fixed.value <= 1e-9
    assert rate.value == pytest.approx(2e9, rel=1e-4)
    with pytest.raises(ValueError, match="make no line; needs at least two timings; try more sizes"):
        line(rows[:1])


# ------------------------------------------------------------------------------------------------------------ file


def test_the_file_is_a_cluster_file(tmp_path, laptop_fit):
    path = tmp_path / "my.toml"
    write(path, text(laptop_fit, "my", 'a "machine", 4 cores', ["What, where, when."]))
    parameters = read_parameters(str(path))
    assert {name: asdict(parameter) for name, parameter in parameters.items()} == {
        name: asdict(parameter) for name, parameter in laptop_fit.parameters.items()
    }
    assert asdict(load_cluster(str(path))) == asdict(replace(as_cluster(laptop_fit), name=str(path)))
    assert path.read_text().startswith("# What, where, when.\n")
    assert host_of(str(path)) == 'a "machine", 4 cores'
    assert host_of("selene") is None


def test_a_file_that_no_command_could_read_is_not_written(tmp_path, laptop_fit):
    path = tmp_path / "my.toml"
    less = replace(laptop_fit, parameters={"peak_flops": laptop_fit.parameters["peak_flops"]})
    with pytest.raises(ValueError, match="lacks"):
        write(path, text(less, "my", "a machine", []))
    assert not path.exists()


# --------------------------------------------------------------------------------------------------------- command


@pytest.fixture
def measured(monkeypatch):
    """The command finds the laptop's timings without measuring; the list counts how often it asked."""
    calls = []

    def measure_node(device, ranks, host, done):
        calls.append(host)
        return synthetic(LAPTOP, "cpu")

    monkeypatch.setattr("reproduce.annex.calibrate.measure.measure_node", measure_node)
    monkeypatch.setattr("reproduce.annex.calibrate.measure.canary", lambda device: None)
    monkeypatch.setattr("reproduce.annex.calibrate.measure.disturbed", lambda before, after: False)
    return calls


def test_calibrate_writes_a_cluster_that_predicts(tmp_path, measured, said, as_json):
    out = tmp_path / "my.toml"
    printed = said("calibrate", "--out", out, "--device", "cpu")
    assert f"next: reproduce accuracy --cluster {out}" in printed.replace("python -m reproduce", "reproduce")
    assert "mean difference: GEMMs" in printed
    assert re.search(r"^network_latency +20 us +5 us to 40 us +selene$", printed, re.MULTILINE)
    header = out.read_text().split("[peak_flops]")[0].replace("\n# ", " ")
    for words in ("# Measured by `", "a machine, 4 cores", "Z, with 4 ranks", "by microbenchmarks alone"):
        assert words in header
    points = tmp_path / "points.json"
    points.write_text('[{"layers": 4, "hidden": 256, "heads": 8, "seq": 128, "vocab": 1024, "p": 2, "B": 8}]')
    assert as_json("simulate", points, "--cluster", out)["points"][0]["status"] == "ok"


def test_calibrate_as_json(tmp_path, measured, as_json):
    document = as_json("calibrate", "--out", tmp_path / "a.toml", "--device", "cpu")
    assert (document["device"], document["ranks"], document["quiet"]) == ("cpu", 4, True)
    assert set(document["errors"]) == {"GEMMs", "other operators", "all-reduces", "messages"}
    assert {parameter["name"] for parameter in document["parameters"]} > {"peak_flops", "element_bytes"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path, measured, refused):
    tmp_path.chmod(0o500)
    assert "needs a folder that can be written" in refused(
        "calibrate", "--out", tmp_path / "my.toml", code=errors.UNAVAILABLE
    )


def test_an_interrupted_calibration_leaves_the_old_file(tmp_path, measured, monkeypatch, capsys):
    out = tmp_path / "my.toml"
    out.write_text("old")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduce.annex.calibrate.measure.measure_node", interrupted)
    assert main(["calibrate", "--out", str(out), "--force", "--device", "cpu"]) == errors.INTERRUPTED
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["my.toml"]
    assert "resume with" in capsys.readouterr().err


def test_a_rank_that_fails_is_said_in_one_line(tmp_path, measured, monkeypatch, capsys):
    from ptdp_core.launch.local import RankError

    def broken(*arguments):
        raise RankError(1, None, "failed: OutOfMemoryError: CUDA out of memory\nTraceback ...")

    monkeypatch.setattr("reproduce.annex.calibrate.measure.measure_node", broken)
    assert main(["calibrate", "--out", str(tmp_path / "my.toml"), "--device", "cpu"]) == errors.UNAVAILABLE
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("reproduce: measuring failed: rank 1 failed: OutOfMemoryError: CUDA out of memory")
    assert list(tmp_path.iterdir()) == []


def test_force_replaces(tmp_path, measured):
    out = tmp_path / "my.toml"
    out.write_text("old")
    assert main(["calibrate", "--out", str(out), "--force", "--device", "cpu"]) == errors.DONE
    assert read_parameters(str(out))


# ------------------------------------------------------------------------------------------------------------ runs


def test_the_trials_cover_the_layouts():
    trials = checking_runs.trials("cpu", 2)
    assert len(trials) >= 12
    assert len({checking_runs.label_of(trial) for trial in trials}) == len(trials)
    layouts = [trial.parallel for trial in trials]
    for axis in "ptdv":
        assert any(getattr(layout, axis) > 1 for layout in layouts), axis
    assert sum(layout.n == 1 for layout in layouts) >= 3
    assert any(layout.n > 2 for layout in layouts)  # ranks that share cores
    assert all(trial.parallel.n <= 2 for trial in checking_runs.trials("cuda", 2))


def test_the_operators_measured_are_a_layers():
    import torch

    from kernels import select
    from reproduce.annex.calibrate.measure import layer_operators
    from reproduce.annex.calibrate.timings import LayerSize

    forward, leaves = layer_operators(LayerSize(8, 2, 16, 4), "fp32", torch.device("cpu"), select("auto"))
    outputs = forward()
    assert [tuple(y.shape) for y in outputs] == [(8, 2, 16), (8, 2, 64), (2, 4, 8, 8)]
    gradients = torch.autograd.grad(outputs, leaves, [torch.ones_like(y) for y in outputs])
    # At least inputs and outputs of both passes move: of three tensors [s, b, h] and their gradients, and so on.
    n, wide, scores = (x.numel() for x in leaves[:3])
    assert LayerSize(8, 2, 16, 4).moved == (15, 24 * n + 5 * wide + 3.5 * scores)
    assert sum(x.numel() for x in (*leaves, *outputs, *gradients)) < 24 * n + 5 * wide + 3.5 * scores


def test_the_hosts_time_is_that_of_a_whole_layer_with_autograd():
    """Its products, their gradients and autograd's own calls are in a training step's host time, too."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from reproduce.annex.calibrate.measure import layer_step
    from reproduce.annex.calibrate.timings import LayerSize

    run = []

    class Counted(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            run.append(operator.name())
            return operator(*args, **(kwargs or {}))

    step = layer_step(LayerSize(8, 1, 16, 4), "fp32", torch.device("cpu"))
    with Counted():
        step.run(step.prepare())
    assert sum(name.removesuffix("_") in ("aten::mm", "aten::addmm") for name in run) == 12


def test_on_a_gpu_no_efficiency_is_above_1():
    """Counting bytes of operators that did not run made 1.288 of an H100's memory bandwidth, and a plateau of 1."""
    h100 = load_cluster("h100")
    true = synthetic(replace(h100, gpus_per_node=1), "cuda", groups=())
    parameters = fit(true, base="h100").parameters
    for name in ("gemm_plateau", "memory_efficiency"):
        assert parameters[name].value == pytest.approx(getattr(h100, name), rel=ROUND_TRIP)
    assert all(p.value <= 1 for name, p in parameters.items() if name.endswith(("_efficiency", "_plateau")))
    fast = replace(true, busy=replace(true.busy, operators={k: v / 2 for k, v in true.busy.operators.items()}))
    with pytest.raises(errors.UnavailableError, match=r"memory_efficiency=1\.\d+ .*; needs at most 1; try again"):
        fit(fast, base="h100")


def test_layers_are_as_large_as_the_memory_allows():
    assert layers_for(False, 8e9) == CPU_LAYERS
    assert layers_for(True, 85e9) == GPU_LAYERS
    assert layers_for(True, 16e9) == GPU_LAYERS[:3]
    assert layers_for(True, 1.0) == GPU_LAYERS[:2]


def test_machines_are_named_by_class():
    from results.records import Host

    host = Host("Linux 6", "x86_64", "EPYC", 64, 10**12, ("H100",), 8)
    assert machine(host, "cuda") == "8 x H100"
    assert machine(host, "cpu") == "EPYC, 64 cores"


@pytest.mark.slow
def test_this_machine(tmp_path, as_json):
    """A real calibration: plausible numbers, and predictions of real steps that beat the FLOPs over the peak."""
    out, results = tmp_path / "my.toml", tmp_path / "results"
    assert (
        main(["calibrate", "--out", str(out), "--device", "cpu", "--check", "--results", str(results)]) == errors.DONE
    )
    cluster = load_cluster(str(out))
    assert 1e8 < cluster.memory_bandwidth < 1e12
    assert 1e8 < cluster.peak_flops < 1e13
    scores = as_json("accuracy", "--cluster", out, "--results", results)["scores"]["all"]
    assert scores["n"] == len(checking_runs.trials("cpu", 2))
    assert scores["mean"] < min(scores["baselines"].values())
    assert not list(Path(tmp_path).glob(".*"))
