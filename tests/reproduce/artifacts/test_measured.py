"""Fidelity 'measured': what is defined for it, what a run keeps, and what becomes of points whose ranks fail."""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks.harness.profiling import GpuState
from benchmarks.harness.step_time import OnGpu, StepTimes
from reproduce.annex.measured import fidelity as measured
from reproduce.commands.run import exit_code
from reproduce.experiment import catalog
from reproduce.experiment.fidelity import folder_name
from reproduce.experiment.sweep import CPU, GPU, GPUS, Level, Sweep, level, ranks_of, settings_of
from reproduce.output import chart, theme
from reproduce.running import runner
from reproduce.running.fidelities import default_scale, evaluator, expected_seconds
from results.records import Metric
from results.records.errors import DONE, POINTS_FAILED, UnavailableError
from tests.reproduce import measured_jobs

IDS = [id for id in catalog.ids() if "measured" in catalog.load(id).fidelities]
AT_SCALES = [(id, scale) for id in IDS for scale in catalog.load(id).scales_at("measured")]
TINY = {"layers": 2, "hidden": 16, "heads": 2, "seq": 8, "vocab": 32}


def with_measured(artifact, *ranks, measure=None):
    """The artifact with a measured sweep over p."""
    x = tuple(level(f"p={p}", p=p) for p in ranks)
    sweep = Sweep(series=(Level("1F1B", "1f1b", {}),), x=x, d=1, B=2, **TINY)
    return replace(artifact, subject="Tiny", sweeps={**artifact.sweeps, "cpu": sweep}, measure=measure)


@pytest.fixture
def tiny(small):
    """The small artifact with two measured points, of one and of two ranks."""
    return with_measured(small, 1, 2)


def test_the_paper_s_experiments_that_make_sense_are_there():
    assert set(IDS) >= {
        *("fig_interleaved", "fig_scatter_gather", "fig_microbatch", "fig_recomputation", "fig_tensor_vs_pipeline"),
        *("fig_pipeline_vs_data", "fig_tensor_vs_data", "fig_pipeline_weak_scaling", "table_weak_scaling"),
        *("fig_microbatch_single_gpu", "table_fused_operators", "table_checkpoint", "table_zero3", "fig_zero3"),
        "fig_sequence_parallel",
    }
    assert {id for id, scale in AT_SCALES if scale == CPU} == set(IDS)
    assert {id for id, scale in AT_SCALES if scale == GPU} >= {
        *("fig_microbatch_single_gpu", "table_fused_operators", "fig_recomputation", "table_checkpoint")
    }


@pytest.mark.parametrize(("id", "scale"), AT_SCALES)
def test_points_can_run_on_their_devices(id, scale):
    artifact = catalog.load(id)
    points = artifact.points(scale)
    assert not any(point.paper for point in points)
    for point in points:
        settings = settings_of(point.parameters)  # raises for what the engine would not
        assert settings.parallel.n == ranks_of(point.parameters) <= {CPU: 4, GPU: 1, GPUS: 4}[scale]
        assert settings.engine.device == ("cpu" if scale == CPU else "cuda")
    scaled = artifact.at(scale)
    assert scaled.title != artifact.title
    assert scale != CPU or not {"teraFLOP/s", "s", "TB"} & {quantity.shown for quantity in scaled.quantities}


def test_units_of_a_cpu_keep_their_values():
    paper, cpu = (catalog.load("fig_interleaved").at(scale).main for scale in ("paper", CPU))
    assert paper.heading == "eq. 3 throughput per GPU (teraFLOP/s)"
    assert cpu.heading == "eq. 3 throughput per process (gigaFLOP/s)"
    assert cpu.axis == "Achieved gigaFLOP/s per process (eq. 3)"
    assert float(cpu.show(2e12)) == 1000 * float(paper.show(2e12))


def test_metrics_of_a_step():
    settings = settings_of({**TINY, "p": 2, "B": 4})
    metrics = measured.step_metrics(settings, [StepTimes((0.2, 0.1, 0.4))] * 2)
    flops = 96 * 4 * 8 * 2 * 16**2 * (1 + 8 / (6 * 16) + 32 / (16 * 2 * 16))  # eq. (3)
    assert metrics["iteration_time"] == Metric(0.2, "s", "measured", (0.2, 0.1, 0.4))
    assert metrics["throughput_per_gpu"].value == pytest.approx(flops / 2 / 0.2)
    assert metrics["throughput_per_gpu"].samples == pytest.approx((flops / 0.4, flops / 0.2, flops / 0.8))
    assert metrics["aggregate_throughput"].value == pytest.approx(flops / 0.2)
    assert metrics["model_throughput_per_gpu"].value < metrics["throughput_per_gpu"].value
    assert metrics["tokens_per_s"].value == pytest.approx(4 * 8 / 0.2)
    assert metrics["sequences_per_s"].value == pytest.approx(4 / 0.2)
    assert "peak_memory" not in metrics


