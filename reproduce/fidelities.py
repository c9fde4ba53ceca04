"""Evaluating a point: `simulated` through the simulator, `derived` through the artifact's formula.

A point that cannot be is `invalid`, one that does not fit in the GPUs' memory is `oom`, one that breaks is
`failed`; none of them stops the others. 'emulated' and 'measured' are not available in this version.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.provenance import scrub
from benchmarks.records import (
    FIDELITIES,
    ClusterRef,
    Metric,
    PointResult,
    digest_file,
    digest_files,
    fingerprint,
)
from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import Cluster, Estimate, cluster_path, load_cluster, simulate
from reproduce import ROOT
from reproduce.artifact import Artifact, Point, Scalar
from reproduce.errors import UnavailableError, UsageError


@dataclass(frozen=True)
class Evaluator:
    """Evaluates an artifact's points at one fidelity; `code_digest` covers the sources it depends on."""

    artifact: Artifact
    fidelity: str
    code_digest: str
    cluster: Cluster | None = None
    cluster_ref: ClusterRef | None = None
    debug: bool = field(default=False, compare=False)

    def fingerprint(self, point: Point) -> str:
        """A digest of all that determines the point's numbers."""
        return fingerprint(
            {
                "parameters": dict(self.parameters(point)),
                "fidelity": self.fidelity,
                "cluster": self.cluster_ref.digest if self.cluster_ref else None,
                "code": self.code_digest,
            }
        )

    def parameters(self, point: Point) -> Mapping[str, Scalar]:
        """The point's parameters; those of a training configuration with its defaults filled in."""
        if self.fidelity != "simulated":
            return point.parameters
        try:
            return {**point.parameters, **TrainingConfig.from_plain(point.parameters).to_plain()}
        except (ValueError, TypeError):
            return point.parameters

    def evaluate(self, point: Point) -> PointResult:
        """The point with its metrics, or with the reason why it has none."""
        status, reason, metrics = self._outcome(point)
        return PointResult(
            key=point.key,
            series=point.series,
            label=point.label,
            parameters=self.parameters(point),
            status=status,
            reason=scrub(reason) if reason else None,
            fingerprint=self.fingerprint(point),
            metrics=metrics,
            paper=point.paper,
        )

    def _outcome(self, point: Point) -> tuple[str, str | None, Mapping[str, Metric]]:
        try:
            if self.fidelity == "derived":
                assert self.artifact.derive is not None
                return "ok", None, self.artifact.derive(point)
            assert self.cluster is not None
            estimate = simulate(TrainingConfig.from_plain(point.parameters), self.cluster)
            if not estimate.fits:
                memory = {"peak_memory": Metric(estimate.peak_memory_bytes, "B", "simulated")}
                return "oom", oom_reason(estimate, self.cluster), memory
            further = self.artifact.further(point, estimate, self.cluster) if self.artifact.further else {}
            return "ok", None, {**simulated_metrics(estimate), **further}
        except ValueError as error:
            return "invalid", str(error) or "the configuration is not valid", {}
        except Exception as error:
            if self.debug:
                raise
            return "failed", f"{type(error).__name__}: {error}; --debug shows where", {}


def evaluator(artifact: Artifact, fidelity: str, cluster: str, debug: bool = False) -> Evaluator:
    """What evaluates `artifact` at `fidelity` on `cluster`. Raises `UsageError` or `UnavailableError`."""
    check_fidelity(artifact, fidelity)
    digest = code_digest(artifact, fidelity)
    if fidelity == "derived":
        return Evaluator(artifact, fidelity, digest, debug=debug)
    model, reference = open_cluster(cluster)
    return Evaluator(artifact, fidelity, digest, model, reference, debug)


def check_fidelity(artifact: Artifact, fidelity: str) -> None:
    """Raise `UsageError` for a fidelity it cannot have, `UnavailableError` for one not there yet."""
    if fidelity in artifact.fidelities:
        return
    available = ", ".join(artifact.fidelities)
    if fidelity in ("emulated", "measured"):
        raise UnavailableError(
            f"{artifact.id}: fidelity {fidelity!r} is not available in this version; it has: {available}"
        )
    if fidelity not in FIDELITIES:
        raise UsageError(f"unknown fidelity {fidelity!r}; {artifact.id} has: {available}")
    raise UsageError(f"{artifact.id} has no fidelity {fidelity!r}; it has: {available}")


def open_cluster(name: str) -> tuple[Cluster, ClusterRef]:
    """The cluster of that name or file, and how a record refers to it. Raises `UsageError`."""
    try:
        path = cluster_path(name)
        return load_cluster(name), ClusterRef(path.stem, digest_file(path))
    except (ValueError, OSError) as error:
        raise UsageError(str(error)) from None


def code_digest(artifact: Artifact, fidelity: str) -> str:
    """A digest of the sources that the numbers of `artifact` at `fidelity` come from."""
    core = ROOT / "ptdp_core"
    # Derived numbers may use the simulator's counts, too; they cost nothing to compute again.
    paths = [core / "config.py", core / "formulas.py", core / "layout.py", Path(__file__)]
    paths += [*(core / "schedules").glob("*.py"), *(core / "simulator").glob("*.py")]
    own = artifact.further if fidelity == "simulated" else artifact.derive
    module = sys.modules.get(own.__module__) if own else None
    if module is not None and module.__file__:
        paths.append(Path(module.__file__))
    return digest_files(paths)


def simulated_metrics(estimate: Estimate) -> dict[str, Metric]:
    """What a simulated point keeps: throughput, times by phase, bubble, memory and traffic, in base units."""
    values = {
        "throughput_per_gpu": (estimate.flops_per_gpu, "FLOP/s"),
        "sequences_per_s": (estimate.sequences_per_s, "sequences/s"),
        "iteration_time": (estimate.iteration_s, "s"),
        "bubble_fraction": (estimate.bubble_fraction, "1"),
        "peak_memory": (estimate.peak_memory_bytes, "B"),
        **{f"{phase}_time": (seconds, "s") for phase, seconds in estimate.phases_s.items()},
        **{f"{use}_traffic": (sent, "B") for use, sent in estimate.link_bytes.items()},
    }
    return {name: Metric(value, unit, "simulated") for name, (value, unit) in values.items()}


def oom_reason(estimate: Estimate, cluster: Cluster) -> str:
    """Why a configuration does not fit, with the bytes."""
    need, have = estimate.peak_memory_bytes, cluster.usable_memory
    parts = sorted(estimate.memory_bytes.items(), key=lambda part: -part[1])
    largest = f"; the largest part is {parts[0][0].replace('_', ' ')}, {parts[0][1] / 1e9:.1f} GB" if parts else ""
    return (
        f"needs {need / 1e9:.1f} GB ({need} bytes) of memory on the fullest GPU; "
        f"{cluster.name} has {have / 1e9:.1f} GB ({have:.0f} bytes) to fill{largest}"
    )
