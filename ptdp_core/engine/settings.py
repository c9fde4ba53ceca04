"""A complete training configuration from one TOML file or a named recipe, with `name=value` overrides.

Sections are the classes below. Every field name belongs to one section only, so `--set p=2` needs no section's name.
"""

import dataclasses
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ptdp_core.config import DTYPES, KEYS_ELSEWHERE, ModelConfig, ParallelConfig, TrainingConfig, described
from ptdp_core.errors import ConfigurationError
from ptdp_core.schedules import MODES

ON_NAN = ("stop", "skip")
MAX_MICROBATCHES = 1_000_000  # per step, because a schedule is a list of all their passes
MAX_LAYERS = 10_000  # because each is made of Python's objects, which take a millisecond


@dataclass(frozen=True)
class EngineSettings:
    """How the engine computes: settings of the machine and of numerics, which the simulator does not know."""

    exchange: str = described(
        "'blocking' waits for each exchange of the pipeline as the paper's code does, 'overlapped' computes meanwhile.",
        "blocking",
    )
    bucket_mib: float = described("Size of a gradient bucket with data_parallel='torch', in MiB.", 25.0)
    dtype: str = described("Precision of weights and activations: fp32, fp64, bf16 or fp16.", "fp32")
    dropout: float = described("Probability of dropout, everywhere in the model.", 0.0)
    overlapped_all_reduce: bool = described(
        "Let tensor ranks sum a linear layer's input gradient while they compute its weight gradient, and with "
        "sequence_parallel gather its input while they compute that input's gradient.",
        False,
    )
    overlapped_gather: bool = described(
        "With a sharded optimizer and data_parallel='torch', gather updated parameters, bucket by bucket, while the "
        "next forward pass has begun.",
        False,
    )
    fused_accumulation: bool = described(
        "Add weight gradients to the main gradients inside the GEMM, also 16-bit factors to fp32, and also with "
        "data_parallel='torch'; otherwise only where neither is the case.",
        False,
    )
    kernels: str = described(
        "Implementation of the fused operators: reference, compiled, triton, or auto for the best that runs here.",
        "reference",
    )
    device: str = described("'cpu', 'cuda', or 'auto' for a GPU where there is one.", "auto")
    seed: int = described("Seed of initial weights, dropout and the order of the data.", 1234)


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW with a cosine schedule of the learning rate."""

    lr: float = described("Learning rate after the warm-up.", 1e-3)
    min_lr: float = described("Learning rate at the end of the decay.", 1e-4)
    warmup_steps: int = described("Steps over which the learning rate rises linearly.", 10)
    decay_steps: int = described("Step at which the learning rate reaches its minimum.", 1000)
    beta1: float = described("Decay rate of AdamW's first moment.", 0.9)
    beta2: float = described("Decay rate of AdamW's second moment.", 0.95)
    eps: float = described("AdamW's epsilon.", 1e-8)
    weight_decay: float = described("Weight decay of matrices and tables; biases and layer norms have none.", 0.1)
    clip: float = described("Largest gradient norm, to which gradients are scaled down; 0 for no clipping.", 1.0)
    loss_scale: float | str = described("Factor on the loss for fp16: a number, or 'dynamic'.", 1.0)
    loss_scale_interval: int = described("Steps without overflow after which a dynamic loss scale doubles.", 1000)
    on_nan: str = described(
        "What a loss or gradient does that is not finite, where no smaller loss scale can help: 'stop' the run before "
        "it saves, or 'skip' the step.",
        "stop",
    )


@dataclass(frozen=True)
class RunSettings:
    """How long a run trains, on which data, and what it writes."""

    steps: int = described("Training steps in all, those before a restart included.", 50)
    data: str = described("Text file or folder, or token file; empty: the source of Python's standard library.", "")
    cache: str = described("Folder for token files made from text; empty: the user's cache folder.", "")
    save: str = described("Folder for checkpoints; empty: none.", "")
    save_every: int = described("Steps between checkpoints; 0: only one, after the last step.", 0)
    keep: int = described("Checkpoints that stay, the newest ones; 0: all.", 3)
    async_save: bool = described("Write checkpoints in the background.", False)
    load: str = described(
        "Checkpoint to go on from, a folder of them for its newest whole one, or 'auto' for that of `save`, if any.", ""
    )
    validation: float = described("Share of the sequences, the last of them, held out to evaluate on.", 0.0)
    eval_every: int = described("Steps between evaluations; 0: only one, after the last step.", 0)
    eval_batches: int = described("Batches of held-out sequences in an evaluation, at most.", 8)
    log: str = described("File for one JSON object per step; empty: none.", "")
    tensorboard: str = described("Folder for TensorBoard, if that is installed; empty: none.", "")
    log_every: int = described("Steps between lines on the terminal.", 1)
    timeout: float = described("Seconds without a finished step after which a run is taken to hang.", 600.0)


@dataclass(frozen=True)
class Settings:
    """Everything that defines a training run."""

    model: ModelConfig
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    engine: EngineSettings = field(default_factory=EngineSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        check(self)

    @property
    def training(self) -> TrainingConfig:
        """Model and parallelism as the formulas and the simulator know them."""
        return TrainingConfig(self.model, self.parallel)

    @property
    def kernels(self) -> str:
        """Which implementation of the operators of Section 4.2 runs: the reference unless they are to be fused."""
        return self.engine.kernels if self.parallel.fused else "reference"

    @property
    def recompute_layers(self) -> int:
        """Layers per recomputed block; 0 recomputes no whole layers."""
        assert self.parallel.recompute != "auto", "not decided yet: see launch.defaults"
        return self.parallel.checkpoint_layers if self.parallel.recompute == "full" else 0

    @property
    def recompute_attention(self) -> bool:
        """Whether each layer's attention core runs again in the backward pass.

        'sdpa' would gain nothing: its fused kernels keep no scores, and compute them again by themselves.
        """
        return self.parallel.recompute == "selective" and self.parallel.attention != "sdpa"


SECTIONS: dict[str, Any] = {
    "model": ModelConfig,
    "parallel": ParallelConfig,
    "engine": EngineSettings,
    "optimizer": OptimizerSettings,
    "run": RunSettings,
}
FIELDS = {f.name: section for section, cls in SECTIONS.items() for f in dataclasses.fields(cls)}


def check(settings: Settings) -> None:
    """Check all settings together; raises `ConfigurationError` naming the field, the rule and a fix."""
    engine, optimizer, parallel, run = settings.engine, settings.optimizer, settings.parallel, settings.run
    for section in (engine, optimizer, run):
        _check_types(section)
    TrainingConfig(settings.model, parallel)
    if not parallel.fused and engine.kernels not in ("reference", "auto"):
        raise ConfigurationError(
            f"kernels={engine.kernels!r} with fused=False; needs fused=true, or the reference, which fuses nothing; "
            "try kernels='auto'"
        )
    _one_of("exchange", engine.exchange, MODES)
    _one_of("dtype", engine.dtype, tuple(DTYPES))
    _one_of("on_nan", optimizer.on_nan, ON_NAN)
    _at_least("steps", run.steps, 1)
    _at_least("save_every", run.save_every, 0)
    _at_least("keep", run.keep, 0)
    _at_least("log_every", run.log_every, 1)
    _at_least("eval_every", run.eval_every, 0)
    _at_least("eval_batches", run.eval_batches, 1)
    if not 0 <= run.validation < 1:
        raise ConfigurationError(
            f"validation={run.validation} is no share; needs 0 <= validation < 1; try validation=0.01"
        )
    if run.eval_every and not run.validation:
        raise ConfigurationError(
            f"eval_every={run.eval_every} without held-out sequences; needs validation > 0; try validation=0.01"
        )
    for name in ("lr", "min_lr", "eps", "weight_decay", "clip", "warmup_steps"):
        _at_least(name, getattr(optimizer, name), 0)
    for name, value in (("bucket_mib", engine.bucket_mib), ("timeout", run.timeout)):
        if value <= 0:
            raise ConfigurationError(f"{name}={value} is not positive; needs {name} > 0; try {name}=30")
    if not 0 <= engine.dropout < 1:
        raise ConfigurationError(f"dropout={engine.dropout} is no probability below 1; needs 0 <= dropout < 1; try 0.1")
    for name in ("beta1", "beta2"):
        if not 0 <= getattr(optimizer, name) < 1:
            raise ConfigurationError(
                f"{name}={getattr(optimizer, name)} is out of range; needs 0 <= {name} < 1; try 0.9"
            )
    scale = optimizer.loss_scale
    if scale != "dynamic" and (isinstance(scale, str) or scale <= 0):
        raise ConfigurationError(f"loss_scale={scale!r} is no scale; needs a positive number or 'dynamic'; try 8192")
    if run.save_every and not run.save:
        raise ConfigurationError(
            f"save_every={run.save_every} without a place to save; needs save=<folder>; try save='checkpoints'"
        )
    if run.load == "auto" and not run.save:
        raise ConfigurationError("load='auto' without save; needs the folder to go on from; try save='checkpoints'")
    if parallel.data_parallel == "zero3" and (engine.exchange, engine.bucket_mib) != ("blocking", 25.0):
        raise ConfigurationError(
            f"exchange={engine.exchange!r}, bucket_mib={engine.bucket_mib} with data_parallel='zero3', which has "
            "neither a pipeline nor buckets; needs the defaults; try without them"
        )
    _check_overlap(engine, parallel)
    _check_sense(settings)


def check_world_size(world: int, parallel: ParallelConfig) -> None:
    """Raise `ConfigurationError` unless the world has n = p*t*d ranks (Section 3.1)."""
    if world != parallel.n:
        raise ConfigurationError(
            f"ranks={world} for p*t*d={parallel.p}*{parallel.t}*{parallel.d}={parallel.n}; needs as many ranks as "
            f"p*t*d; try --ranks {parallel.n} (torchrun --nproc-per-node {parallel.n}), or another d"
        )


def _check_overlap(engine: EngineSettings, parallel: ParallelConfig) -> None:
    """Raise `ConfigurationError` for an overlap with something that this layout does not do."""
    if engine.overlapped_all_reduce and parallel.t == 1:
        raise ConfigurationError(
            "overlapped_all_reduce=True with t=1, where nothing is all-reduced; needs t > 1; "
            "try overlapped_all_reduce=false"
        )
    if engine.overlapped_gather and not (parallel.sharded_optimizer and parallel.data_parallel == "torch"):
        raise ConfigurationError(
            f"overlapped_gather=True with sharded_optimizer={parallel.sharded_optimizer}, "
            f"data_parallel={parallel.data_parallel!r}; needs a sharded optimizer and buckets; "
            "try sharded_optimizer=true and data_parallel='torch'"
        )
    if engine.fused_accumulation and parallel.data_parallel == "zero3":
        raise ConfigurationError(
            "fused_accumulation=True with data_parallel='zero3', whose gradients autograd adds; needs 'local' or "
            "'torch'; try fused_accumulation=false"
        )


def _check_sense(settings: Settings) -> None:
    """Raise `ConfigurationError` for numbers of the right type that are out of range or contradict each other."""
    engine, optimizer, parallel = settings.engine, settings.optimizer, settings.parallel
    _at_least("seed", engine.seed, 0)
    _at_least("decay_steps", optimizer.decay_steps, 0)
    _at_least("loss_scale_interval", optimizer.loss_scale_interval, 1)
    if optimizer.eps == 0:
        raise ConfigurationError("eps=0 divides 0 by 0 where a gradient is 0; needs eps > 0; try eps=1e-8")
    if optimizer.min_lr > optimizer.lr:
        raise ConfigurationError(
            f"min_lr={optimizer.min_lr} is above lr={optimizer.lr}; needs min_lr <= lr; try min_lr={optimizer.lr / 10}"
        )
    if settings.model.layers > MAX_LAYERS:
        raise ConfigurationError(
            f"layers={settings.model.layers} is more than the engine can make; needs at most {MAX_LAYERS}; try fewer"
        )
    if parallel.m > MAX_MICROBATCHES:
        raise ConfigurationError(
            f"B={parallel.B} is {parallel.m} microbatches in a step; needs at most {MAX_MICROBATCHES}; try a smaller B"
        )


def _check_types(section: Any) -> None:
    """Raise `ConfigurationError` for what is not finite, or not of its default's type (for a float also an int)."""
    for f in dataclasses.fields(section):
        value, default = getattr(section, f.name), f.default
        wanted: tuple[type, ...] = (type(default),)
        if isinstance(default, float):
            wanted = (int, float, str) if f.name == "loss_scale" else (int, float)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):  # a bool is an int
            raise ConfigurationError(
                f"{f.name}={value!r} is of type {type(value).__name__}; needs {wanted[-1].__name__}; "
                f"try {f.name}={default!r}"
            )
        if isinstance(default, float) and isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
            raise ConfigurationError(f"{f.name}={value!r} is no finite number; needs one; try {f.name}={default!r}")


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ConfigurationError(
            f"{name}={value!r} is unknown; needs one of {', '.join(allowed)}; try {name}={allowed[0]!r}"
        )