def test_metrics_of_a_step_on_gpus():
    settings = settings_of({**TINY, "p": 2, "B": 4})
    gpus = [OnGpu(7, 2e12, 0.02, GpuState(1.7e9, 500.0, 61.0)), OnGpu(9, 1e12, 0.05, GpuState(1.9e9, 300.0, 55.0))]
    metrics = measured.step_metrics(settings, [StepTimes((0.2, 0.1), gpu) for gpu in gpus])
    assert metrics["peak_memory"] == Metric(9, "B", "measured", (7, 9))
    assert metrics["idle_share"] == Metric(0.05, "1", "measured", (0.02, 0.05))
    assert metrics["gpu_clock"] == Metric(1.7e9, "Hz", "measured", (1.7e9, 1.9e9))
    assert (metrics["gpu_power"].value, metrics["gpu_temperature"].value) == (500.0, 61.0)
    assert metrics["mfu"].value == pytest.approx(metrics["model_throughput_per_gpu"].value / 1e12)
    unknown = measured.step_metrics(settings, [StepTimes((0.1,), OnGpu(7, 1e12, 0.0, None))])
    assert "gpu_clock" not in unknown


def test_on_gpus_points_are_measured_in_another_order_and_reported_in_theirs(tiny, tmp_path, monkeypatch):
    """As on GPUs, with what their ranks would say."""
    plan = runner.plan(with_measured(tiny, 1, 2, 3, 4, 5), tmp_path, "measured", CPU)
    order = []
    gpu = OnGpu(7, 1e12, 0.03, GpuState(1.7e9, 500.0, 61.0))

    def take(point):
        order.append(point.key)
        return measured.step_metrics(settings_of({**TINY, "B": 4}), [StepTimes((1e-3 * len(order),), gpu)])

    evaluate = measured.Measured(replace(plan, scale=GPUS), "0" * 64, take=take)
    monkeypatch.setattr(runner, "evaluator", lambda plan, debug: evaluate)
    record = runner.run(plan, ["reproduce"]).record
    keys = [point.key for point in plan.points]
    assert sorted(order) == sorted(keys)
    assert order != keys
    assert [point.key for point in record.points] == keys
    assert "Clock while a step ran: 1.7 GHz." in record.notes
    assert any(
        note.startswith("Share of a step in which a GPU waited") and note.endswith(": 3%.") for note in record.notes
    )


def test_a_run_trains(tiny, tmp_path):
    plan = runner.plan(tiny, tmp_path, "measured", CPU)
    assert plan.folder == tmp_path / tiny.id / "measured"
    record = runner.run(plan, ["reproduce"]).record
    assert (record.fidelity, record.scale, record.title) == ("measured", CPU, "Tiny, 2 CPU processes")
    for point in record.points:
        assert point.status == "ok", point.reason
        time = point.metrics["iteration_time"]
        assert len(time.samples) == measured.STEPS["cpu"] >= 5
        assert time.origin == point.metrics["throughput_per_gpu"].origin == "measured"
        assert point.parameters["dtype"] == "fp32"
        assert point.parameters["schedule"] == "1f1b"  # a default, filled in
    assert not any("points" in note for note in record.notes)  # the artifact's own speak of the paper's
    assert any("share the" in note and "not more hardware" in note for note in record.notes)
    assert record.claims[0].verdict == "not testable here"
    assert record.claims[0].explanation == "speaks of scale paper; these results are at cpu"
    again = runner.run(plan, ["reproduce"])
    assert (again.computed, again.reused) == (0, 2)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("kill", "rank 1 was killed by SIGKILL before it was done"),
        ("raise", "rank 1 failed: ArithmeticError: rank with"),
    ],
)
def test_a_rank_that_fails_takes_only_its_point(how, reason, small, tmp_path):
    def take(launcher, point):
        ranks = ranks_of(point.parameters)
        job, args = (measured_jobs.misbehave, (how, 1)) if ranks == 2 else (measured_jobs.name_yourself, ("fine",))
        assert launcher(job, ranks, args, "cpu")
        return {"square": Metric(1.0, "s", "measured", (1.0,))}

    artifact = with_measured(small, 2, 1, measure=lambda launcher: partial(take, launcher))
    done = runner.run(runner.plan(artifact, tmp_path, "measured"), ["reproduce"])
    broken, fine = done.record.points
    assert (broken.status, fine.status) == ("failed", "ok")
    assert broken.reason.startswith(reason)
    assert "\n" not in broken.reason
    assert exit_code(done, strict=False) == POINTS_FAILED
    repaired = with_measured(small, 1, measure=lambda launcher: partial(take, launcher))
    assert exit_code(runner.run(runner.plan(repaired, tmp_path, "measured"), ["reproduce"]), strict=False) == DONE


