"""Evaluating an artifact's points: what all fidelities share, and one module for each that `FIDELITIES` lists.

    simulated   through the simulator
    derived     through the artifact's formula
    emulated    the engine on virtual accelerators and shaped links, on this machine (annex emulation)
    measured    the engine training on this machine's devices (annex measured)

A point that cannot be is 'invalid', one that does not fit in the GPUs' memory is 'oom', one that breaks is 'failed';
none of them stops the others.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from reproduce.annex import part
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import Point, Scalar
from results import ROOT
from results.records import ClusterRef, Metric, PointResult, RecordedTimeline, digest_files, fingerprint, provenance

IN_ANNEX = {"emulated": "emulation", "measured": "measured"}


class Outcome(NamedTuple):
    """Status, reason (None if ok), metrics, and timelines of a point."""

    status: str
    reason: str | None
    metrics: Mapping[str, Metric]
    timelines: tuple[RecordedTimeline, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What a run would do: an artifact's points at a fidelity and a scale, what runs them, and where it writes.

    `cluster` is what is simulated or emulated; `launcher` starts the ranks of what is measured.
    """

    artifact: Artifact
    fidelity: str
    scale: str
    points: tuple[Point, ...]
    folder: Path
    cluster: str
    launcher: str

    @property
    def elsewhere(self) -> bool:
        """Whether it is simulated or emulated on another cluster than the one on which its paper measured."""
        return FIDELITIES[self.fidelity].on_cluster and self.cluster.lower() != self.artifact.cluster


@dataclass(frozen=True)
class PointEvaluator:
    """Evaluates the points of a plan; a subclass for each fidelity says how, in `outcome`.

    `code_digest` covers the sources that the numbers come from. `cluster_ref` names the cluster file, for those that
    need one.
    """

    plan: Plan
    code_digest: str
    cluster_ref: ClusterRef | None = None
    debug: bool = field(default=False, compare=False)

    def outcome(self, point: Point) -> Outcome:
        """What came of a point; may raise: ConfigurationError says that the point is not valid."""
        raise NotImplementedError

    def depends_on(self, point: Point) -> Mapping[str, Any]:
        """What else determines a point's numbers. Part of the fingerprint, where it replaces parts of the same name."""
        return {}

    def parameters(self, point: Point) -> Mapping[str, Scalar]:
        """The point's parameters with the training configuration's defaults filled in, if they make one."""
        try:
            return {**point.parameters, **TrainingConfig.from_plain(point.parameters).to_plain()}
        except ConfigurationError:
            return point.parameters

    def order(self) -> Sequence[Point]:
        """The points in the order in which they are evaluated."""
        return self.plan.points

    def notes(self, results: Results) -> tuple[str, ...]:
        """What a reader has to know of how the numbers came about."""
        return ()

    def results(self, points: Sequence[PointResult]) -> Results:
        """The evaluated points as claims are judged on them."""
        return Results(tuple(points), self.plan.fidelity, self.plan.scale)

    def fingerprint(self, point: Point) -> str:
        """A digest of all that determines the point's numbers; of what is timed, the machine, too."""
        timed = FIDELITIES[self.plan.fidelity].timed
        return fingerprint(
            {
                "parameters": dict(self.parameters(point)),
                "fidelity": self.plan.fidelity,
                "cluster": self.cluster_ref.digest if self.cluster_ref else None,
                "code": self.code_digest,
                **({"host": asdict(provenance.host())} if timed else {}),
                **self.depends_on(point),
            }
        )

    def evaluate(self, point: Point) -> PointResult:
        """The point with its metrics, or with the reason why it has none."""
        try:
            outcome = self.outcome(point)
        except ConfigurationError as error:
            outcome = Outcome("invalid", str(error), {})
        except Exception as error:
            if self.debug:
                raise
            outcome = Outcome("failed", f"{type(error).__name__}: {error}; --debug shows where", {})
        return PointResult(
            key=point.key,
            series=point.series,
            label=point.label,
            parameters=self.parameters(point),
            status=outcome.status,
            reason=provenance.scrub(outcome.reason) if outcome.reason else None,
            fingerprint=self.fingerprint(point),
            metrics=outcome.metrics,
            paper=point.paper,
            timelines=outcome.timelines,
        )


@cache
def sources_digest(packages: tuple[str, ...], hook: Callable[..., Any] | None, module: ModuleType) -> str:
    """A digest of the sources of `packages` (paths below the root), the artifact's own `hook`, and a fidelity's module.

    A package is a folder, with its subfolders, or one module. The digest is kept: a process reads the files once.
    """
    paths = [Path(str(module.__file__)), Path(__file__)]
    for package in packages:
        path = ROOT / package
        paths += [path] if path.suffix else sorted(path.rglob("*.py"))
    hook_module = sys.modules.get(hook.__module__) if hook else None
    if hook_module is not None and hook_module.__file__:
        paths.append(Path(hook_module.__file__))
    return digest_files(paths)


def module_of(fidelity: str) -> ModuleType:
    """The module that evaluates points at a fidelity."""
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
