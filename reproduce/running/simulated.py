"""Fidelity 'simulated': a point's configuration through the simulator, on a named cluster."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.simulator import Cluster, Estimate, load_cluster, simulate
from ptdp_core.simulator.cluster import cluster_files
from reproduce.experiment import margins
from reproduce.experiment import quantities as q
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import LAPTOP, Point
from reproduce.running.evaluator import Outcome, Plan, PointEvaluator, sources_digest
from results.records import ClusterRef, Metric, PointResult, digest_file, digest_files
from results.records.errors import UsageError

SOURCES = (
    "ptdp_core/config.py",
    "ptdp_core/formulas.py",
    "ptdp_core/layout",
    "ptdp_core/schedules",
    "ptdp_core/simulator",
)
MAX_PASSES = 10_000_000  # that are executed of one iteration; at about 5 us each
GPUS_PER_NODE, CLUSTER = "gpus_per_node", margins.CLUSTER


@dataclass(frozen=True)
class Simulated(PointEvaluator):
    """Simulates points; what does not fit in the GPUs' memory is 'oom'.

    A point with the parameter `gpus_per_node` is simulated on the cluster's GPUs and links in nodes of that size, one
    with the parameter `cluster` on another cluster, by its name.
    """

    cluster: Cluster | None = None

    def depends_on(self, point: Point) -> Mapping[str, Any]:
        """The file of the other cluster that a point names."""
        other = point.parameters.get(CLUSTER)
        return {} if other is None else {"cluster": open_cluster(str(other))[1].digest}

    def outcome(self, point: Point) -> Outcome:
        """Simulate the point."""
        assert self.cluster is not None
        cluster = cluster_of(point.parameters, self.cluster)
        config = TrainingConfig.from_plain(point.parameters)
        check_passes(config)
        estimate = simulate(config, cluster, bubble_times=True)
        if not estimate.fits:
            memory = {"peak_memory": Metric(estimate.peak_memory, "B", "simulated")}
            return Outcome("oom", oom_reason(estimate, cluster), memory)
        artifact = self.plan.artifact
        model = shown_model_rates(artifact, estimate.config, estimate.iteration_time, cluster, "simulated")
        further = artifact.further(point, estimate, cluster) if artifact.further else {}
        return Outcome("ok", None, {**simulated_metrics(estimate), **model, **further})

    @property
    def cluster_margins(self) -> margins.Margins | None:
        """How sure the numbers are; None on a cluster whose predictions were not scored.

        At scale 'laptop' they are predictions of an emulation, which scores them itself.
        """
        return None if self.plan.scale == LAPTOP or self.cluster_ref is None else margins.read(self.cluster_ref.name)

    def results(self, points: Sequence[PointResult]) -> Results:
        """The points with intervals, and what else they may be inside these."""
        results, cluster = super().results(points), self.cluster
        if self.cluster_margins is None or cluster is None:
            return results
        return margins.with_margins(
            results, self.cluster_margins, lambda point: cluster_of(point.parameters, cluster).usable_memory
        )

    def notes(self, results: Results) -> tuple[str, ...]:
        """How sure the numbers are."""
        return () if self.plan.scale == LAPTOP else tuple(margins.lines(self.cluster_margins))


def make(plan: Plan, debug: bool) -> Simulated:
    """What simulates a plan on its cluster. Raises `UsageError` for a cluster that is none."""
    cluster, reference = open_cluster(plan.cluster)
    if plan.artifact.software is not None:
        cluster = replace(cluster, software=plan.artifact.software)
    return Simulated(plan, digest(plan.artifact), reference, debug, cluster)


def digest(artifact: Artifact) -> str:
    """A digest of the sources that simulated numbers of `artifact` come from."""
    return sources_digest(SOURCES, artifact.further, sys.modules[__name__])


def open_cluster(name: str) -> tuple[Cluster, ClusterRef]:
    """The cluster of that name or file, and how a record refers to it. Raises `UsageError`."""
    try:
        files = cluster_files(name)
        digest = digest_files(files) if files[1:] else digest_file(files[0])
        return load_cluster(name), ClusterRef(files[0].stem, digest)
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def cluster_of(parameters: Mapping[str, Any], cluster: Cluster) -> Cluster:
    """The cluster, or the other one that a point's parameters name, with nodes of the size that they ask for.

    Each is one object, however often it is asked for: the simulator keeps what it knows of a cluster by its identity.
    """
    if CLUSTER in parameters:
        cluster = _named(str(parameters[CLUSTER]))
    size = parameters.get(GPUS_PER_NODE)
    if size is None:
        return cluster
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ConfigurationError(f"{GPUS_PER_NODE}={size!r} is not a positive whole number; needs at least 1; try 2")
    return _with_nodes_of(cluster, size)


@lru_cache(maxsize=64)
def _named(name: str) -> Cluster:
    return open_cluster(name)[0]


@lru_cache(maxsize=64)
def _with_nodes_of(cluster: Cluster, size: int) -> Cluster:
    return cluster.in_nodes_of(size)


def check_passes(config: TrainingConfig) -> None:
    """Raise ConfigurationError if too much of the schedule has to be executed; its periodic steady state has not."""
    from ptdp_core.simulator.steady_state import least_passes  # not to be loaded by what simulates nothing

    parallel = config.parallel
    executed = least_passes(parallel.schedule, parallel.p, parallel.m, parallel.v)
    if executed > MAX_PASSES:
        raise ConfigurationError(
            f"m={parallel.m} microbatches on p={parallel.p} stages with v={parallel.v} chunks make {executed} passes "
            f"to execute; needs at most {MAX_PASSES}; try a larger b or d, or a smaller B"
        )


def simulated_metrics(estimate: Estimate) -> dict[str, Metric]:
    """What a simulated point keeps: throughput, times by phase, bubble by cause, memory and traffic, in base units."""
    values = {
        "throughput_per_gpu": (estimate.throughput_per_gpu, "FLOP/s"),
        "sequences_per_s": (estimate.sequences_per_s, "sequences/s"),
        "iteration_time": (estimate.iteration_time, "s"),
        "bubble_fraction": (estimate.bubble_fraction, "1"),
        "peak_memory": (estimate.peak_memory, "B"),
        **{f"{phase}_time": (seconds, "s") for phase, seconds in estimate.phase_times.items()},
        **{f"bubble_{cause}_time": (seconds, "s") for cause, seconds in estimate.bubble_times.items()},
        **{f"{use}_traffic": (sent, "B") for use, sent in estimate.traffic.items()},
    }
    return {name: Metric(value, unit, "simulated") for name, (value, unit) in values.items()}


def shown_model_rates(
    artifact: Artifact,
    config: TrainingConfig,
    seconds: float,
    cluster: Cluster,
    origin: str,
    samples: Sequence[float] = (),
) -> dict[str, Metric]:
    """FLOP/s per GPU without the recomputed pass that eq. (3) counts, if the artifact shows them, and MFU beside them.

    `seconds` is the time of an iteration, `samples` are several of them that were clocked.
    """
    shown = {quantity.name for quantity in artifact.quantities}
    if q.MODEL_THROUGHPUT.name not in shown:
        return {}
    rates = model_rates(config, seconds, cluster, origin, samples)
    return {name: metric for name, metric in rates.items() if name in shown}


def model_rates(
    config: TrainingConfig, seconds: float, cluster: Cluster, origin: str, samples: Sequence[float] = ()
) -> dict[str, Metric]:
    """Model FLOP/s per GPU, and these over the cluster's peak (MFU), by the time of an iteration."""
    flops = model_flops_per_iteration(config.model, config.parallel.B) / config.parallel.n
    amounts = {q.MODEL_THROUGHPUT: flops, q.MFU: flops / cluster.peak_flops}
    return {
        quantity.name: Metric(
            amount / seconds, quantity.unit, origin, tuple(amount / sample for sample in samples) or None
        )
        for quantity, amount in amounts.items()
    }


def oom_reason(estimate: Estimate, cluster: Cluster) -> str:
    """Why a configuration does not fit, with the bytes."""
    need, have = estimate.peak_memory, cluster.usable_memory
    parts = sorted(estimate.memory_bytes.items(), key=lambda part: -part[1])
    largest = f"; the largest part is {parts[0][0].replace('_', ' ')}, {parts[0][1] / 1e9:.1f} GB" if parts else ""
    return (
        f"needs {need / 1e9:.1f} GB ({need} bytes) of memory on the fullest GPU; "
        f"{cluster.name} has {have / 1e9:.1f} GB ({have:.0f} bytes) to fill{largest}"
    )
