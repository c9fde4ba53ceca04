"""Evaluating an artifact's points: one module per fidelity, as `reproduce.experiment.fidelity` lists them.

    evaluator   what they share: status, reason, fingerprint
    simulated   through the simulator
    derived     through the artifact's formula
    emulated    the engine on virtual accelerators and shaped links, on this machine
    measured    the engine training on this machine's devices

A point that cannot be is 'invalid', one that does not fit in the GPUs' memory is 'oom', one that breaks is 'failed';
none of them stops the others.
"""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from benchmarks.records.errors import UsageError, did_you_mean
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.sweep import Point
from reproduce.running.evaluator import Devices, Evaluator, scales_of


def module_of(fidelity: str) -> ModuleType:
    """The module that evaluates points at a fidelity (see `reproduce.experiment.fidelity`)."""
    return import_module(FIDELITIES[fidelity].module)


def evaluator(
    artifact: Artifact, fidelity: str, cluster: str, debug: bool = False, devices: Devices | None = None
) -> Evaluator:
    """What evaluates `artifact` at `fidelity`: on `cluster`, or measured on `devices`.

    Raises `UsageError` or `UnavailableError`.
    """
    check_fidelity(artifact, fidelity)
    evaluator: Evaluator = module_of(fidelity).make(artifact, cluster, debug, devices or Devices())
    return evaluator


def check_fidelity(artifact: Artifact, fidelity: str) -> None:
    """Raise `UsageError` for a fidelity that the artifact does not have."""
    if fidelity in artifact.fidelities:
        return
    available = ", ".join(artifact.fidelities)
    if fidelity not in FIDELITIES:
        near = did_you_mean(fidelity, tuple(FIDELITIES))
        raise UsageError(f"unknown fidelity {fidelity!r}; {artifact.id} has: {available}{near}")
    raise UsageError(f"{artifact.id} has no fidelity {fidelity!r}; it has: {available}")


def default_scale(artifact: Artifact, fidelity: str, launcher: str = "local") -> str:
    """The scale of a run that asks for none: the first, or what the devices found can do if it measures."""
    scales = scales_of(artifact, fidelity)
    choose = getattr(module_of(fidelity), "default_scale", None)
    return choose(scales, launcher) if choose else scales[0]


def expected_seconds(fidelity: str, points: Sequence[Point], cluster: str) -> tuple[float, ...]:
    """About how long evaluating each point takes; zeros for fidelities that take no time worth telling."""
    expect = getattr(module_of(fidelity), "expected_seconds", None)
    return tuple(expect(point, cluster) if expect else 0.0 for point in points)


def code_digest(artifact: Artifact, fidelity: str) -> str:
    """A digest of the sources that the numbers of `artifact` at `fidelity` come from."""
    digest: str = module_of(fidelity).digest(artifact)
    return digest
