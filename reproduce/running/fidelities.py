"""Evaluating an artifact's points: one module per fidelity.

    evaluator   what they share: status, reason, fingerprint; scales and folders of a fidelity
    simulated   through the simulator
    derived     through the artifact's formula
    emulated    the engine on virtual accelerators and shaped links, on this machine
    measured    the engine training on this machine's devices

A point that cannot be is 'invalid', one that does not fit in the GPUs' memory is 'oom', one that breaks is 'failed';
none of them stops the others.
"""

from collections.abc import Sequence

from benchmarks.records import FIDELITIES
from benchmarks.records.errors import UsageError
from reproduce.experiment.artifact import Artifact, Point
from reproduce.running import derived, emulated, measured, simulated
from reproduce.running.evaluator import Evaluator, folder_name, scales_of
from reproduce.running.measured import Devices
from reproduce.running.simulated import Simulated, oom_reason, open_cluster, simulated_metrics

__all__ = [
    "Devices",
    "Evaluator",
    "Simulated",
    "check_fidelity",
    "code_digest",
    "default_scale",
    "evaluator",
    "expected_seconds",
    "folder_name",
    "oom_reason",
    "open_cluster",
    "scales_of",
    "simulated_metrics",
]
MODULES = {"simulated": simulated, "derived": derived, "emulated": emulated, "measured": measured}
EXPECTED = {"emulated": emulated.expected_seconds, "measured": measured.expected_seconds}


def evaluator(
    artifact: Artifact, fidelity: str, cluster: str, debug: bool = False, devices: Devices | None = None
) -> Evaluator:
    """What evaluates `artifact` at `fidelity`: on `cluster`, or measured on `devices`.

    Raises `UsageError` or `UnavailableError`.
    """
    check_fidelity(artifact, fidelity)
    if fidelity == "measured":
        return measured.make(artifact, devices or Devices(), debug)
    return MODULES[fidelity].make(artifact, cluster, debug)


def check_fidelity(artifact: Artifact, fidelity: str) -> None:
    """Raise `UsageError` for a fidelity that the artifact does not have."""
    if fidelity in artifact.fidelities:
        return
    available = ", ".join(artifact.fidelities)
    if fidelity not in FIDELITIES:
        raise UsageError(f"unknown fidelity {fidelity!r}; {artifact.id} has: {available}")
    raise UsageError(f"{artifact.id} has no fidelity {fidelity!r}; it has: {available}")


def default_scale(artifact: Artifact, fidelity: str, launcher: str = "local") -> str:
    """The scale of a run that asks for none: the first, or what the devices found can do if it measures."""
    scales = scales_of(artifact, fidelity)
    return measured.default_scale(scales, launcher) if fidelity == "measured" else scales[0]


def expected_seconds(fidelity: str, points: Sequence[Point], cluster: str) -> tuple[float, ...]:
    """About how long evaluating each point takes; zeros for fidelities that take no time worth telling."""
    expect = EXPECTED.get(fidelity)
    return tuple(expect(point, cluster) if expect else 0.0 for point in points)


def code_digest(artifact: Artifact, fidelity: str) -> str:
    """A digest of the sources that the numbers of `artifact` at `fidelity` come from."""
    return MODULES[fidelity].digest(artifact)