def _at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ConfigurationError(f"{name}={value} is too small; needs {name} >= {least}; try {name}={least}")


def from_mapping(sections: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Settings from {section: {field: value}}, as TOML gives it. Raises `ConfigurationError` for unknown names."""
    parts = {}
    for section, values in sections.items():
        if section not in SECTIONS or not isinstance(values, Mapping):
            raise _unknown("section", section, SECTIONS)
        names = {f.name for f in dataclasses.fields(SECTIONS[section])}
        for name in values:
            if name not in names:
                raise _unknown("field", name, names)
        required = [f.name for f in dataclasses.fields(SECTIONS[section]) if f.default is dataclasses.MISSING]
        if missing := [name for name in required if name not in values]:
            raise ConfigurationError(
                f"section={section!r} lacks {', '.join(missing)}; needs {', '.join(required)}; try a recipe"
            )
        parts[section] = SECTIONS[section](**values)
    if "model" not in parts:
        raise ConfigurationError(
            "section='model' is missing; needs layers, hidden and heads; try a recipe, or [model] in the file"
        )
    return Settings(**parts)


def to_mapping(settings: Settings) -> dict[str, dict[str, Any]]:
    """Settings as {section: {field: value}}: the inverse of `from_mapping`."""
    return {section: dataclasses.asdict(getattr(settings, section)) for section in SECTIONS}


def read(path: str | Path) -> dict[str, dict[str, Any]]:
    """The sections of a TOML file. Raises `ConfigurationError` if it cannot be read, or a field has no section."""
    try:
        sections = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigurationError(
            f"config={str(path)!r} cannot be read: {reason}; needs a TOML file; try --recipe tiny"
        ) from error
    for section, values in sections.items():
        if not isinstance(values, dict):
            raise ConfigurationError(
                f"{section}={values!r} in {str(path)!r} stands outside a section; needs [model], [parallel], [engine], "
                f"[optimizer] or [run] above it; try [{FIELDS.get(section, 'model')}]"
            )
    return sections


def override(sections: dict[str, dict[str, Any]], assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The sections with `name=value` texts applied; a value that is not valid TOML is taken as plain text.

    Setting v without a schedule resets the schedule to v's default. Raises `ConfigurationError` for unknown names.
    """
    out = {section: dict(values) for section, values in sections.items()}
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigurationError(f"set={text!r} assigns nothing; needs name=value; try --set p=2")
        if name not in FIELDS:
            raise _unknown("field", name, FIELDS)
        out.setdefault(FIELDS[name], {})[name] = _parse(value.strip())
    changed = {text.partition("=")[0].strip() for text in assignments}
    if "v" in changed and "schedule" not in changed:
        out["parallel"].pop("schedule", None)  # ParallelConfig chooses it from v
    return out


def _parse(value: str) -> Any:
    try:
        return tomllib.loads(f"x = {value}")["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return value


def _unknown(what: str, name: str, known: Any) -> ConfigurationError:
    if name in KEYS_ELSEWHERE:
        return ConfigurationError(f"{what}={name!r} is unknown; {KEYS_ELSEWHERE[name]}")
    close = get_close_matches(name, list(known), n=1)
    fix = f"; try {close[0]!r}" if close else ""
    return ConfigurationError(f"{what}={name!r} is unknown; needs one of {', '.join(sorted(known))}{fix}")
