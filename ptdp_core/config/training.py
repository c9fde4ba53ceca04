"""A model and its parallelisation together: what both have to agree on, and what follows from both."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cached_property, lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

from ptdp_core.config.model import LayerKind, ModelConfig
from ptdp_core.config.parallel import ATTENTION_KERNELS, OFFLOADED, RECOMPUTE_MODULES, ParallelConfig
from ptdp_core.config.words import in_todays_words
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import check_divides, fields_of, largest_divisor
from ptdp_core.pipeline_layout import layout_of, stage_sizes
from ptdp_core.schedules import default_schedule

MOST_KEPT = 1 << 16  # values of all functions, some 100 MB: a search of 2,048 GPUs for DeepSeek-V3 has half as many
_VALUES: dict[tuple[object, ...], Any] = {}  # of the functions that are `kept`, by function and key

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class TrainingConfig:
    """A model and how it is parallelised: everything that defines one training iteration."""

    model: ModelConfig
    parallel: ParallelConfig

    def __post_init__(self) -> None:
        model, parallel, t = self.model, self.parallel, self.parallel.t
        check_divides("t", t, "heads", model.heads, "whole attention heads on every tensor rank")
        self._check_sequence()
        check_divides("t", t, "kv_heads", model.query_groups, "whole key/value heads on every tensor rank")
        if model.has_states and (model.mamba_groups % parallel.t or parallel.c > 1):
            raise ConfigurationError(
                f"t={parallel.t}, c={parallel.c} with layer_pattern={model.layer_pattern!r}; needs whole groups of "
                f"mamba_groups={model.mamba_groups} on every tensor rank, and whole sequences; try c=1, "
                f"t={largest_divisor(model.mamba_groups, parallel.t)}"
            )
        check_divides("t", t, "ffn_hidden", model.mlp_width, "equal parts of the MLP on every tensor rank")
        self._check_exchange()
        self._check_experts()
        if parallel.vocabulary and (t > 1 or parallel.c > 1 or model.mtp_layers):
            raise ConfigurationError(
                f"t={t}, c={parallel.c}, mtp_layers={model.mtp_layers} with schedule={parallel.schedule!r}, by which "
                "pipeline ranks share the vocabulary; needs t=1, c=1, mtp_layers=0; "
                f"try schedule={parallel.schedule.rpartition('+')[0]!r}"
            )
        for choice, known in (("recompute_modules", RECOMPUTE_MODULES), ("offload", OFFLOADED)):
            chosen = getattr(parallel, choice)
            for name in filter(None, chosen.split(",")):
                if (field := known[name]) and not getattr(model, field):
                    raise ConfigurationError(
                        f"{choice}={chosen!r} with {name!r} of a model with {field}=0; "
                        f"needs a module of the model; try {choice}='core_attn'"
                    )
        chunks = parallel.p * parallel.v
        if parallel.pipeline_layout:
            held, needed = sum(stage_sizes(parallel.pipeline_layout)), model.all_layers
            if held != needed:
                further = f" with mtp_layers={model.mtp_layers}" if model.mtp_layers else ""
                raise ConfigurationError(
                    f"pipeline_layout={parallel.pipeline_layout!r} has {held} layers; needs layers={model.layers}"
                    f"{further}; try {'more' if held < needed else 'fewer'} t, or layers={held - model.mtp_layers}"
                )
        elif model.all_layers < chunks:
            fix = f"layers={chunks}, or a smaller p"
            if model.layers == chunks - 2:
                fix += f", or pipeline_layout={layout_of((0, *[1] * model.layers, 0))!r}"
            raise ConfigurationError(
                f"layers={model.layers} for p*v={parallel.p}*{parallel.v}={chunks} stages; needs a layer for each "
                f"stage; try {fix}"
            )
        held = self.layers_per_chunk
        for name in ("checkpoint_layers", "offload_layers"):
            if (layers := getattr(parallel, name)) > held:
                raise ConfigurationError(
                    f"{name}={layers} with {held} layers in a model chunk; needs at most as many; try {name}={held}"
                )

    def _check_sequence(self) -> None:
        """Raise ConfigurationError unless ranks that share a sequence get equal parts of it."""
        seq, parallel = self.model.seq, self.parallel
        c, t = parallel.c, parallel.t
        if self.model.window >= seq:
            raise ConfigurationError(
                f"window={self.model.window} cuts nothing of seq={seq}; needs a longer sequence; try window=0"
            )
        if c > 1 and seq % (2 * c):
            raise ConfigurationError(
                f"seq={seq} is not divisible by 2*c={2 * c}; needs two equal chunks of the sequence on every context "
                f"rank; try seq={(seq // (2 * c) + 1) * 2 * c}"
            )
        if seq % (c * parallel.sequence_shards):
            sizes, whole = (f"t={t}", t) if c == 1 else (f"c*t={c * t}", 2 * c * t)
            raise ConfigurationError(
                f"seq={seq} is not divisible by {sizes} with sequence_parallel=True; needs equal parts of "
                f"the sequence; try seq={(seq // whole + 1) * whole}, or sequence_parallel=false"
            )

    def _check_exchange(self) -> None:
        """Raise ConfigurationError unless attention's exchange between context ranks can be done."""
        parallel, heads = self.parallel, self.model.query_groups // self.parallel.t
        if (
            parallel.c > 1
            and parallel.context_exchange == "ring"
            and any(map(self.writes_scores, self.model.layer_kinds))
        ):
            how = f"attention_kernels={parallel.attention_kernels!r}, " if not parallel.writes_scores else ""
            raise ConfigurationError(
                f"context_exchange='ring' with {how}attention={parallel.attention!r}, whose softmax needs all scores "
                "of a query at once; needs fused attention; try attention='sdpa', or context_exchange='all_gather'"
            )
        if parallel.context_exchange == "all_to_all" and heads % parallel.c:
            raise ConfigurationError(
                f"c={parallel.c} with context_exchange='all_to_all' does not divide the {heads} key/value heads of a "
                f"tensor rank; needs whole heads on every context rank; try c={largest_divisor(heads, parallel.c)}, or "
                "context_exchange='all_gather'"
            )

    def _check_experts(self) -> None:
        """Raise ConfigurationError unless the experts can be divided among the ranks."""
        model, parallel = self.model, self.parallel
        if not model.experts:
            if parallel.e > 1 or parallel.etp or parallel.capacity_factor:
                raise ConfigurationError(
                    f"e={parallel.e}, etp={parallel.etp}, capacity_factor={parallel.capacity_factor} of a model "
                    "without experts; needs experts; try e=1"
                )
            return
        e, etp, ranks = parallel.e, parallel.expert_tensor_ranks, parallel.d * parallel.c * parallel.t
        check_divides("e", e, "experts", model.experts, "as many on every rank")
        if etp not in (1, parallel.t) or (etp != parallel.t and not parallel.sequence_parallel):
            raise ConfigurationError(
                f"etp={etp} with t={parallel.t}, sequence_parallel={parallel.sequence_parallel}; needs etp=t, or 1 "
                f"with sequence_parallel; try etp={parallel.t}"
            )
        if ranks % (e * etp):
            raise ConfigurationError(
                f"e={e} with etp={etp} does not divide d*c*t={ranks} ranks; needs whole groups; "
                f"try e={largest_divisor(ranks // etp, e)}"
            )
        check_divides("etp", etp, "expert_ffn_hidden", model.expert_width, "equal parts of each expert", fix="t")
        shared = model.shared_expert_ffn_hidden
        check_divides("t", parallel.t, "shared_expert_ffn_hidden", shared, "equal parts of it")

    def check_zero3_alone(self) -> None:
        """Raise ConfigurationError unless ZeRO-3 is by itself, as in Section 5.2 and in the engine."""
        model, parallel = self.model, self.parallel
        if parallel.data_parallel != "zero3":
            return
        if parallel.p * parallel.t * parallel.c > 1:
            raise ConfigurationError(
                f"data_parallel='zero3' with p={parallel.p}, t={parallel.t}, c={parallel.c}; needs p=1 and t=1, the "
                f"baseline has no model parallelism, and c=1; try d={parallel.n}"
            )
        if parallel.lora_rank:
            raise ConfigurationError(
                f"lora_rank={parallel.lora_rank} with data_parallel='zero3' of the paper's program; needs FSDP, which "
                "shards frozen weights, too; try program='hf'"
            )
        if parallel.v > 1 or parallel.schedule != default_schedule(1):
            raise ConfigurationError(
                f"v={parallel.v}, schedule={parallel.schedule!r} with data_parallel='zero3', which has no pipeline; "
                "needs neither; try v=1 and the default schedule"
            )
        if model.experts or model.mtp_layers or parallel.zero3_shards:
            raise ConfigurationError(
                f"data_parallel='zero3' with experts={model.experts}, mtp_layers={model.mtp_layers}, zero3_shards="
                f"{parallel.zero3_shards}; needs another, the baseline has no axis for experts, and 0; "
                "try data_parallel='local'"
            )

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """The configuration with these values of the fields of its two parts; other keys do not matter.

        Names of older records are understood (`in_todays_words`). Raises ConfigurationError, naming the field, for a
        value that is not allowed, and for model fields that are missing.
        """
        values = in_todays_words(values)
        model, parallel = (
            {name: values[name] for _, name, _ in fields_of(part) if name in values}
            for part in (ModelConfig, ParallelConfig)
        )
        required = (name for _, name, default in fields_of(ModelConfig) if default is MISSING)
        if lacking := [name for name in required if name not in model]:
            raise ConfigurationError(f"the model has no {', '.join(lacking)}; needs a value of each")
        return cls(ModelConfig(**model), ParallelConfig(**parallel))

    def to_plain(self) -> dict[str, Any]:
        """The fields of the model and of its parallelisation in one dictionary: `from_plain` backwards.

        What came after the paper (`described`) is left out at its default, so that records of the paper's
        configurations stay as they are.
        """
        values = asdict(self.model) | asdict(self.parallel)
        known = (*fields(ModelConfig), *fields(ParallelConfig))
        absent = {item.name for item in known if item.metadata["later"] and values[item.name] == item.default}
        return {name: value for name, value in values.items() if name not in absent}

    @cached_property
    def local_model(self) -> ModelConfig:
        """The model with as many tokens of a sequence as a context rank has, s/c: for all but attention's keys."""
        c = self.parallel.c
        return self.model if c == 1 else _shortened(self.model, c)

    def writes_scores(self, kind: LayerKind | None = None) -> bool:
        """Whether a GPU writes the attention scores of a layer of this kind, or of the usual one, to memory."""
        kernels = self.parallel.attention_kernels
        if self.parallel.writes_scores or not kernels:
            return self.parallel.writes_scores
        return attention_kernel(kernels, self.model, kind or self.model.usual_kind) == "none"

    def recomputed_modules(self, kind: LayerKind | None = None) -> tuple[str, ...]:
        """The modules of a layer of this kind that a GPU computes again (`ParallelConfig.recomputed_modules`)."""
        parallel = self.parallel
        return parallel.recomputed_modules(self.writes_scores(kind)) if parallel.recompute == "selective" else ()

    @property
    def tied_ranks(self) -> tuple[int, int] | None:
        """The pipeline ranks of a tied embedding's two uses, which may be one rank; None with one stage or table.

        Where all ranks share the vocabulary, each has both uses of its part."""
        if not self.model.tied_embeddings or self.parallel.vocabulary or self.parallel.p * self.parallel.v == 1:
            return None
        return self.parallel.placement.first, self.parallel.placement.last

    @property
    def layers_per_chunk(self) -> int:
        """Transformer layers in the longest model chunk: l/(p*v), rounded up, unless a layout says otherwise."""
        if self.parallel.pipeline_layout:
            return max(stage_sizes(self.parallel.pipeline_layout))
        return -(-self.model.all_layers // (self.parallel.p * self.parallel.v))


def attention_kernel(kernels: str, model: ModelConfig, kind: LayerKind) -> str:
    """The slowest of the kernels that a layer's attention needs, of `attention_kernels`; empty: the program's usual."""
    has = {"windows": kind.window, "sinks": model.sinks}
    chosen = [kernel for name, _, kernel in (choice.partition("=") for choice in kernels.split(",")) if has.get(name)]
    return min(chosen, key=ATTENTION_KERNELS.index, default="")


def kept(key: Callable[P, Hashable]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function of a configuration whose values are kept, one for all configurations with the same `key`."""

    def keeping(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def value(*asked: P.args, **more: P.kwargs) -> T:
            place = function, key(*asked, **more)
            if (known := _VALUES.get(place)) is None:
                if len(_VALUES) >= MOST_KEPT:
                    _VALUES.clear()
                known = _VALUES[place] = function(*asked, **more)
            return known

        return value

    return keeping


@lru_cache(maxsize=256)
def _shortened(model: ModelConfig, c: int) -> ModelConfig:
    """The model with 1/c of the sequence."""
    return replace(model, seq=model.seq // c)
