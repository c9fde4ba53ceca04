"""Fidelity 'emulated': the engine in real time on this machine, on virtual accelerators and shaped links.

Every point has, beside what was clocked, the simulator's prediction for exactly the emulated configuration: the
metrics `predicted_*`, whose origin is 'simulated'. Memory is not emulated: what does not fit, by the simulator's
count, is 'oom' and not run.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import flops_per_iteration
from ptdp_core.simulator import Cluster, Estimate, simulate
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.predictions import ASKED_RATE, LINK_RATE, PREFIX
from reproduce.experiment.sweep import Point
from reproduce.running.evaluator import Outcome, Plan, PointEvaluator, sources_digest
from reproduce.running.simulated import (
    cluster_of,
    oom_reason,
    open_cluster,
    shown_model_rates,
    simulated_metrics,
)
from results.records import Metric
from results.records.errors import UnavailableError

if TYPE_CHECKING:
    from reproduce.emulation import Emulation

SOURCES = ("ptdp_core", "kernels", "reproduce/emulation")
# What a point takes: so many iterations of the cluster's own duration, and starting and ending the processes.
ITERATIONS, START_S = 4, 2.0
PREDICTED = ("throughput_per_gpu", "sequences_per_s", "iteration_time", "bubble_fraction", "peak_memory")


@dataclass(frozen=True)
class Emulated(PointEvaluator):
    """Runs points in emulation; the parameter `gpus_per_node` says how many ranks share an emulated node."""

    cluster: Cluster | None = None

    def outcome(self, point: Point) -> Outcome:
        """Emulate the point."""
        from reproduce.emulation import emulate

        assert self.cluster is not None
        artifact, cluster = self.plan.artifact, cluster_of(point.parameters, self.cluster)
        config = TrainingConfig.from_plain(point.parameters)
        estimate = simulate(config, cluster)
        if not estimate.fits:
            return Outcome("oom", oom_reason(estimate, cluster), predicted_metrics(estimate, ("peak_memory",)))
        emulation = emulate(config, self.cluster, gpus_per_node=cluster.gpus_per_node)
        metrics = emulated_metrics(config, emulation)
        metrics |= shown_model_rates(
            artifact, config, emulation.iteration_time, cluster, "emulated", tuple(emulation.samples_s)
        )
        predicted = shown_model_rates(artifact, config, emulation.prediction.iteration_time, cluster, "simulated")
        metrics |= {f"{PREFIX}{name}": metric for name, metric in predicted.items()}
        further = artifact.emulated(point, emulation) if artifact.emulated else {}
        timelines = artifact.timelines(point, emulation) if artifact.timelines else ()
        return Outcome("ok", None, {**metrics, **further}, timelines)


def make(plan: Plan, debug: bool) -> Emulated:
    """What emulates a plan. Raises `UnavailableError` where this machine cannot, `UsageError` for no cluster."""
    from reproduce.emulation import requirements

    cluster, reference = open_cluster(plan.cluster)
    if missing := requirements():
        raise UnavailableError(f"this machine cannot emulate: {'; '.join(missing)} (reproduce doctor says more)")
    return Emulated(plan, digest(plan.artifact), reference, debug, cluster)


def digest(artifact: Artifact) -> str:
    """A digest of the sources that emulated numbers of `artifact` come from."""
    return sources_digest(SOURCES, artifact.emulated or artifact.timelines, sys.modules[__name__])


def expected_seconds(point: Point, cluster: str) -> float:
    """About how long emulating a point takes; 0 for one that cannot be. Needs no emulation on this machine."""
    try:
        nodes = cluster_of(point.parameters, open_cluster(cluster)[0])
        estimate = simulate(TrainingConfig.from_plain(point.parameters), nodes)
    except ConfigurationError:
        return 0.0
    return START_S + ITERATIONS * estimate.iteration_time if estimate.fits else 0.0


def emulated_metrics(config: TrainingConfig, emulation: "Emulation") -> dict[str, Metric]:
    """What an emulated point keeps: the clocked iteration, and what was predicted for it, in base units."""
    seconds, parallel = emulation.iteration_time, config.parallel
    flops = flops_per_iteration(config.model, parallel.B) / parallel.n
    times = tuple(emulation.samples_s)
    clocked = {
        "throughput_per_gpu": Metric(flops / seconds, "FLOP/s", "emulated", tuple(flops / time for time in times)),
        "sequences_per_s": Metric(parallel.B / seconds, "sequences/s", "emulated"),
        "iteration_time": Metric(seconds, "s", "emulated", times),
        "bubble_fraction": Metric(emulation.bubble_fraction, "1", "emulated"),
        "peak_stash": Metric(emulation.peak_stash, "count", "emulated"),
        "order_as_scheduled": Metric(int(emulation.order_ok), "1", "emulated"),
        **{f"{use}_traffic": Metric(sent, "B", "emulated") for use, sent in emulation.traffic.items()},
    }
    return {**clocked, **_link_metrics(emulation), **predicted_metrics(emulation.prediction)}


def _link_metrics(emulation: "Emulation") -> dict[str, Metric]:
    """What the links between nodes were asked for and did, as measured before the run, in bytes of the cluster."""
    metrics = {}
    for use, rate in emulation.link_rates.items():
        metrics[f"{LINK_RATE}{use.replace(' ', '_')}"] = Metric(rate.achieved, "B/s", "emulated")
        metrics[ASKED_RATE] = Metric(rate.asked, "B/s", "simulated")
    if emulation.exchange_latency is not None:
        metrics["exchange_latency"] = Metric(emulation.exchange_latency, "s", "emulated")
    return metrics


def predicted_metrics(estimate: Estimate, names: tuple[str, ...] = PREDICTED) -> dict[str, Metric]:
    """What was predicted for an emulated point, as its metrics `predicted_*`."""
    metrics = simulated_metrics(estimate)
    return {f"{PREFIX}{name}": metrics[name] for name in names}
