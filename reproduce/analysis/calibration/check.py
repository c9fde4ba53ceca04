"""Training runs that test a calibration: the engine's steps of tiny GPTs, one per layout, as a record.

`reproduce accuracy` reads the record as it reads any measured one. The configurations were chosen before any was
predicted. No time measured here feeds a cluster file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.harness.ranks import run_ranks
from benchmarks.harness.setup import Setup
from benchmarks.harness.step_time import time_steps
from benchmarks.harness.timing import Samples, is_gpu
from benchmarks.records import Metric, PointResult, Record, fingerprint
from benchmarks.records.provenance import collect
from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.engine.settings import EngineSettings, Settings
from reproduce.analysis.calibration.measure import REPEATS, typical

ID = "calibration"
SAMPLES, WARM_UP = 6, 1
SEED = 1234  # the engine's default
CPU_MODELS = (ModelConfig(4, 256, 8, 128, 1024), ModelConfig(2, 512, 8, 128, 1024), ModelConfig(8, 128, 4, 64, 256))
GPU_MODELS = (
    ModelConfig(8, 1024, 16, 1024, 32768),
    ModelConfig(4, 2048, 16, 1024, 32768),
    ModelConfig(8, 2048, 16, 2048, 51200),
)
# Model, and how it is parallelised; what has more ranks than there are devices is run on CPUs, where ranks share cores.
LAYOUTS: tuple[tuple[int, dict[str, int | str]], ...] = (
    (0, {"b": 2, "B": 8}),
    (0, {"b": 4, "B": 8, "recompute": "full"}),
    (1, {"b": 2, "B": 4}),
    (2, {"b": 4, "B": 16}),
    (0, {"p": 2, "b": 2, "B": 16}),
    (0, {"p": 2, "v": 2, "b": 2, "B": 16}),
    (0, {"p": 2, "b": 2, "B": 8, "schedule": "gpipe"}),
    (0, {"t": 2, "b": 4, "B": 8}),
    (0, {"d": 2, "b": 2, "B": 16}),
    (0, {"d": 2, "b": 2, "B": 16, "recompute": "full"}),
    (1, {"p": 2, "b": 2, "B": 8}),
    (1, {"t": 2, "b": 2, "B": 4}),
    (1, {"d": 2, "b": 2, "B": 8}),
    (2, {"p": 2, "b": 4, "B": 32}),
    (0, {"p": 2, "t": 2, "b": 2, "B": 8}),
    (0, {"p": 2, "d": 2, "b": 2, "B": 16}),
    (0, {"p": 4, "b": 2, "B": 16}),
    (2, {"d": 4, "b": 2, "B": 16}),
)


@dataclass(frozen=True)
class Trial:
    """A configuration to train, and what it is called."""

    config: TrainingConfig

    @property
    def label(self) -> str:
        """Its layout: 'h=256 p=2 b=2 B=16'."""
        parallel = self.config.parallel
        axes = [f"{name}={value}" for name in "ptdv" if (value := getattr(parallel, name)) > 1]
        extra = [parallel.schedule] if parallel.schedule == "gpipe" else []
        extra += ["recompute"] if parallel.recompute == "full" else []
        return " ".join([f"h={self.config.model.hidden}", *axes, f"b={parallel.b}", f"B={parallel.B}", *extra])


def trials(device: str, ranks: int) -> list[Trial]:
    """The configurations for `ranks` devices: on CPUs all of them, on GPUs those with a GPU for every rank."""
    models = GPU_MODELS if is_gpu(device) else CPU_MODELS
    layouts = [
        Trial(TrainingConfig(models[model], ParallelConfig(**{"recompute": "none", **parallel})))  # type: ignore[arg-type]
        for model, parallel in LAYOUTS
    ]
    return [trial for trial in layouts if not is_gpu(device) or trial.config.parallel.n <= ranks]


def run(device: str, ranks: int, command: Sequence[str], done: Callable[[str], None]) -> Record:
    """Train all trials, twice some time apart, and keep the faster; `done` is called for each number of ranks.

    Raises `RankError` if a rank fails.
    """
    started = datetime.now(UTC)
    every = trials(device, ranks)
    measured: dict[str, list[Samples]] = {trial.label: [] for trial in every}
    for n in sizes(device, ranks):
        group = [trial for trial in every if trial.config.parallel.n == n]
        for trial, samples in zip(group, run_ranks(train_here, n, (group, device), device)[0], strict=True):
            measured[trial.label].append(samples)
        done(f"{n} rank{'s' if n > 1 else ''}")
    seconds = (datetime.now(UTC) - started).total_seconds()
    return Record(
        kind="benchmark",
        id=ID,
        title="Training steps of tiny GPTs, for the calibration to predict",
        paper=None,
        fidelity="measured",
        scale="tiny",
        state="complete",
        provenance=collect(command, SEED, started, seconds),
        points=tuple(_point(trial, min(measured[trial.label], key=typical), device) for trial in every),
        notes=(
            "A whole step of the engine, blocking exchanges; the slowest rank's time, lower quartile of "
            f"{SAMPLES} steps, the faster of {REPEATS} runs.",
        ),
    )


def sizes(device: str, ranks: int) -> list[int]:
    """The numbers of ranks of the trials, as often as `run` calls `done`."""
    return sorted({trial.config.parallel.n for trial in trials(device, ranks)}) * REPEATS


def train_here(beat: Callable[[], None], group: Sequence[Trial], device: str) -> list[Samples]:
    """On every rank: seconds of the slowest rank's step, for each trial."""
    engine = EngineSettings(dtype=Setup(device).dtype, device=device, kernels="auto")
    every = (Settings(trial.config.model, trial.config.parallel, engine) for trial in group)
    return [Samples(time_steps(beat, settings, SAMPLES, WARM_UP).seconds) for settings in every]


def _point(trial: Trial, samples: Samples, device: str) -> PointResult:
    parameters = {**trial.config.to_plain(), "device": device, "dtype": Setup(device).dtype}
    n = trial.config.parallel.n
    return PointResult(
        key=trial.label.replace(" ", "/"),
        series=f"{n} rank{'s' if n > 1 else ''}",
        label=trial.label,
        parameters=parameters,
        status="ok",
        reason=None,
        fingerprint=fingerprint(parameters),
        metrics={"iteration_time": Metric(typical(samples), "s", "measured", samples.seconds)},
    )
