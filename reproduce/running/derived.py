"""Fidelity 'derived': a point through the artifact's own formula."""

import sys
from collections.abc import Mapping

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.sweep import Point, Scalar
from reproduce.running import simulated
from reproduce.running.fidelities import Outcome, Plan, PointEvaluator, sources_digest


class Derived(PointEvaluator):
    """Calls the artifact's `derive`."""

    def parameters(self, point: Point) -> Mapping[str, Scalar]:
        """The point's own: a formula knows no defaults of training configurations."""
        return point.parameters

    def outcome(self, point: Point) -> Outcome:
        """What follows from the point's parameters."""
        artifact = self.plan.artifact
        assert artifact.derive is not None
        return Outcome("ok", None, artifact.metrics(artifact.derive(point), "derived"))


def make(plan: Plan, debug: bool) -> Derived:
    """What derives the numbers of a plan."""
    return Derived(plan, digest(plan.artifact), None, debug)


def digest(artifact: Artifact) -> str:
    """A digest of the sources: formulas may use the simulator's counts, too, and cost nothing to compute again."""
    return sources_digest(simulated.SOURCES, artifact.derive, sys.modules[__name__])
