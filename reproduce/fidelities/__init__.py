"""Evaluating an artifact's points: one module per fidelity.

    evaluator   what they share: status, reason, fingerprint; scales and folders of a fidelity
    simulated   through the simulator
    derived     through the artifact's formula
    emulated    the engine on virtual accelerators and shaped links, on this machine
    measured    the engine training on this machine's devices

A point that cannot be is 'invalid', one that does not fit in the GPUs' memory is 'oom', one that breaks is 'failed';
none of them stops the others.
"""

from benchmarks.records import FIDELITIES
from reproduce.artifact import Artifact
from reproduce.errors import UsageError
from reproduce.fidelities import derived, emulated, simulated
from reproduce.fidelities.evaluator import Evaluator, folder_name, scales_of
from reproduce.fidelities.simulated import Simulated, oom_reason, open_cluster, simulated_metrics

__all__ = [
    "Evaluator",
    "Simulated",
    "check_fidelity",
    "code_digest",
    "evaluator",
    "folder_name",
    "oom_reason",
    "open_cluster",
    "scales_of",
    "simulated_metrics",
]
MODULES = {"simulated": simulated, "derived": derived, "emulated": emulated}


def evaluator(artifact: Artifact, fidelity: str, cluster: str, debug: bool = False) -> Evaluator:
    """What evaluates `artifact` at `fidelity` on `cluster`. Raises `UsageError` or `UnavailableError`."""
    check_fidelity(artifact, fidelity)
    return MODULES[fidelity].make(artifact, cluster, debug)


def check_fidelity(artifact: Artifact, fidelity: str) -> None:
    """Raise `UsageError` for a fidelity that the artifact does not have."""
    if fidelity in artifact.fidelities:
        return
    available = ", ".join(artifact.fidelities)
    if fidelity not in FIDELITIES:
        raise UsageError(f"unknown fidelity {fidelity!r}; {artifact.id} has: {available}")
    raise UsageError(f"{artifact.id} has no fidelity {fidelity!r}; it has: {available}")


def code_digest(artifact: Artifact, fidelity: str) -> str:
    """A digest of the sources that the numbers of `artifact` at `fidelity` come from."""
    return MODULES[fidelity].digest(artifact)
