"""Fidelity 'measured': real training steps of real models on the devices of this machine, or of an allocation.

A point's parameters are those of the engine's settings; an artifact with a `measure` of its own takes something else.
Every value is a median over steps after a warm-up, of the slowest rank, with all its samples.
"""

import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from reproduce.experiment.artifact import Artifact, Take
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Point, ranks_of, settings_of
from reproduce.running.fidelities import Outcome, Plan, PointEvaluator, sources_digest
from results import ROOT
from results.records import Metric, PointResult, provenance
from results.records.errors import UnavailableError
from results.records.units import with_unit

if TYPE_CHECKING:
    from benchmarks.harness.launchers import Launcher
    from benchmarks.harness.step_time import OnGpu, StepTimes
    from ptdp_core.engine.settings import Settings

OF_ANNEX = tuple(
    f"reproduce/annex/bench/{name}.py" for name in ("fused_step", "checkpoint", "fused_kernels", "fused_kernels_cases")
)
SOURCES = (
    "ptdp_core/config",
    "ptdp_core/engine",
    "ptdp_core/fields.py",
    "ptdp_core/formulas.py",
    "ptdp_core/interrupts.py",
    "ptdp_core/launch",
    "ptdp_core/layers",
    "ptdp_core/layout",
    "ptdp_core/pipeline_layout.py",
    "ptdp_core/schedules",
    "ptdp_core/turns.py",
    "kernels",
    "benchmarks/harness/profiling.py",
    "benchmarks/harness/step_time.py",
    "benchmarks/harness/training.py",
    "benchmarks/harness/timing.py",
    *(name for name in OF_ANNEX if (ROOT / name).is_file()),
    "reproduce/experiment/sweep.py",
)
GPUS_OF = FIDELITIES["measured"].scales
STEPS, WARM_UP = {"cpu": 5, "cuda": 20}, {"cpu": 1, "cuda": 5}
# What a point takes, roughly: it depends on the machine, and the progress corrects it.
EXPECTED_S = {"cpu": 4.0, "cuda": 15.0}
COMPILING_S = 40.0


@dataclass(frozen=True)
class Measured(PointEvaluator):
    """Trains points on the devices there are."""

    take: Take = field(compare=False, default=lambda point: {})

    def depends_on(self, point: Point) -> Mapping[str, Any]:
        """What starts the ranks, and PyTorch."""
        from importlib.metadata import version

        return {"launcher": self.plan.launcher, "torch": version("torch")}

    def outcome(self, point: Point) -> Outcome:
        """Measure the point; a rank that fails takes only this point with it."""
        from ptdp_core.launch.local import RankError

        try:
            return Outcome("ok", None, self.take(point))
        except RankError as error:
            if self.debug:
                raise
            reason = str(error).splitlines()[0]
            return Outcome("oom" if "OutOfMemoryError" in reason else "failed", reason, {})

    def order(self) -> Sequence[Point]:
        """On GPUs a random order, from a fixed seed, so that a drift of the clock does not look like a trend."""
        points = self.plan.points
        return random.Random(0).sample(points, len(points)) if self.plan.scale != "cpu" else points

    def notes(self, results: Results) -> tuple[str, ...]:
        """How it was measured, and what that can say."""
        host = provenance.host()
        how = f"launcher {self.plan.launcher}; every value is the median over samples after a warm-up, of the slowest"
        sentences = [f"Measured with {how} rank."]
        if self.plan.scale != "cpu":
            sentences.append(f"Devices: {', '.join(host.gpus) or 'GPUs'} ({host.gpu_count}).")
            sentences += [
                f"{what}: {shown}." for name, what in ON_GPUS.items() if (shown := _extremes(results.points, name))
            ]
        elif any(ranks_of(point.parameters) > 1 for point in self.plan.points):
            sentences.append(
                f"The ranks are processes that share the {host.logical_cores} cores of this machine and its memory as "
                "links: the engine really runs this way, but more ranks are not more hardware, so that throughput "
                "says nothing about how well a way of parallelisation works. The paper's claims are not tested here."
            )
        else:
            sentences.append("One process, on one core of a CPU.")
        return tuple(sentences)


ON_GPUS = {
    "idle_share": "Share of a step in which a GPU waited for its host, by a profile (much of it: the host was timed)",
    "mfu": "Model FLOP/s over those of the fastest matrix product measured on the same GPU (MFU)",
    "gpu_clock": "Clock while a step ran",
}


def _extremes(points: Sequence[PointResult], name: str) -> str:
    """The smallest and the largest value of a metric over the points that have it: '3% to 9%'."""
    metrics = [point.metrics[name] for point in points if name in point.metrics]
    values = sorted(metric.value for metric in metrics if metric.value is not None)
    shown = [f"{value:.0%}" if metrics[0].unit == "1" else with_unit(value, metrics[0].unit, 3) for value in values]
    return " to ".join(dict.fromkeys(shown[:: max(1, len(shown) - 1)]))


