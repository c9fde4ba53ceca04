"""Training runs that test a calibration: the engine's steps of tiny GPTs, one per layout, as a record.

`reproduce accuracy` reads the record as it reads any measured one. The configurations were chosen before any was
predicted. No time measured here feeds a cluster file.
"""

import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.ranks import run_ranks
from benchmarks.harness.step_time import time_steps
from benchmarks.harness.timing import Samples, is_gpu
from ptdp_core.config import TrainingConfig
from ptdp_core.engine.settings import EngineSettings, Settings
from reproduce.annex.calibrate.measure import REPEATS, typical
from results.records import Metric, PointResult, Record, fingerprint
from results.records.provenance import collect

ID = "calibration"
SAMPLES, WARM_UP = 6, 1
SEED = 1234  # the engine's default
TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def label_of(config: TrainingConfig) -> str:
    """A configuration's layout: 'h=256 p=2 b=2 B=16'."""
    parallel = config.parallel
    axes = [f"{name}={value}" for name in "ptdv" if (value := getattr(parallel, name)) > 1]
    extra = [parallel.schedule] if parallel.schedule == "gpipe" else []
    extra += ["recompute"] if parallel.recompute == "full" else []
    return " ".join([f"h={config.model.hidden}", *axes, f"b={parallel.b}", f"B={parallel.B}", *extra])


def trials(device: str, ranks: int) -> list[TrainingConfig]:
    """The configurations for `ranks` devices: on CPUs all of them, on GPUs those with a GPU for every rank."""
    models = TABLE["models"]["cuda" if is_gpu(device) else "cpu"]
    layouts = [
        TrainingConfig.from_plain({"recompute": "none", **row, **models[row["model"]]}) for row in TABLE["layouts"]
    ]
    return [trial for trial in layouts if not is_gpu(device) or trial.parallel.n <= ranks]


def run(device: str, ranks: int, command: Sequence[str], done: Callable[[str], None]) -> Record:
    """Train all trials, twice some time apart, and keep the faster; `done` is called for each number of ranks.

    Raises `RankError` if a rank fails.
    """
    started = datetime.now(UTC)
    every = trials(device, ranks)
    measured: dict[str, list[Samples]] = {label_of(trial): [] for trial in every}
    for n in sizes(device, ranks):
        group = [trial for trial in every if trial.parallel.n == n]
        for trial, samples in zip(group, run_ranks(train_here, n, (group, device), device)[0], strict=True):
            measured[label_of(trial)].append(samples)
        done(f"{n} rank{'s' if n > 1 else ''}")
    return Record(
        kind="benchmark",
        id=ID,
        title="Training steps of tiny GPTs, for the calibration to predict",
        paper=None,
        fidelity="measured",
        scale="tiny",
        state="complete",
        provenance=collect(command, started, seed=SEED),
        points=tuple(_point(trial, min(measured[label_of(trial)], key=typical), device) for trial in every),
        notes=(
            "A whole step of the engine, blocking exchanges; the slowest rank's time, lower quartile of "
            f"{SAMPLES} steps, the faster of {REPEATS} runs.",
        ),
    )


def sizes(device: str, ranks: int) -> list[int]:
    """The numbers of ranks of the trials, as often as `run` calls `done`."""
    return sorted({trial.parallel.n for trial in trials(device, ranks)}) * REPEATS


def train_here(beat: Callable[[], None], group: Sequence[TrainingConfig], device: str) -> list[Samples]:
    """On every rank: seconds of the slowest rank's step, for each trial."""
    engine = EngineSettings(dtype=Setup(device).dtype, device=device, kernels="auto")
    every = (Settings(trial.model, trial.parallel, engine) for trial in group)
    return [Samples(time_steps(beat, settings, SAMPLES, WARM_UP).seconds) for settings in every]


def _point(trial: TrainingConfig, samples: Samples, device: str) -> PointResult:
    parameters = {**trial.to_plain(), "device": device, "dtype": Setup(device).dtype}
    n = trial.parallel.n
    return PointResult(
        key=label_of(trial).replace(" ", "/"),
        series=f"{n} rank{'s' if n > 1 else ''}",
        label=label_of(trial),
        parameters=parameters,
        status="ok",
        reason=None,
        fingerprint=fingerprint(parameters),
        metrics={"iteration_time": Metric(typical(samples), "s", "measured", samples.seconds)},
    )
