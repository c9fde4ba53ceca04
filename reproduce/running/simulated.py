"""Fidelity 'simulated': a point's configuration through the simulator, on a named cluster."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator import Cluster, Estimate, load_cluster, simulate
from ptdp_core.simulator.cluster import PROGRAM, cluster_files, cluster_label, with_program
from ptdp_core.simulator.programs import load_program
from reproduce.experiment import margins
from reproduce.experiment.alternatives import with_margins, without_margins
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.metrics import METRICS, MetricDef, of_every_point
from reproduce.experiment.published import numbers_set_with
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import LAPTOP, Point
from reproduce.running.fidelities import Outcome, Plan, PointEvaluator, sources_digest
from results.records import ClusterRef, Metric, PointResult, digest_file, digest_files
from results.records.errors import UsageError

SOURCES = (
    "ptdp_core/config",
    "ptdp_core/fields.py",
    "ptdp_core/formulas.py",
    "ptdp_core/layers",
    "ptdp_core/layout",
    "ptdp_core/pipeline_layout.py",
    "ptdp_core/schedules",
    "ptdp_core/simulator",
    "reproduce/experiment/metrics.py",
)
MAX_PASSES = 10_000_000  # that are executed of one iteration; at about 5 us each
GPUS_PER_NODE, CLUSTER = "gpus_per_node", margins.CLUSTER
OUT_OF_MEMORY = (METRICS["peak_memory"],)  # what a point keeps that does not fit


@dataclass(frozen=True)
class Simulated(PointEvaluator):
    """Simulates points; what does not fit in the GPUs' memory is 'oom'.

    A point with the parameter `gpus_per_node` is simulated on the cluster's GPUs and links in nodes of that size, one
    with the parameter `cluster` on another cluster, by its name, and one with `program` as another training program.
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
        if PROGRAM in point.parameters:
            load_program(str(point.parameters[PROGRAM])).check(config)
        estimate = simulate(config, cluster, bubble_times=True)
        if not estimate.fits:
            return Outcome("oom", oom_reason(estimate, cluster), simulated_metrics(estimate, cluster, OUT_OF_MEMORY))
        artifact = self.plan.artifact
        metrics = simulated_metrics(estimate, cluster, of_every_point(artifact.quantities))
        further = artifact.further(point, estimate, cluster) if artifact.further else {}
        return Outcome("ok", None, {**metrics, **artifact.metrics(further, "simulated")})

    @property
    def cluster_margins(self) -> margins.Margins | None:
        """How sure the numbers are; None on a cluster whose predictions were not scored.

        At scale 'laptop' they are predictions of an emulation, which scores them itself.
        """
        return None if self.plan.scale == LAPTOP or self.cluster_ref is None else margins.read(self.cluster_ref.name)

    def results(self, points: Sequence[PointResult]) -> Results:
        """The points with intervals, and what else they may be inside these."""
        known, cluster = self.cluster_margins, self.cluster
        results = super().results(points if known is None else tuple(map(known.applied, points)))
        if self.plan.scale == LAPTOP:
            return without_margins(results)
        if cluster is None or self.cluster_ref is None:
            return results
        set_with = numbers_set_with(self.plan.cluster, self.plan.artifact.id)
        for_claims = margins.for_judging(self.plan.cluster)
        return with_margins(results, for_claims, lambda point: cluster_of(point.parameters, cluster), set_with)

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


def open_cluster(name: str, program: str | None = None) -> tuple[Cluster, ClusterRef]:
    """The cluster of that name or file, with the program named on it, and how a record refers to it.

    Raises `UsageError`.
    """
    cluster = named_cluster(name, program)
    try:
        files = cluster_files(name)
        digest = digest_files(files) if files[1:] else digest_file(files[0])
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None
    return cluster, ClusterRef(cluster_label(name), digest)


def named_cluster(name: str, program: str | None = None) -> Cluster:
    """The cluster of that name or file, with the program named on it. Raises `UsageError`."""
    try:
        cluster = load_cluster(name)
        return with_program(cluster, program) if program else cluster
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def cluster_of(parameters: Mapping[str, Any], cluster: Cluster) -> Cluster:
    """The cluster, or the other one that a point's parameters name, with the program and nodes that they ask for.

    Each is one object, however often it is asked for: the simulator keeps what it knows of a cluster by its identity.
    """
    if CLUSTER in parameters:
        cluster = _named(str(parameters[CLUSTER]))
    if PROGRAM in parameters:
        cluster = with_program(cluster, str(parameters[PROGRAM]))
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


def simulated_metrics(estimate: Estimate, cluster: Cluster, metrics: Iterable[MetricDef]) -> dict[str, Metric]:
    """Those of the metrics that a simulated iteration gives, by name, in base units."""
    values = {metric: metric.simulated(estimate, cluster) for metric in metrics}
    return {
        metric.name: Metric(value, metric.unit, "simulated") for metric, value in values.items() if value is not None
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