def make(plan: Plan, debug: bool) -> Measured:
    """What measures a plan on this machine. Raises `UnavailableError` where it has too few GPUs for the scale.

    The plan's folder is one that all ranks can see.
    """
    from benchmarks.harness.launchers import Launcher

    artifact, launcher = plan.artifact, Launcher(plan.launcher, plan.folder)
    needed, there = GPUS_OF[plan.scale], gpus_found(plan.launcher)
    if there < needed:
        raise UnavailableError(
            f"scale {plan.scale} needs {counted(needed)}, and PyTorch sees {counted(there)} here; try --scale "
            f"{default_scale(artifact.scales_at('measured'), plan.launcher)}"
        )
    take = artifact.measure(launcher) if artifact.measure else partial(train, launcher)
    return Measured(plan, digest(artifact), None, debug, take)


def digest(artifact: Artifact) -> str:
    """A digest of the sources that measured numbers of `artifact` come from."""
    return sources_digest(SOURCES, artifact.measure, sys.modules[__name__])


def gpus_found(launcher: str = "local") -> int:
    """GPUs of this machine that PyTorch can use; of all nodes like this one in a Slurm allocation."""
    import torch

    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1") if launcher == "slurm" else "1"
    return torch.cuda.device_count() * int(nodes)


def default_scale(scales: Sequence[str], launcher: str = "local") -> str:
    """The largest of these scales that the devices found can do; the first if there is none."""
    there = gpus_found(launcher)
    return max((scale for scale in scales if GPUS_OF[scale] <= there), key=lambda s: GPUS_OF[s], default=scales[0])


def counted(gpus: int) -> str:
    """'no GPU', '1 GPU', '4 GPUs'."""
    return "no GPU" if not gpus else f"{gpus} GPU{'s' if gpus > 1 else ''}"


def expected_seconds(point: Point, cluster: str) -> float:
    """Roughly how long measuring a point takes; nothing where another one's measurement has it, too."""
    if "measured_with" in point.parameters:
        return 0.0
    compiling = COMPILING_S if point.parameters["kernels"] in ("compiled", "triton") else 0.0
    return EXPECTED_S[str(point.parameters["device"])] + compiling


def train(launcher: "Launcher", point: Point) -> Mapping[str, Metric]:
    """Time whole training steps of the point's configuration. Raises ConfigurationError for one that cannot be."""
    from benchmarks.harness.step_time import time_steps

    settings = settings_of(point.parameters)
    device, ranks = str(point.parameters["device"]), settings.parallel.n
    by_rank = launcher(time_steps, ranks, (settings, STEPS[device], WARM_UP[device]), device)
    return step_metrics(settings, by_rank)


def step_metrics(settings: "Settings", by_rank: "Sequence[StepTimes]") -> dict[str, Metric]:
    """What a measured step keeps, in base units; FLOP/s per rank by eq. (3), and without the recomputed pass."""
    from benchmarks.harness.points import rate
    from benchmarks.harness.points import seconds as time_of
    from benchmarks.harness.timing import Samples

    model, parallel = settings.model, settings.parallel
    amounts = {
        "throughput_per_gpu": (flops_per_iteration(model, parallel.B) / parallel.n, "FLOP/s"),
        "model_throughput_per_gpu": (model_flops_per_iteration(model, parallel.B) / parallel.n, "FLOP/s"),
        "aggregate_throughput": (flops_per_iteration(model, parallel.B), "FLOP/s"),
        "sequences_per_s": (parallel.B, "sequences/s"),
        "tokens_per_s": (parallel.B * model.seq, "tokens/s"),
    }
    samples = Samples(by_rank[0].seconds)
    metrics = {name: rate(amount, samples, unit) for name, (amount, unit) in amounts.items()}
    metrics["iteration_time"] = time_of(samples)
    gpus = [times.gpu for times in by_rank if times.gpu is not None]
    model_speed = model_flops_per_iteration(model, parallel.B) / parallel.n / samples.median
    return metrics | (_gpu_metrics(gpus, model_speed) if gpus else {})


def _gpu_metrics(gpus: "Sequence[OnGpu]", model_speed: float) -> dict[str, Metric]:
    """What the ranks' GPUs say: the largest of what burdens them, the slowest clock; the samples are the ranks'."""

    def over_ranks(unit: str, values: "Sequence[float]", choose: "Callable[[Sequence[float]], float]" = max) -> Metric:
        return Metric(choose(values), unit, "measured", tuple(values))

    peaks = [gpu.peak_speed for gpu in gpus]
    metrics = {
        "peak_memory": over_ranks("B", [gpu.peak_memory for gpu in gpus]),
        "idle_share": over_ranks("1", [gpu.idle_share for gpu in gpus]),
        "fastest_product": over_ranks("FLOP/s", peaks, min),
        "mfu": Metric(model_speed / min(peaks), "1", "derived"),
    }
    states = [gpu.state for gpu in gpus if gpu.state is not None]
    if states:
        metrics["gpu_clock"] = over_ranks("Hz", [state.clock for state in states], min)
        metrics["gpu_power"] = over_ranks("W", [state.power for state in states])
        metrics["gpu_temperature"] = over_ranks("degC", [state.temperature for state in states])
    return metrics
