"""An artifact's experiment as real training on the devices at hand: scales 'cpu', 'gpu' and 'gpus'.

`with_measured` gives an artifact its own; `measured_experiments` has them all. Layouts are those of four ranks:
processes on the cores of a CPU, or GPUs of one machine. The model is as small as the devices ask for, everything else
follows the paper: full recomputation unless said otherwise, fp16 and dropout on GPUs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from reproduce.artifacts.shared.grids import Line, Mark, crossed
from reproduce.experiment.artifact import Artifact, Point, Quantity, Results, Scalar, Setting, Take
from reproduce.experiment.parameters import ranks_of

if TYPE_CHECKING:
    from benchmarks.harness.launchers import Launcher

CPU, GPU, GPUS = "cpu", "gpu", "gpus"
RANKS = {CPU: 4, GPU: 1, GPUS: 4}
GPU_MODEL: Mapping[str, Scalar] = {"layers": 16, "hidden": 2048, "heads": 16, "seq": 1024, "vocab": 51200}
MODELS: Mapping[str, Mapping[str, Scalar]] = {
    CPU: {"layers": 8, "hidden": 128, "heads": 4, "seq": 64, "vocab": 256},
    GPU: GPU_MODEL,
    GPUS: GPU_MODEL,
}
GPU_ENGINE: Mapping[str, Scalar] = {
    "device": "cuda",
    "dtype": "fp16",
    "loss_scale": 8192.0,
    "dropout": 0.1,
    "kernels": "auto",
}
ENGINES: Mapping[str, Mapping[str, Scalar]] = {
    CPU: {"device": "cpu", "dtype": "fp32", "kernels": "reference"},
    GPU: GPU_ENGINE,
    GPUS: GPU_ENGINE,
}
TOKENS = Quantity("tokens_per_s", "tokens", "tokens/s", "tokens/s", 1, 0)
# What is shown of a tiny model on a CPU, in units that leave digits.
SMALL = {
    "petaFLOP/s": ("gigaFLOP/s", 1e9),
    "teraFLOP/s": ("gigaFLOP/s", 1e9),
    "s": ("ms", 1e-3),
    "GB": ("MB", 1e6),
    "TB": ("MB", 1e6),
}

Shape = Mapping[str, Scalar]


@dataclass(frozen=True)
class Experiment:
    """An artifact's experiment at one or several scales: series times x values of one model on the scale's ranks.

    `subject` begins its title, `varies` says what its points differ in, `how` what is taken of them. `shared` and
    `model` are beside, or in place of, the scale's own. `claims` are those that such devices can judge. A mark with
    `gpus` says how many ranks it has.
    """

    subject: str
    varies: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...]
    shared: Shape = field(default_factory=dict)
    scales: tuple[str, ...] = (CPU, GPUS)
    model: Shape = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    how: str = "Real training steps of a small GPT on {on}; FLOP/s by the paper's count (eq. 3)."

    def points(self, scale: str) -> tuple[Point, ...]:
        """Its points at a scale; none has a value of the paper's, which ran other configurations."""
        shared = {**MODELS[scale], **self.model, **ENGINES[scale], **self.shared}
        return tuple(
            point
            for line in self.lines
            for mark in self.marks
            for point in crossed(shared, (line,), (mark,), _ranks(mark, scale, shared))
        )

    def setting(self, scale: str, artifact: Artifact) -> Setting:
        """What `artifact` is called at a scale, and how it is shown there."""
        quantities, x_axis = artifact.quantities, artifact.x_axis
        shown = tuple(map(_small, quantities)) if scale == CPU else quantities
        ranks = max(ranks_of(point.parameters) for point in self.points(scale))
        on = f"{ranks} CPU process{'es' if ranks > 1 else ''}" if scale == CPU else f"{ranks} GPU{'s' * (ranks > 1)}"
        return Setting(
            f"{self.subject}, {on}",
            f"{self.varies}. {self.how.format(on=on)}",
            (*shown, TOKENS),
            artifact.columns,
            replace(x_axis, label=x_axis.label.replace("GPUs", "processes")) if x_axis and scale == CPU else None,
        )


def _ranks(mark: Mark, scale: str, shared: Shape) -> int | None:
    """How many ranks d = n/(p*t) makes up; None if the configuration says d itself."""
    if "d" in mark.parameters or "d" in shared:
        return None
    gpus = mark.parameters.get("gpus", RANKS[scale])
    assert isinstance(gpus, int)
    return gpus


def _small(quantity: Quantity) -> Quantity:
    """A quantity in the units of a CPU, where a rank is a process."""
    if quantity.shown not in SMALL:
        return quantity
    shown, factor = SMALL[quantity.shown]
    label, axis = (text.replace("per GPU", "per process") for text in (quantity.label, quantity.axis))
    axis = axis.replace(quantity.shown, shown)
    return replace(quantity, label=label, axis=axis, shown=shown, factor=factor, digits=1)


def with_measured(
    artifact: Artifact,
    experiments: tuple[Experiment, ...],
    quantities: tuple[Quantity, ...] = (),
    columns: Mapping[str, str] = MappingProxyType({}),
    measure: "Callable[[Launcher], Take] | None" = None,
) -> Artifact:
    """The artifact with fidelity 'measured': these experiments, at their scales.

    `quantities` and `columns` are shown instead of the artifact's own, `measure` takes what is no training step. What
    the artifact's notes say of the paper's configurations does not hold for these.
    """
    by_scale = {scale: one for one in experiments for scale in one.scales}
    own, notes = artifact.points, artifact.notes
    shown = replace(artifact, quantities=quantities or artifact.quantities, columns=columns or artifact.columns)

    def points(scale: str) -> tuple[Point, ...]:
        return by_scale[scale].points(scale) if scale in by_scale else own(scale)

    def noted(results: Results) -> tuple[str, ...]:
        return notes(results) if notes is not None and results.scale not in by_scale else ()

    return replace(
        artifact,
        fidelities=(*artifact.fidelities, "measured"),
        scales=(*artifact.scales, *(scale for scale in (CPU, GPU, GPUS) if scale in by_scale)),
        settings={
            **artifact.settings,
            **{scale: one.setting(scale, shown) for scale, one in by_scale.items()},
        },
        points=points,
        notes=noted,
        measure=measure,
        claims=tuple(
            replace(claim, scales=(*claim.scales, *_judging(experiments, claim.id))) for claim in artifact.claims
        ),
    )


def _judging(experiments: tuple[Experiment, ...], claim: str) -> tuple[str, ...]:
    """The scales whose devices can judge a claim: never a CPU, whose ranks share its cores."""
    return tuple(scale for one in experiments if claim in one.claims for scale in one.scales if scale != CPU)
