"""Configurations: the model, how it is parallelised, and the two together.

The paper's letters are the field names of `ParallelConfig` (Section 3.1): (p, t, d) the pipeline-, tensor- and
data-parallel sizes, v model chunks per device, b the microbatch size, B the global batch size. Everything is checked
when it is made; an impossible value raises `ValueError("<field>=<value> ...; needs <rule>; try <fix>")`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ptdp_core.schedules import StagePlacement, check_schedule, default_schedule, definition, placement_of

RECOMPUTE = ("full", "none")
DATA_PARALLEL = ("local", "torch", "zero3")


def _require_positive_ints(config: object, fields: tuple[str, ...]) -> None:
    for field in fields:
        value = getattr(config, field)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{field}={value!r} is not a positive whole number; needs {field} >= 1; try {field}=1")


def _require_one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field}={value!r} is unknown; needs one of {', '.join(allowed)}; try {field}={allowed[0]!r}")


def largest_divisor(n: int, at_most: int) -> int:
    """The largest divisor of `n` that is no greater than `at_most`: what error messages suggest."""
    return next(k for k in range(min(n, at_most), 0, -1) if n % k == 0)


@dataclass(frozen=True)
class ModelConfig:
    """A GPT model (Section 5.1): l layers, hidden size h, a attention heads, sequence length s, vocabulary V."""

    layers: int
    hidden: int
    heads: int
    seq: int = 2048
    vocab: int = 51200

    def __post_init__(self) -> None:
        _require_positive_ints(self, ("layers", "hidden", "heads", "seq", "vocab"))
        if self.hidden % self.heads:
            raise ValueError(
                f"hidden={self.hidden} is not divisible by heads={self.heads}; needs equal heads; "
                f"try heads={largest_divisor(self.hidden, self.heads)}"
            )


@dataclass(frozen=True)
class ParallelConfig:
    """How one training iteration is spread over n = p*t*d GPUs (Section 3.1).

    `schedule` is one of `ptdp_core.schedules.names()`; left empty it follows v: '1f1b' for v = 1, 'interleaved' for
    v > 1. `recompute` is 'full' (of every `checkpoint_layers` layers from their kept input, Section 3.5) or 'none'.
    `fused` says whether the operators of Section 4.2 are. `data_parallel` is 'local' (one fp16 all-reduce after the
    flush), 'torch' (bucketed, overlapped with the last backward pass) or 'zero3' (all states sharded, no model
    parallelism: the baseline of Section 5.2).
    """

    p: int = 1
    t: int = 1
    d: int = 1
    v: int = 1
    b: int = 1
    B: int = 1
    schedule: str = ""
    scatter_gather: bool = True
    recompute: str = "full"
    checkpoint_layers: int = 1
    fused: bool = True
    data_parallel: str = "local"

    def __post_init__(self) -> None:
        _require_positive_ints(self, ("p", "t", "d", "v", "b", "B", "checkpoint_layers"))
        if not self.schedule:
            object.__setattr__(self, "schedule", default_schedule(self.v))
        definition(self.schedule)
        _require_one_of("recompute", self.recompute, RECOMPUTE)
        _require_one_of("data_parallel", self.data_parallel, DATA_PARALLEL)
        for field, value in (("scatter_gather", self.scatter_gather), ("fused", self.fused)):
            if not isinstance(value, bool):
                raise ValueError(f"{field}={value!r} is not a truth value; needs true or false; try {field}=true")
        if self.data_parallel == "zero3" and self.p * self.t > 1:
            raise ValueError(
                f"data_parallel='zero3' with p={self.p}, t={self.t}; needs p=1 and t=1, the baseline has no model "
                f"parallelism; try d={self.n}"
            )
        per_step = self.d * self.b
        if self.B % per_step:
            up = (self.B // per_step + 1) * per_step
            raise ValueError(
                f"B={self.B} does not split into microbatches of b={self.b} on d={self.d} replicas; "
                f"needs a multiple of d*b={per_step}; try B={up}"
            )
        check_schedule(self.schedule, self.p, self.m, self.v)

    @property
    def n(self) -> int:
        """GPUs used: n = p*t*d (Section 3.1)."""
        return self.p * self.t * self.d

    @property
    def placement(self) -> StagePlacement:
        """Which pipeline rank holds which stages: the schedule's (Section 2.2.2)."""
        return placement_of(self.schedule, self.p, self.v)

    @property
    def m(self) -> int:
        """Microbatches in a batch per pipeline: m = B/(d*b) (Section 3.1)."""
        return self.B // (self.d * self.b)


@dataclass(frozen=True)
class TrainingConfig:
    """A model and how it is parallelised: everything that defines one training iteration."""

    model: ModelConfig
    parallel: ParallelConfig

    def __post_init__(self) -> None:
        model, parallel = self.model, self.parallel
        if model.heads % parallel.t:
            raise ValueError(
                f"t={parallel.t} does not divide heads={model.heads}; needs whole attention heads on every tensor "
                f"rank; try t={largest_divisor(model.heads, parallel.t)}"
            )
        chunks = parallel.p * parallel.v
        if model.layers < chunks:
            raise ValueError(
                f"layers={model.layers} for p*v={parallel.p}*{parallel.v}={chunks} stages; needs a layer for each "
                f"stage; try layers={chunks}, or a smaller p"
            )
        if parallel.checkpoint_layers > self.layers_per_chunk:
            raise ValueError(
                f"checkpoint_layers={parallel.checkpoint_layers} with {self.layers_per_chunk} layers in a model chunk; "
                f"needs at most as many; try checkpoint_layers={self.layers_per_chunk}"
            )

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """The configuration with these field values, `layers` to `data_parallel`; other keys do not matter.

        Raises ValueError, naming the field, for one that cannot be, and TypeError for a model field that is missing.
        """
        model, parallel = (
            {field.name: values[field.name] for field in fields(part) if field.name in values}
            for part in (ModelConfig, ParallelConfig)
        )
        return cls(ModelConfig(**model), ParallelConfig(**parallel))

    def to_plain(self) -> dict[str, Any]:
        """All fields of the model and of its parallelisation in one dictionary: `from_plain` backwards."""
        return asdict(self.model) | asdict(self.parallel)

    @property
    def layers_per_chunk(self) -> int:
        """Transformer layers in one model chunk, l/(p*v), rounded up: a chunk may have one less (`layout.stages`)."""
        return -(-self.model.layers // (self.parallel.p * self.parallel.v))

    @property
    def padded_vocab(self) -> int:
        """`padded_vocab` of this model on t tensor ranks."""
        return padded_vocab(self.model.vocab, self.parallel.t)


def padded_vocab(vocab: int, t: int) -> int:
    """Vocabulary padded to a multiple of 128*t, so that every tensor rank holds an equal, aligned part."""
    unit = 128 * t
    return -(-vocab // unit) * unit
