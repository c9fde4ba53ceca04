"""Fidelity 'emulated': the engine in real time on this machine, on virtual accelerators and shaped links.

Every point has, beside what was clocked, the simulator's prediction for exactly the emulated configuration: the
metrics `predicted_*`, whose origin is 'simulated'. Memory is not emulated: what does not fit, by the simulator's
count, is 'oom' and not run.
"""

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import flops_per_iteration, model_flops_per_iteration
from ptdp_core.simulator import Cluster, Estimate, simulate
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.metrics import MetricDef, Quantity, of_every_point
from reproduce.experiment.predictions import ASKED_RATE, LINK_RATE, PREFIX
from reproduce.experiment.sweep import Point
from reproduce.running.fidelities import Outcome, Plan, PointEvaluator, sources_digest
from reproduce.running.simulated import OUT_OF_MEMORY, cluster_of, oom_reason, open_cluster, simulated_metrics
from results.records import Metric
from results.records.errors import UnavailableError

if TYPE_CHECKING:
    from reproduce.annex.emulation import Emulation

SOURCES = ("ptdp_core", "kernels", "reproduce/annex/emulation")
# What a point takes: so many iterations of the cluster's own duration, and starting and ending the processes.
ITERATIONS, START_S = 4, 2.0


@dataclass(frozen=True)
class Emulated(PointEvaluator):
    """Runs points in emulation; the parameter `gpus_per_node` says how many ranks share an emulated node."""

    cluster: Cluster | None = None

    def outcome(self, point: Point) -> Outcome:
        """Emulate the point."""
        from reproduce.annex.emulation import emulate

        assert self.cluster is not None
        artifact, cluster = self.plan.artifact, cluster_of(point.parameters, self.cluster)
        config = TrainingConfig.from_plain(point.parameters)
        estimate = simulate(config, cluster)
        if not estimate.fits:
            return Outcome("oom", oom_reason(estimate, cluster), predicted_metrics(estimate, cluster, OUT_OF_MEMORY))
        emulation = emulate(config, self.cluster, gpus_per_node=cluster.gpus_per_node)
        metrics = emulated_metrics(config, emulation, cluster, artifact.quantities)
        further = artifact.emulated(point, emulation) if artifact.emulated else {}
        timelines = artifact.timelines(point, emulation) if artifact.timelines else ()
        return Outcome("ok", None, {**metrics, **artifact.metrics(further, "emulated")}, timelines)


def make(plan: Plan, debug: bool) -> Emulated:
    """What emulates a plan. Raises `UnavailableError` where this machine cannot, `UsageError` for no cluster."""
    from reproduce.annex.emulation import requirements

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


def emulated_metrics(
    config: TrainingConfig, emulation: "Emulation", cluster: Cluster, shown: Collection[Quantity]
) -> dict[str, Metric]:
    """What an emulated point keeps: the clocked iteration, and what was predicted for it, in base units.

    An artifact shows the quantities `shown`.
    """
    seconds, parallel = emulation.iteration_time, config.parallel
    times = tuple(emulation.samples_s)
    kept = [metric for metric in of_every_point(shown) if metric.answer]
    model_flops = model_flops_per_iteration(config.model, parallel.B) / parallel.n
    per_gpu = {
        q.THROUGHPUT: flops_per_iteration(config.model, parallel.B) / parallel.n,
        q.MODEL_THROUGHPUT: model_flops,
        q.MFU: model_flops / cluster.peak_flops,
    }
    clocked = {
        **{
            rate.name: Metric(amount / seconds, rate.unit, "emulated", tuple(amount / time for time in times))
            for rate, amount in per_gpu.items()
            if rate in kept
        },
        "sequences_per_s": Metric(
            parallel.B / seconds, "sequences/s", "emulated", tuple(parallel.B / time for time in times)
        ),
        "iteration_time": Metric(seconds, "s", "emulated", times),
        "bubble_fraction": Metric(emulation.bubble_fraction, "1", "emulated", emulation.bubbles),
        "peak_stash": Metric(emulation.peak_stash, "count", "emulated"),
        "order_as_scheduled": Metric(int(emulation.order_ok), "1", "emulated"),
        **{f"{use}_traffic": Metric(sent, "B", "emulated") for use, sent in emulation.traffic.items()},
    }
    return {**clocked, **_link_metrics(emulation), **predicted_metrics(emulation.prediction, cluster, kept)}


def _link_metrics(emulation: "Emulation") -> dict[str, Metric]:
    """What the links between nodes were asked for and did, as measured before the run, in bytes of the cluster."""
    metrics = {}
    for use, rate in emulation.link_rates.items():
        metrics[f"{LINK_RATE}{use.replace(' ', '_')}"] = Metric(rate.achieved, "B/s", "emulated")
        metrics[ASKED_RATE] = Metric(rate.asked, "B/s", "simulated")
    if emulation.exchange_latency is not None:
        metrics["exchange_latency"] = Metric(emulation.exchange_latency, "s", "emulated")
    return metrics


def predicted_metrics(estimate: Estimate, cluster: Cluster, metrics: Iterable[MetricDef]) -> dict[str, Metric]:
    """What was predicted for an emulated point, as its metrics `predicted_*`."""
    return {f"{PREFIX}{name}": metric for name, metric in simulated_metrics(estimate, cluster, metrics).items()}
