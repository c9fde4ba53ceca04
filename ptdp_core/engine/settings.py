"""Everything that defines a training run: model, parallelism, engine, optimizer, and the run itself.

Each part checks its own fields when it is made, and `Settings` what they must be together.
"""

from dataclasses import dataclass, field, replace

from ptdp_core.config import DTYPES, ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import check_fields, described
from ptdp_core.schedules import MODES

FP8_RECIPES = ("none", "tensorwise", "blockwise", "mxfp8")  # those that the engine has (`engine.fp8`)
MAX_MICROBATCHES = 1_000_000  # per step, because a schedule is a list of all their passes
MAX_LAYERS = 10_000  # because each is made of Python's objects, which take a millisecond


@dataclass(frozen=True)
class EngineSettings:
    """How the engine computes: settings of the machine and of numerics, which the simulator does not know."""

    exchange: str = described(
        "'blocking' waits for each exchange of the pipeline as the paper's code does, 'overlapped' computes meanwhile.",
        "blocking",
        choices=MODES,
    )
    bucket_mib: float = described(
        "Size of a gradient bucket with data_parallel='torch', in MiB.", 25.0, above=0, fix="bucket_mib=30"
    )
    dtype: str = described(
        "Precision of weights and activations: fp32, fp64, bf16 or fp16.", "fp32", choices=tuple(DTYPES)
    )
    dropout: float = described(
        "Probability of dropout, everywhere in the model.",
        0.0,
        least=0,
        below=1,
        wrong="no probability below 1",
        fix="0.1",
    )
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
    cuda_graph: bool = described(
        "Run each microbatch as a CUDA graph, which spares the host its launches; on a GPU that has the whole model, "
        "without dropout. The activations of a microbatch keep their memory between steps.",
        False,
    )
    kernels: str = described(
        "Implementation of the fused operators: reference, compiled, triton, or auto for the best that runs here.",
        "reference",
    )
    device: str = described("'cpu', 'cuda', or 'auto' for a GPU where there is one.", "auto")
    seed: int = described("Seed of initial weights, dropout and the order of the data.", 1234, least=0)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW with a cosine schedule of the learning rate."""

    lr: float = described("Learning rate after the warm-up.", 1e-3, least=0)
    min_lr: float = described("Learning rate at the end of the decay.", 1e-4, least=0)
    warmup_steps: int = described("Steps over which the learning rate rises linearly.", 10, least=0)
    decay_steps: int = described("Step at which the learning rate reaches its minimum.", 1000, least=0)
    beta1: float = described("Decay rate of AdamW's first moment.", 0.9, least=0, below=1, fix="0.9")
    beta2: float = described("Decay rate of AdamW's second moment.", 0.95, least=0, below=1, fix="0.9")
    eps: float = described("AdamW's epsilon.", 1e-8, least=0)
    weight_decay: float = described(
        "Weight decay of matrices and tables; biases and layer norms have none.", 0.1, least=0
    )
    clip: float = described(
        "Largest gradient norm, to which gradients are scaled down; 0 for no clipping.", 1.0, least=0
    )
    loss_scale: float | str = described("Factor on the loss for fp16: a number, or 'dynamic'.", 1.0)
    loss_scale_interval: int = described(
        "Steps without overflow after which a dynamic loss scale doubles.", 1000, least=1
    )
    on_nan: str = described(
        "What a loss or gradient does that is not finite, where no smaller loss scale can help: 'stop' the run before "
        "it saves, or 'skip' the step.",
        "stop",
        choices=("stop", "skip"),
    )

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class RunSettings:
    """How long a run trains, on which data, and what it writes."""

    steps: int = described("Training steps in all, those before a restart included.", 50, least=1)
    data: str = described("Text file or folder, or token file; empty: the source of Python's standard library.", "")
    cache: str = described("Folder for token files made from text; empty: the user's cache folder.", "")
    save: str = described("Folder for checkpoints; empty: none.", "")
    save_every: int = described("Steps between checkpoints; 0: only one, after the last step.", 0, least=0)
    keep: int = described("Checkpoints that stay, the newest ones; 0: all.", 3, least=0)
    async_save: bool = described("Write checkpoints in the background.", False)
    load: str = described(
        "Checkpoint to go on from, a folder of them for its newest whole one, or 'auto' for that of `save`, if any.", ""
    )
    validation: float = described(
        "Share of the sequences, the last of them, held out to evaluate on.",
        0.0,
        least=0,
        below=1,
        wrong="no share",
        fix="validation=0.01",
    )
    eval_every: int = described("Steps between evaluations; 0: only one, after the last step.", 0, least=0)
    eval_batches: int = described("Batches of held-out sequences in an evaluation, at most.", 8, least=1)
    log: str = described("File for one JSON object per step; empty: none.", "")
    tensorboard: str = described("Folder for TensorBoard, if that is installed; empty: none.", "")
    profile: str = described("Folder for each rank's trace (torch.profiler) of the last step; empty: none.", "")
    log_every: int = described("Steps between lines on the terminal.", 1, least=1)
    timeout: float = described(
        "Seconds without a finished step after which a run is taken to hang.", 600.0, above=0, fix="timeout=30"
    )

    def __post_init__(self) -> None:
        check_fields(self)


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
        drops = "yes" if self.engine.dropout else "no"
        return TrainingConfig(replace(self.model, trained_with_dropout=drops), self.parallel)

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
        return (
            "core_attn" in self.parallel.recomputed_modules(self.parallel.writes_scores)
            and self.parallel.attention != "sdpa"
        )


def check(settings: Settings) -> None:
    """Check all settings together; raises `ConfigurationError` naming the field, the rule and a fix."""
    engine, optimizer, parallel, run = settings.engine, settings.optimizer, settings.parallel, settings.run
    TrainingConfig(settings.model, parallel).check_zero3_alone()
    zero3, experts = parallel.data_parallel == "zero3", settings.model.experts
    if parallel.fp8_recipe not in FP8_RECIPES or (parallel.fp8_recipe != "none" and (zero3 or experts)):
        but = " with data_parallel='zero3'" if zero3 else f" with experts={experts}" if experts else ""
        needed = "'none'" if but else f"one of {', '.join(FP8_RECIPES)}"
        raise ConfigurationError(
            f"fp8_recipe={parallel.fp8_recipe!r}{but} is simulated only; needs {needed} to train; try fp8_recipe='none'"
        )
    for name in parallel.recomputed_modules(parallel.writes_scores):
        if name not in ("core_attn", "mlp", "moe"):
            raise ConfigurationError(
                f"recompute_modules={parallel.recompute_modules!r} with {name!r} is simulated only; needs some of "
                "core_attn, mlp, moe to train; try recompute_modules='core_attn'"
            )
    values = vars(parallel) | vars(settings.model)
    for name, trained in {
        "offload": "",
        "optimizer_states": "adam",
        "kv_latent": 0,
        "mtp_layers": 0,
        "window": 0,
        "sinks": False,
        "post_norms": False,
        "layer_pattern": "",
        "expert_latent": 0,
        "lora_rank": 0,
        "positions": "rotary" if settings.model.positions == "none" else settings.model.positions,
        "activation": "swiglu" if settings.model.activation == "geglu" else settings.model.activation,
    }.items():
        if (value := values[name]) != trained:
            wanted = str(trained) or "''"
            raise ConfigurationError(
                f"{name}={value} is simulated only; needs {wanted} to train; try {name}={wanted.lower()}"
            )
    if parallel.c > 1 and parallel.context_exchange == "ring" and engine.dropout:
        raise ConfigurationError(
            f"dropout={engine.dropout} with context_exchange='ring', whose attention drops nothing; needs dropout=0; "
            "try dropout=0, or context_exchange='all_gather'"
        )
    if parallel.data_parallel == "zero2":
        raise ConfigurationError(
            "data_parallel='zero2' is simulated only; needs another to train; try data_parallel='torch'"
        )
    if engine.kernels not in (settings.kernels, "auto"):
        raise ConfigurationError(
            f"kernels={engine.kernels!r} with fused=False; needs fused=true, or the reference, which fuses nothing; "
            "try kernels='auto'"
        )
    if run.eval_every and not run.validation:
        raise ConfigurationError(
            f"eval_every={run.eval_every} without held-out sequences; needs validation > 0; try validation=0.01"
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
    _check_graphs(settings)
    _check_sense(settings)


def check_world_size(world: int, parallel: ParallelConfig) -> None:
    """Raise `ConfigurationError` unless the world has n = p*t*d ranks (Section 3.1), with c > 1 p*t*c*d."""
    if world != parallel.n:
        letters = "ptcd" if parallel.c > 1 else "ptd"
        product, sizes = "*".join(letters), "*".join(str(getattr(parallel, letter)) for letter in letters)
        raise ConfigurationError(
            f"ranks={world} for {product}={sizes}={parallel.n}; needs as many ranks as {product}; "
            f"try --ranks {parallel.n} (torchrun --nproc-per-node {parallel.n}), or another d"
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


def _check_graphs(settings: Settings) -> None:
    """Raise `ConfigurationError` if microbatches cannot be CUDA graphs: they exchange, draw, or wait for the host."""
    parallel = settings.parallel
    for name, value, needed in (
        ("p", parallel.p, 1),
        ("t", parallel.t, 1),
        ("c", parallel.c, 1),
        ("e", parallel.e, 1),
        ("v", parallel.v, 1),
        ("schedule", parallel.schedule, "1f1b"),
        ("data_parallel", parallel.data_parallel, "local"),
        ("capacity_factor", parallel.capacity_factor, 0),
        ("dropout", settings.engine.dropout, 0),
    ):
        if settings.engine.cuda_graph and value != needed:
            raise ConfigurationError(
                f"{name}={value} with cuda_graph=True, which records kernels alone; needs {name}={needed}; "
                "try cuda_graph=false"
            )


def _check_sense(settings: Settings) -> None:
    """Raise `ConfigurationError` for numbers of the right type that are out of range or contradict each other."""
    optimizer, parallel = settings.optimizer, settings.parallel
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