def test_too_little_memory_is_a_result(small, tmp_path):
    from ptdp_core.launch.local import RankError

    def out(launcher):
        def take(point):
            raise RankError(0, 13, "failed: OutOfMemoryError: CUDA out of memory.\nTraceback")

        return take

    artifact = with_measured(small, 1, measure=out)
    (point,) = runner.run(runner.plan(artifact, tmp_path, "measured"), ["reproduce"]).record.points
    assert (point.status, point.reason) == ("oom", "rank 0 failed: OutOfMemoryError: CUDA out of memory.")


def test_the_scale_follows_the_devices(monkeypatch):
    artifact = catalog.load("fig_recomputation")
    for there, scale in ((0, CPU), (1, GPU), (3, GPU), (4, GPUS), (8, GPUS)):
        monkeypatch.setattr(measured, "gpus_found", lambda launcher="local", there=there: there)
        assert default_scale(artifact, "measured") == scale
    assert default_scale(artifact, "simulated") == "paper"
    monkeypatch.setattr(measured, "gpus_found", lambda launcher="local": 1)
    assert default_scale(catalog.load("fig_interleaved"), "measured") == CPU


def test_a_scale_that_the_devices_cannot(monkeypatch, tmp_path):
    artifact = catalog.load("fig_recomputation")
    monkeypatch.setattr(measured, "gpus_found", lambda launcher="local": 1)
    with pytest.raises(
        UnavailableError, match=r"^scale gpus needs 4 GPUs, and PyTorch sees 1 GPU here; try --scale gpu$"
    ):
        evaluator(runner.plan(artifact, tmp_path, "measured", GPUS))
    evaluator(runner.plan(artifact, tmp_path, "measured", GPU))


def test_fingerprints_know_the_launcher_and_the_configuration(monkeypatch, tiny, tmp_path):
    monkeypatch.delenv("MASTER_PORT", raising=False)
    local, torchrun = (
        evaluator(runner.plan(tiny, tmp_path, "measured", CPU, launcher=name)) for name in ("local", "torchrun")
    )
    first, second = tiny.points(CPU)
    assert local.fingerprint(first) == evaluator(runner.plan(tiny, tmp_path, "measured")).fingerprint(first)
    assert len({local.fingerprint(first), local.fingerprint(second), torchrun.fingerprint(first)}) == 3


def test_no_claim_is_judged_on_cpu_ranks_that_share_cores():
    claims = [claim for id in IDS for claim in catalog.load(id).claims]
    assert not any(CPU in claim.scales for claim in claims)
    assert any(GPUS in claim.scales for claim in claims)


def test_time_that_is_expected(tmp_path):
    seconds = expected_seconds(runner.plan(catalog.load("table_fused_operators"), tmp_path, "measured", CPU))
    assert seconds[0] > 0
    assert set(seconds[1:]) == {0.0}  # all is measured with the first
    assert folder_name("measured", CPU) == "measured"
    assert folder_name("measured", GPUS) == "measured-gpus"


def test_the_figure_shows_the_spread_and_the_devices(tmp_path):
    artifact = catalog.load("fig_microbatch_single_gpu")
    points = artifact.points(CPU)

    def take(launcher):
        def of(point):
            rate = 1e9 * point.parameters["b"]
            return {"model_throughput_per_gpu": Metric(rate, "FLOP/s", "measured", (rate, rate / 2, 2 * rate))}

        return of

    spread_artifact = replace(artifact, measure=take)
    plan = runner.plan(spread_artifact, tmp_path, "measured", CPU)
    record = runner.run(plan, ["reproduce"]).record
    with theme.style():
        figure = plan.artifact.draw(plan.artifact, record)
    (axes,) = figure.axes
    (bars,) = axes.collections
    b = [point.parameters["b"] for point in points]
    expected = [(0.6 * value, 1.8 * value) for value in b]  # a tenth and nine tenths of 1/2, 1 and 2 times it
    assert [tuple(segment[:, 1]) for segment in bars.get_segments()] == [pytest.approx(span) for span in expected]
    assert axes.get_ylabel() == "Achieved gigaFLOP/s per\nprocess (model FLOPs)"
    assert chart.origin_lines(plan.artifact, record)[0].startswith("measured: ptdp's engine on ")
