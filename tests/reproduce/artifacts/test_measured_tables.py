"""What is measured that is no training step: fused operators and checkpoints, from what their ranks return."""

import json

import pytest

from benchmarks.harness.timing import Samples
from ptdp_core.config import ModelConfig, ParallelConfig
from reproduce.annex.bench.checkpoint import CheckpointTimes
from reproduce.annex.bench.fused_step import Fusion
from reproduce.experiment import catalog
from reproduce.experiment.judging import judge
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import CPU, GPU, settings_of
from reproduce.papers.sc21 import table_checkpoint, table_fused_operators
from reproduce.running import runner
from results import ROOT
from results.records import Metric, read_record
from tests.points import made


class Answer:
    """A launcher whose ranks all return the same."""

    def __init__(self, result, folder=None):
        self.result, self.folder, self.calls = result, folder, []

    def __call__(self, function, ranks, args, device):
        self.calls.append((function.__name__, ranks, args, device))
        return [self.result] * ranks


def operator(name, series, forward, backward, reason=None):
    times = {"forward_time": forward, "backward_time": backward}
    metrics = {} if reason else {k: Metric(min(v), "s", "measured", v) for k, v in times.items()}
    how = {"status": "skipped", "reason": reason} if reason else {}
    return made(name + series, metrics, series=series, label=name, operator=name, **how)


@pytest.fixture
def fusion():
    operators = [
        operator("causal_softmax", "reference", (2.0, 3.0, 9.0), (1.0, 1.0, 4.0)),
        operator("causal_softmax", "compiled", (1.0, 1.5, 2.0), (2.0, 2.0, 2.0)),
        operator("causal_softmax", "triton", (), (), "needs a GPU"),
        operator("bias_gelu", "reference", (1.0,), (1.0,)),
        operator("bias_gelu", "compiled", (), (), "needs a C++ compiler"),
    ]
    return Fusion(operators, {"reference": Samples((3.0, 2.0, 9.0)), "compiled": Samples((2.0, 1.0, 4.0))})


def test_operators_and_the_step_come_from_one_measurement(fusion):
    points = {point.parameters["what"]: point for point in catalog.load("table_fused_operators").points(CPU)}
    launcher = Answer(fusion)
    take = table_fused_operators.measure(launcher)
    step, softmax = take(points["training step"]), take(points["causal_softmax"])
    assert [(name, ranks, device) for name, ranks, _, device in launcher.calls] == [("measure_here", 1, "cpu")]
    assert step["speedup"] == Metric(1.5, "1", "derived")
    assert step["unfused_time"] == Metric(3.0, "s", "measured", (3.0, 2.0, 9.0))
    ratio = step["fused_throughput"].value / step["unfused_throughput"].value
    assert ratio == pytest.approx(1.5)
    assert softmax["unfused_time"].value == 4.0  # median forward 3, median backward 1
    assert softmax["fused_time"].value == 3.5
    assert softmax["speedup"].value == pytest.approx(4.0 / 3.5)
    assert (softmax["forward_speedup"].value, softmax["backward_speedup"].value) == (2.0, 0.5)
    with pytest.raises(RuntimeError, match=r"bias_gelu with compiled: needs a C\+\+ compiler"):
        take(points["bias_gelu"])


def test_a_gpu_has_the_custom_kernels():
    points = catalog.load("table_fused_operators").points(GPU)
    assert {point.parameters["kernels"] for point in points} == {"triton"}
    assert {point.parameters["what"] for point in points} == {
        table_fused_operators.STEP,
        *table_fused_operators.OPERATORS,
    }


def test_the_step_that_an_h100_ran_is_the_first_runs_and_is_no_test_of_the_papers_sizes():
    run = json.loads((ROOT / "results/reference/gpu/first_run.json").read_text(encoding="utf-8"))
    record = read_record(ROOT / "results/reference/table_fused_operators/measured-gpu/record.json")
    assert record.provenance.commit.startswith(run["commit"])
    assert record.provenance.host.gpus == ("NVIDIA H100 80GB HBM3",)
    (point,) = record.points
    assert point.parameters == catalog.load("table_fused_operators").points(GPU)[0].parameters
    settings = settings_of(point.parameters)
    for name, case in (("fused", "gpt-paper"), ("unfused", "gpt-paper-unfused")):
        assert list(point.metrics[f"{name}_time"].samples) == run["cases"][case]["seconds"]
        assert point.metrics[f"{name}_time"].value == run["cases"][case]["median"]
    assert settings.model == ModelConfig(**run["cases"]["gpt-paper"]["model"])
    assert settings.parallel == ParallelConfig(**run["cases"]["gpt-paper"]["parallel"])
    claims = [judge(claim, Results.of_record(record)) for claim in catalog.load("table_fused_operators").claims]
    assert {claim.verdict for claim in claims} == {"not testable here"}
    gains = [claim for claim in claims if not claim.id.endswith("_levels")]
    assert len(gains) == 2
    assert all("measured at another size" in claim.explanation and "+139%" in claim.explanation for claim in gains)
    assert tuple(claims) == record.claims


def test_checkpoints(tmp_path):
    launcher = Answer(CheckpointTimes(Samples((0.2, 0.1, 0.4)), Samples((0.05,)), 1000), tmp_path)
    points = catalog.load("table_checkpoint").points(CPU)
    metrics = table_checkpoint.measure(launcher)(points[2])
    ((_, ranks, (_, parallel, _, folder), device),) = launcher.calls
    assert (ranks, parallel.p, parallel.t, device) == (4, 2, 2, "cpu")
    assert folder.startswith(str(tmp_path))  # the file system of the results is what is measured
    assert not list(tmp_path.iterdir())
    assert metrics["save_bandwidth"].value == pytest.approx(5000)
    assert metrics["load_bandwidth"].value == pytest.approx(20000)
    assert metrics["checkpoint_size"] == Metric(1000, "B", "derived")


def test_a_checkpoint_is_really_saved_and_loaded(tmp_path):
    """The first point, one rank, with a model small enough for a test."""
    artifact = catalog.load("table_checkpoint")
    plan = runner.plan(artifact, tmp_path, "measured", CPU)
    first = plan.points[0]
    tiny = {**first.parameters, "layers": 1, "hidden": 64, "heads": 2, "vocab": 128}
    small = plan.__class__(**{**vars(plan), "points": (first.__class__(first.key, "", first.label, tiny),)})
    (point,) = runner.run(small, ["reproduce"]).record.points
    assert point.status == "ok", point.reason
    parameters = 12 * 64**2 + 13 * 64 + (128 + 64) * 64 + 2 * 64
    assert point.metrics["checkpoint_size"].value > 12 * parameters  # three numbers of 4 bytes each
    assert len(point.metrics["save_time"].samples) == table_checkpoint.SAMPLES
    assert not [path.name for path in plan.folder.iterdir() if path.name.startswith(".")]
