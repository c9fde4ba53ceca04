"""Evaluating an artifact's points: one module per fidelity, as `reproduce.experiment.fidelity` lists them.

    evaluator   what they share: status, reason, fingerprint
    simulated   through the simulator
    derived     through the artifact's formula
    emulated    the engine on virtual accelerators and shaped links, on this machine (annex emulation)
    measured    the engine training on this machine's devices (annex measured)

A point that cannot be is 'invalid', one that does not fit in the GPUs' memory is 'oom', one that breaks is 'failed';
none of them stops the others.
"""

from importlib import import_module
from types import ModuleType

from reproduce.annex import part
from reproduce.experiment.artifact import Artifact
from reproduce.running.evaluator import Plan, PointEvaluator

IN_ANNEX = {"emulated": "emulation", "measured": "measured"}


def module_of(fidelity: str) -> ModuleType:
    """The module that evaluates points at a fidelity (see `reproduce.experiment.fidelity`)."""
    if fidelity in IN_ANNEX:
        return part(IN_ANNEX[fidelity], "fidelity")
    return import_module(f"reproduce.running.{fidelity}")


def evaluator(plan: Plan, debug: bool = False) -> PointEvaluator:
    """What evaluates the points of a plan. Raises `UsageError` or `UnavailableError`."""
    evaluator: PointEvaluator = module_of(plan.fidelity).make(plan, debug)
    return evaluator


def default_scale(artifact: Artifact, fidelity: str, launcher: str = "local") -> str:
    """The scale of a run that asks for none: the first, or what the devices found can do if it measures."""
    scales = artifact.scales_at(fidelity)
    choose = getattr(module_of(fidelity), "default_scale", None)
    return choose(scales, launcher) if choose else scales[0]


def expected_seconds(plan: Plan) -> tuple[float, ...]:
    """About how long evaluating each point takes; zeros for fidelities that take no time worth telling."""
    expect = getattr(module_of(plan.fidelity), "expected_seconds", None)
    return tuple(expect(point, plan.cluster) if expect else 0.0 for point in plan.points)


def code_digest(artifact: Artifact, fidelity: str) -> str:
    """A digest of the sources that the numbers of `artifact` at `fidelity` come from."""
    digest: str = module_of(fidelity).digest(artifact)
    return digest
