"""The benchmark of fused operators: a whole quick run without compiling, and what its record says."""

import pytest
import torch

from benchmarks.harness.benchmark_list import BENCHMARKS, results_of
from benchmarks.harness.timing import Step, wall_timer
from reproduce.annex.bench import fused_kernels
from reproduce.annex.bench.benchmark_run import run
from reproduce.annex.bench.fused_kernels_cases import Shape, attention, cases, largest_tensor, shapes
from reproduce.annex.bench.table import table

CPU = torch.device("cpu")
STEPS = ("forward", "backward")


@pytest.fixture(scope="module")
def record():
    """What a quick run gives; with the compiler off, because compiling takes minutes, and sequences of 16 tokens."""
    with pytest.MonkeyPatch.context() as patch, torch.compiler.set_stance("force_eager"):
        patch.setattr(fused_kernels, "QUICK_SEQUENCE", 16)
        patch.setattr(fused_kernels, "CPU_COPY_BYTES", 2**20)
        patch.setattr("reproduce.annex.bench.benchmark_run.QUICK_SAMPLES", 2)
        return run(BENCHMARKS["fused_kernels"], "cpu", True, ("test",), lambda done: None)


def test_the_record_has_every_operator_in_every_implementation(record):
    what = (record.kind, record.id, record.fidelity, record.scale)
    assert what == ("benchmark", "fused_kernels", "measured", "quick")
    operators = {case.operator for case in cases(Shape("tiny", 8, 256, 2), CPU, torch.float32)} - {"layer_norm"}
    assert operators >= {"causal_softmax", "masked_softmax", "attention_dropout", "bias_gelu", "bias_dropout_add"}
    wanted = {f"{operator}/175B/{name}" for operator in operators for name in ("reference", "compiled", "triton")}
    wanted |= {f"attention/175B/{name}" for name in ("[b, s, a, h]", "[s, b, a, h]", "sdpa")}
    wanted |= {"copy", "layer_norm/175B/reference", "layer_norm/175B/compiled"}
    assert {point.key for point in results_of(record)} == wanted
    assert {point.parameters["s"] for point in results_of(record) if point.key != "copy"} == {16}


def test_what_cannot_run_says_why(record):
    skipped = {point.series: point for point in record.points if point.status != "ok"}
    assert skipped["triton"].reason == "needs a GPU; the times of its interpreter say nothing"
    assert skipped["triton"].metrics == {}


def test_times_keep_their_samples_and_the_rest_follows_from_them(record):
    points = {point.key: point for point in record.points}
    metrics, baseline = (points[f"bias_gelu/175B/{name}"].metrics for name in ("compiled", "reference"))
    for step in STEPS:
        assert len(metrics[f"{step}_time"].samples) == 2
        assert metrics[f"{step}_time"].value == min(metrics[f"{step}_time"].samples)
        speedup = baseline[f"{step}_time"].value / metrics[f"{step}_time"].value
        assert metrics[f"{step}_speedup"].value == pytest.approx(speedup)
        assert baseline[f"{step}_speedup"].value == 1.0
        moved, time, share = (metrics[f"{step}_{what}"].value for what in ("bytes", "time", "share_of_copy"))
        reached = moved / time / share
        assert min(points["copy"].metrics["bandwidth"].samples) <= reached * (1 + 1e-9)
        assert reached <= max(points["copy"].metrics["bandwidth"].samples) * (1 + 1e-9)


def test_the_table_says_what_did_not_run(record):
    text = table(record)
    skipped = sum(point.series == "triton" for point in results_of(record))
    assert f"triton and {skipped - 1} more: skipped, needs a GPU" in text
    assert "bias_gelu/175B/compiled" in text


def test_bytes_at_the_paper_s_size():
    """175B on one of eight tensor-parallel GPUs: 12 heads, 2048 tokens, two bytes each."""
    shape = shapes(2048)[0]
    assert shape.scores == (1, 12, 2048, 2048)
    assert largest_tensor(shape, torch.float16) == 4 * 12 * 2048**2 * 2
    moved = {case.operator: dict(case.bytes_moved) for case in cases(Shape("tiny", 8, 256, 2), CPU, torch.float32)}
    triangle, square = 2 * 8 * 9 // 2 * 4, 2 * 64 * 4
    assert moved["causal_softmax"] == {"forward": triangle + square, "backward": 2 * triangle + square}
    assert moved["masked_softmax"] == {"forward": 2 * square + 64, "backward": 3 * square}
    assert moved["bias_gelu"] == {"forward": 2 * 8 * 128 * 4, "backward": 3 * 8 * 128 * 4}
    assert moved["bias_dropout_add"] == {"forward": 3 * 8 * 256 * 4, "backward": 2 * 8 * 256 * 4}


def test_both_layouts_and_sdpa_are_the_same_attention():
    case = attention(Shape("tiny", 8, 256, 2), CPU, torch.float64)
    (flat,) = case.inputs
    tokens_first = flat.detach()
    batch_first = tokens_first.view(8, 4, -1).transpose(0, 1).reshape(tokens_first.shape)
    s_first, sdpa = case.calls["[s, b, a, h]"](tokens_first), case.calls["sdpa"](tokens_first)
    b_first = case.calls["[b, s, a, h]"](batch_first)
    torch.testing.assert_close(s_first, sdpa)
    torch.testing.assert_close(s_first, b_first.transpose(0, 1))


def test_a_series_that_runs_out_of_memory_does_not_end_the_others():
    case = next(cases(Shape("tiny", 8, 256, 2), CPU, torch.float32))

    def greedy(x):
        raise torch.OutOfMemoryError("no")

    calls = {"reference": case.calls["reference"], "x": greedy}
    case = type(case)(case.operator, case.shape, {}, case.inputs, calls, {})
    copy = fused_kernels.Copy(Step.of(lambda: None), 1)
    points = fused_kernels.measure_case(case, wall_timer(), 1, copy, [], {})
    assert [(point.series, point.status) for point in points] == [("reference", "ok"), ("x", "oom")]
