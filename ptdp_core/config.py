"""One description of a training run, for the simulator, the emulation and the engine.

The paper's letters are the field names (Section 3.1): (p, t, d) the pipeline-, tensor- and data-parallel sizes, v model
chunks per device, b the microbatch size, B the global batch size; c is the context-parallel size, which came later.
Every field has a sentence about itself, which command-line help and documentation show, and says what it may be
(`fields.py`). Everything is checked when it is made; an impossible value raises
`ConfigurationError("<field>=<value> ...; needs <rule>; try <fix>")`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import check_fields, counted, counted_later, described, described_later, fields_of
from ptdp_core.pipeline_layout import layout_of, stage_sizes
from ptdp_core.schedules import StagePlacement, check_schedule, default_schedule, definition

DTYPES = {"fp32": 4, "fp64": 8, "bf16": 2, "fp16": 2}  # precisions by their names in configurations and records: bytes
OLDER_DTYPES = {"float32": "fp32", "float64": "fp64", "bfloat16": "bf16", "float16": "fp16"}

# What selective recomputation may compute again, and the field of models that have it, if not all do.
RECOMPUTE_MODULES = {
    **dict.fromkeys(("core_attn", "layernorm", "mlp", "mlp_act", "operators"), ""),
    **dict.fromkeys(("moe", "moe_act", "experts"), "experts"),
    "mla_up_proj": "kv_latent",
}
# What may wait in the host's memory between its passes, or steps: what these modules read (Megatron-Core's names), all
# that layers keep, and the optimizer's states; and the field of models that have it, if not all do.
OFFLOADED = {
    **dict.fromkeys(("layers", "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"), ""),
    **dict.fromkeys(("expert_fc1", "moe_act"), "experts"),
    "optimizer": "",
}
# Kinds of attention for which a program may have another kernel than its usual one, and what these may be, the slowest
# first: none (operators), or of earlier generations.
KINDS_OF_ATTENTION, ATTENTION_KERNELS = ("windows", "sinks"), ("none", "flash_attention_1", "flash_attention_2")
# Keys that other frameworks have, and what to say of them: a near spelling among ours would be wrong advice.
KEYS_ELSEWHERE = {
    **{f"{letter}p": f"the paper's letter is {letter}; try {letter}" for letter in "ptd"},
    "cp": "context parallelism is the letter c here; try c",
    "ep": "expert parallelism is the letter e here; try e",
    "pipeline_model_parallel_layout": "try pipeline_layout",
    **dict.fromkeys(("gpus", "n", "world_size"), "GPUs are p*t*c*d; try d"),
    **dict.fromkeys(("batch", "batch_size", "global_batch_size", "gbs"), "the batch in sequences is B; try B"),
    **dict.fromkeys(("micro_batch_size", "mbs"), "a microbatch has b sequences; try b"),
    **dict.fromkeys(("seq_len", "seq_length", "sequence_length", "context_length"), "try seq"),
    **dict.fromkeys(("fsdp", "zero", "zero_stage"), "try data_parallel='zero3'"),
    **dict.fromkeys(("gradient_checkpointing", "activation_checkpointing"), "try recompute='full'"),
    **dict.fromkeys(("fp8", "precision", "dtype"), "runs are in 16 bits, or have an fp8_recipe; try fp8_recipe"),
}


def largest_divisor(n: int, at_most: int) -> int:
    """The largest divisor of `n` that is no greater than `at_most`, or 1 if it is far below: what messages suggest."""
    nearest = range(min(n, at_most), 0, -1)[:1_000_000]  # a size that somebody made up may have no divisor for long
    return next((k for k in nearest if n % k == 0), 1)


def _check_divides(name: str, parts: int, of: str, whole: int, needed: str, fix: str = "") -> None:
    """Raise ConfigurationError unless `parts`, the value of a field, divide `whole`, that of another; try `fix`."""
    if whole % parts:
        raise ConfigurationError(
            f"{name}={parts} does not divide {of}={whole}; needs {needed}; "
            f"try {fix or name}={largest_divisor(whole, parts)}"
        )


class LayerKind(NamedTuple):
    """What layers of one model may differ in.

    These are experts in the MLP's place, how many tokens a query sees (0: all), what mixes tokens: 'attention', 'mamba'
    (a state-space layer) or nothing, and whether there is an MLP, or experts, at all.
    """

    experts: bool = False
    window: int = 0
    mixer: str = "attention"
    mlp: bool = True


# What a letter of `ModelConfig.layer_pattern` is: the mixer, and 'mlp', 'experts' or nothing.
LAYER_LETTERS = {
    "M": ("mamba", ""),
    "*": ("attention", ""),
    "-": ("", "mlp"),
    "E": ("", "experts"),
    "d": ("attention", "mlp"),
    "e": ("attention", "experts"),
    "m": ("mamba", "mlp"),
    "x": ("mamba", "experts"),
}


@dataclass(frozen=True)
class ModelConfig:
    """A GPT model (Section 5.1); the fields after `vocab` describe models since then, such as Llama.

    A size of 0 follows from the others: use `query_groups` and `mlp_width`.
    """

    layers: int = counted("Transformer layers, l.", words="Layers", letter="l")
    hidden: int = counted("Hidden size, h.", words="Hidden size", letter="h")
    heads: int = counted("Attention heads, a; they divide h.", words="Attention heads", letter="a")
    seq: int = counted("Sequence length in tokens, s.", 2048, "Sequence length", letter="s", unit="tokens")
    vocab: int = counted("Vocabulary size without padding, V.", 51200, "Vocabulary", letter="V", unit="tokens")
    kv_heads: int = counted_later(
        "Key/value heads, each shared by a group of query heads (grouped-query attention); 0: as many as heads.",
        0,
        "Key/value heads",
    )
    ffn_hidden: int = counted_later("Width of the MLP between its two linears; 0: 4h.", 0, "Width of the MLP")
    activation: str = described_later(
        "'gelu', or 'swiglu' for a gated MLP: silu(x W_gate) * (x W_up), whose first linear is twice as wide; 'geglu' "
        "has gelu for silu (simulated only).",
        "gelu",
        "Activation",
        choices=("gelu", "swiglu", "geglu"),
    )
    norm: str = described_later(
        "'layernorm', or 'rmsnorm', which subtracts no mean and has no bias.",
        "layernorm",
        "Normalisation",
        choices=("layernorm", "rmsnorm"),
    )
    positions: str = described_later(
        "'learned' adds a table to the embedding, 'rotary' turns queries and keys by their positions; 'none' is "
        "simulated only.",
        "learned",
        "Positions",
        choices=("learned", "rotary", "none"),
    )
    rope_theta: float = described_later(
        "Base of the rotary frequencies: theta^(-2i/d) for a head of size d.",
        1e4,
        "Rotary base",
        above=0,
        wrong="not a positive number",
        fix="10000.0",
        letter="θ",
    )
    tied_embeddings: bool = described_later("Whether the output layer is the word embedding.", True, "Tied embeddings")
    bias: bool = described_later("Whether linear layers have biases.", True, "Biases")
    head_dim: int = counted_later("Size of an attention head; 0: h/a.", 0, "Size of a head")
    qk_norm: bool = described_later(
        "Whether every head's queries and keys are normalised, as by `norm`, before they meet (Qwen3).",
        False,
        "Normalised queries and keys",
    )
    post_norms: bool = described_later(
        "Whether results of attention and MLP are normalised, too, before they are added (Gemma). Simulated only.",
        False,
        "Norms behind attention and MLP",
    )
    window: int = counted_later(
        "Tokens that a query sees in layers with a window, its own included; 0: all before it. Simulated only.",
        0,
        "Attention window",
        unit="tokens",
    )
    window_layers: str = described_later(
        "Which layers have the window, a pattern that is repeated: 'w' has it, 'f' sees all; 'wf' every second one.",
        "w",
        "Layers with a window",
    )
    layer_pattern: str = described_later(
        "What each layer is, repeated: 'M' state-space (Mamba-2), '*' attention, '-' an MLP, 'E' experts, each alone; "
        "'d' attention and an MLP, 'e' and experts, 'm', 'x' state-space and these. Empty: all alike. Simulated only.",
        "",
        "Kinds of layers",
    )
    mamba_heads: int = counted_later("Heads of a state-space layer, H.", 0, "Heads of a state-space layer")
    mamba_head_dim: int = counted_later(
        "Elements of a head of a state-space layer, P.", 64, "Size of a state-space head"
    )
    mamba_groups: int = counted_later(
        "Groups of a state-space layer's heads that share B and C, G; they divide H.", 8, "State-space groups"
    )
    mamba_state: int = counted_later(
        "States of an element of a state-space layer, N.", 128, "States of a state-space layer"
    )
    sinks: bool = described_later(
        "Whether a learned number of each head joins its softmax (GPT-OSS). Simulated only.", False, "Attention sinks"
    )
    experts: int = counted_later("Experts of a layer, E, in its MLP's place; 0: none.", 0, "Experts", letter="E")
    experts_per_token: int = counted_later(
        "Experts that a token goes through, k; at most E.", 0, "Experts of a token", letter="k"
    )
    expert_ffn_hidden: int = counted_later(
        "Width of an expert between its two linears; 0: that of the MLP.", 0, "Width of an expert"
    )
    shared_expert_ffn_hidden: int = counted_later(
        "Width of an expert that every token goes through; 0: none.", 0, "Width of the shared expert"
    )
    expert_latent: int = counted_later(
        "Size of the vectors that experts read and write, made of a token's by a linear and turned back by another; 0: "
        "h. Simulated only.",
        0,
        "Latent of experts",
    )
    dense_layers: int = counted_later("First layers that keep their MLP.", 0, "Layers without experts")
    router: str = described_later(
        "Weights of a token's experts: 'softmax_after' over the outputs of the k chosen, 'softmax_before' over all E, "
        "of which the k are used as they are, 'sigmoid' of each of the k over their sum.",
        "softmax_after",
        "Router",
        choices=("softmax_after", "softmax_before", "sigmoid"),
    )
    trained_with_dropout: str = described_later(
        "Whether the model is trained with dropout: 'yes', 'no', or, by 'biases', if it has biases: models without "
        "them were not (PaLM, Llama). For the simulator: training is told a probability.",
        "biases",
        "Dropout",
        choices=("biases", "yes", "no"),
    )
    auxiliary_loss: float = described_later(
        "Coefficient of the loss that balances the experts (Fedus et al. 2021, equation 4); loss lines leave it out.",
        0.0,
        "Balancing loss",
        least=0,
    )

    kv_latent: int = counted_later(
        "Size of the vector that keys and values of all heads are made from (multi-head latent attention); 0: from the "
        "layer's input. Simulated only.",
        0,
        "Latent of keys and values",
    )
    query_latent: int = counted_later(
        "Size of the vector that queries are made from, with kv_latent; 0: from the layer's input.",
        0,
        "Latent of queries",
    )
    rotary_dim: int = counted_later(
        "Size of the part that positions turn, beside `head_dim`, with kv_latent; all heads share that of the key.",
        0,
        "Turned part of a head",
    )
    mtp_layers: int = counted_later(
        "Further layers behind the last, each of which predicts one more token (multi-token prediction). Simulated "
        "only.",
        0,
        "Layers of multi-token prediction",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.window_layers or self.window_layers.strip("wf"):
            raise ConfigurationError(
                f"window_layers={self.window_layers!r} is no pattern of w and f; needs one letter a layer, repeated; "
                "try window_layers='wf'"
            )
        self._check_pattern()
        if not self.kv_latent and (self.query_latent or self.rotary_dim):
            raise ConfigurationError(
                f"query_latent={self.query_latent}, rotary_dim={self.rotary_dim} with kv_latent=0; needs latent "
                "attention; try kv_latent=512"
            )
        if self.kv_latent and (self.query_groups != self.heads or self.bias or self.positions != "rotary"):
            raise ConfigurationError(
                f"kv_latent={self.kv_latent} with kv_heads={self.kv_heads}, bias={self.bias}, positions="
                f"{self.positions!r}; needs a key for each head, no biases and rotary positions; try kv_heads=0, "
                "bias=false, positions='rotary'"
            )
        if not self.head_dim and self.hidden % self.heads:
            raise ConfigurationError(
                f"hidden={self.hidden} is not divisible by heads={self.heads}; needs equal heads; "
                f"try heads={largest_divisor(self.hidden, self.heads)}"
            )
        _check_divides("kv_heads", self.query_groups, "heads", self.heads, "equal groups of query heads")
        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigurationError(
                f"positions='rotary' with heads of size hidden/heads={self.head_size}; needs an even size, whose "
                "halves are turned together; try positions='learned'"
            )
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise ConfigurationError(
                f"experts_per_token={self.experts_per_token} of experts={self.experts}; needs 1 to {self.experts}; "
                f"try experts_per_token={min(2, self.experts)}"
            )

    def _check_pattern(self) -> None:
        """Raise ConfigurationError unless `layer_pattern` has known letters, and the model what they need."""
        pattern = self.layer_pattern
        if unknown := pattern.strip("".join(LAYER_LETTERS)):
            raise ConfigurationError(
                f"layer_pattern={pattern!r} with {unknown[0]!r}; needs letters {', '.join(LAYER_LETTERS)}; "
                "try layer_pattern='M-M-M*-'"
            )
        if pattern and self.dense_layers:
            raise ConfigurationError(
                f"layer_pattern={pattern!r} with dense_layers={self.dense_layers}; needs one of the two; try "
                "dense_layers=0"
            )
        for letters, field, value in (("Mmx", "mamba_heads", 64), ("Eex", "experts", 8)):
            if set(letters) & set(pattern) and not getattr(self, field):
                raise ConfigurationError(
                    f"layer_pattern={pattern!r} with {field}=0; needs what its layers are made of; try {field}={value}"
                )
        _check_divides("mamba_groups", self.mamba_groups, "mamba_heads", self.mamba_heads, "equal groups of heads")

    @property
    def head_size(self) -> int:
        """Size of an attention head: `head_dim`, or h/a."""
        return self.head_dim or self.hidden // self.heads

    @property
    def query_groups(self) -> int:
        """Groups of query heads that share a key/value head: `kv_heads`, or as many as heads."""
        return self.kv_heads or self.heads

    @property
    def dropout(self) -> bool:
        """Whether the model is taken to be trained with dropout (`trained_with_dropout`)."""
        return self.bias if self.trained_with_dropout == "biases" else self.trained_with_dropout == "yes"

    @property
    def query_head_size(self) -> int:
        """Size of a query and of a key of a head: `head_size`, in latent attention and the part that is turned."""
        return self.head_size + self.rotary_dim

    @property
    def mlp_width(self) -> int:
        """Inputs of the MLP's second linear: `ffn_hidden`, or 4h."""
        return self.ffn_hidden or 4 * self.hidden

    @property
    def branches(self) -> int:
        """Outputs of an MLP's first linear for each of its width: 1, with a gate 2."""
        return 1 if self.activation == "gelu" else 2

    @property
    def expert_width(self) -> int:
        """Inputs of an expert's second linear: `expert_ffn_hidden`, or those of the MLP."""
        return self.expert_ffn_hidden or self.mlp_width

    def layer_kind(self, layer: int) -> LayerKind:
        """The kind of a layer, counted from 0."""
        window = self.window if self.window_layers[layer % len(self.window_layers)] == "w" else 0
        if not self.layer_pattern:
            return LayerKind(self.experts > 0 and layer >= self.dense_layers, window)
        predicts = "e" if self.experts else "d"  # of multi-token prediction
        letter = self.layer_pattern[layer % len(self.layer_pattern)] if layer < self.layers else predicts
        mixer, mlp = LAYER_LETTERS[letter]
        return LayerKind(mlp == "experts", window if mixer == "attention" else 0, mixer, mlp != "")

    @property
    def has_states(self) -> bool:
        """Whether some layers are state-space layers."""
        return any(LAYER_LETTERS[letter][0] == "mamba" for letter in set(self.layer_pattern))

    @property
    def usual_kind(self) -> LayerKind:
        """The kind of the first layer behind the `dense_layers`: with experts, if the model has any."""
        letters = self.layer_pattern
        return self.layer_kind(min(map(letters.find, set("Eex") & set(letters)), default=self.dense_layers))

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The different kinds of the model's layers, the usual one first."""
        if not (self.experts and self.dense_layers) and not self.window and not self.layer_pattern:
            return (self.usual_kind,)
        # All kinds are among the first layers, among the first with experts, as many of each as both patterns have
        # together, and behind the last.
        together = len(self.window_layers) * max(1, len(self.layer_pattern))
        first = (range(start, start + together) for start in (self.dense_layers, 0))
        numbers = (layer for layers in first for layer in layers if layer < self.layers)
        behind = range(self.layers, self.all_layers)[: len(self.window_layers)]
        return tuple(dict.fromkeys((self.usual_kind, *map(self.layer_kind, (*numbers, *behind)))))

    @cached_property
    def kind_of_layers(self) -> tuple[int, ...]:
        """For every layer, those of multi-token prediction included, its kind's place in `layer_kinds`.

        Empty if all layers are alike.
        """
        if len(self.layer_kinds) == 1:
            return ()
        return tuple(self.layer_kinds.index(self.layer_kind(layer)) for layer in range(self.all_layers))

    @property
    def all_layers(self) -> int:
        """The layers that the pipeline's stages hold: l, and behind them those of multi-token prediction."""
        return self.layers + self.mtp_layers

    @property
    def is_gpt(self) -> bool:
        """Whether it is a model of the paper's kind, for which equations (2) and (3) hold."""
        return all(getattr(self, item.name) == item.default for item in fields(self) if item.metadata["later"])


sized, sized_later = partial(counted, group="Layout"), partial(counted_later, group="Layout")


@dataclass(frozen=True)
class ParallelConfig:
    """How one training iteration is spread over n = p*t*c*d GPUs and carried out (Sections 2 to 4)."""

    p: int = sized(
        "Pipeline-parallel size: stages that the layers are divided into.", 1, "Pipeline stages", unit="GPUs"
    )
    t: int = sized(
        "Tensor-parallel size: GPUs that share each layer; it divides the attention heads.",
        1,
        "Tensor parallelism",
        unit="GPUs",
    )
    d: int = sized("Data-parallel size: replicas of the model.", 1, "Data parallelism", unit="replicas")
    c: int = sized_later(
        "Context-parallel size: GPUs that share each sequence, with two of its 2c chunks each; 2c divides s.",
        1,
        "Context parallelism",
        unit="GPUs",
    )
    context_exchange: str = described_later(
        "How context-parallel GPUs attend to others' chunks: 'all_gather' of keys and values, 'ring', which passes "
        "them on while it attends, or 'all_to_all', by which each gets all of the sequence for 1/c of its heads.",
        "all_gather",
        "Exchange of context parallelism",
        choices=("all_gather", "ring", "all_to_all"),
    )
    v: int = counted(
        "Model chunks on each device; more than 1 if the schedule interleaves (Section 2.2.2).",
        1,
        "Model chunks on a GPU",
        group="Schedule",
    )
    b: int = sized("Microbatch size in sequences.", 1, "Microbatch size", unit="sequences")
    B: int = sized("Global batch size in sequences, a multiple of d*b.", 1, "Batch size", unit="sequences")
    schedule: str = described(
        "Pipeline schedule: a name that `reproduce schedule` lists, or a table of one's own (.csv, .txt); by default "
        "1f1b for v = 1 and interleaved for v > 1. 1f1b+vocab-1 and the like share the vocabulary among all p ranks.",
        "",
        "Pipeline schedule",
        group="Schedule",
    )
    pipeline_layout: str = described_later(
        "Layers of each stage as Megatron-Core writes them: 'Et*3|(t*4|)*6t*3L', E the embedding, t a layer, L the "
        "loss, | the end of a stage, which may hold no layer; by default as even as can be.",
        "",
        "Layers of the stages",
        group="Schedule",
    )
    scatter_gather: bool = described(
        "Send boundary tensors in t parts, where p > 1 and t > 1 (Section 4.1); void with sequence_parallel.",
        True,
        "Scatter/gather messages",
    )
    sequence_parallel: bool = described_later(
        "Cut layer norms, dropout and what lies between layers along the sequence: tensor ranks compute and keep 1/t "
        "each (Korthikanti et al. 2022); t divides s. Without effect for t = 1.",
        False,
        "Sequence parallelism",
    )
    recompute: str = described(
        "What runs again in the backward pass: 'full' whole layers (Section 3.5), 'selective' the attention core "
        "(Korthikanti et al. 2022), 'none' nothing; 'auto' as little as a GPU's memory allows (on CPUs whole layers).",
        "full",
        "Recomputation",
        choices=("full", "selective", "none", "auto"),
    )
    recompute_modules: str = described_later(
        "What recompute='selective' runs again, with commas between: core_attn, layernorm, mlp, moe, experts "
        "(moe but its exchange), mlp_act, moe_act (activations), mla_up_proj (latents' heads), operators (all but "
        "products).",
        "core_attn",
        "Recomputed modules",
    )
    lora_rank: int = counted_later(
        "Rank of adapters beside each linear that alone are trained, all else is frozen (LoRA, Hu et al. 2021); 0: all "
        "is trained. Simulated only.",
        0,
        "Rank of adapters",
    )
    offload: str = described_later(
        "What waits in the host's memory, with commas between: 'layers' (all they keep), what attn_norm, qkv_linear, "
        "core_attn, attn_proj, mlp_norm, expert_fc1, moe_act read, 'optimizer' (its states). Simulated only.",
        "",
        "Offloaded",
    )
    offload_layers: int = counted_later(
        "Layers of each model chunk, the first of it, of which `offload` moves what they keep; 0: all.",
        0,
        "Offloaded layers of a chunk",
        unit="layers",
    )
    checkpoint_layers: int = counted(
        "Layers that are recomputed together from one kept input, with recompute='full'.",
        1,
        "Recomputed together",
        unit="layers",
    )
    distribute_checkpointed_activations: bool = described(
        "Keep 1/t of each recomputed block's input on every tensor rank, and gather it before the block runs again.",
        False,
        "Kept inputs shared by tensor ranks",
    )
    fused: bool = described(
        "Fuse the operators of Section 4.2; otherwise each runs by itself.", True, "Fused operators"
    )
    attention: str = described_later(
        "'operators' builds attention as in the paper; 'sdpa' is PyTorch's own, which never writes the [s, s] scores "
        "(and leaves recompute='selective' nothing to do) and draws other masks; 'auto' is sdpa on a GPU, if fused.",
        "operators",
        "Attention",
        choices=("operators", "sdpa", "auto"),
    )
    attention_kernels: str = described_later(
        "Kernels of attention with windows or sinks, with commas between, where they are not the usual one: "
        "'windows=flash_attention_2' (or 1; Dao 2023, 2022), 'sinks=none' for operators.",
        "",
        "Kernels of windows and sinks",
    )
    fp8_recipe: str = described_later(
        "FP8 for the linears of layers: 'delayed' or 'tensorwise' one scale a tensor, 'rowwise' a row, 'blockwise' 128 "
        "elements, 'mxfp8' 32; 'nvfp4' of 4 bits 16. 'delayed', 'rowwise' and 'nvfp4' are simulated only.",
        "none",
        "FP8 for linears",
        choices=("none", "delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"),
    )
    data_parallel: str = described(
        "'local' all-reduces gradients after the flush, 'torch' in buckets during the last backward pass; 'zero2' "
        "keeps 1/d of them (simulated only); 'zero3' shards all states, in the engine without model parallelism.",
        "local",
        "Gradient reduction",
        choices=("local", "torch", "zero2", "zero3"),
    )
    sharded_optimizer: bool = described(
        "ZeRO-1: shard the optimizer's states over the d replicas, with c > 1 over the d*c GPUs with the same weights.",
        False,
        "Sharded optimizer (ZeRO-1)",
    )
    optimizer_states: str = described_later(
        "Optimizer and precision of states: 'adam' in fp32; bf16 moments, and gradients and masters (adam_bf16), or "
        "no masters; 'adam_fp8' with moments of 8 bits; 'muon'. All but adam are simulated only.",
        "adam",
        "Optimizer",
        choices=("adam", "adam_bf16_moments", "adam_bf16", "adam_fp8", "adam_no_master", "muon"),
    )
    reduce_every: int = counted_later(
        "Microbatches over which data_parallel='zero2' sums whole gradients before it reduces them; up to p of them go "
        "through a model chunk one after the other if chunks are interleaved. Simulated only.",
        1,
        "Microbatches a reduction (ZeRO-2)",
        unit="microbatches",
    )
    zero3_shards: int = counted_later(
        "GPUs over which data_parallel='zero3' shards the states, copies of which the others have (hybrid sharding, "
        "HSDP); 0: all with the same weights. Simulated only.",
        0,
        "GPUs that share a copy of the states",
        unit="GPUs",
    )
    e: int = sized_later(
        "Expert-parallel size: groups of GPUs with different experts, among d*c*t/etp.",
        1,
        "Expert parallelism",
        unit="GPUs",
    )
    etp: int = sized_later(
        "Tensor-parallel size inside experts: t, or 1 with sequence_parallel; 0: t.",
        0,
        "Tensor ranks of an expert",
        unit="GPUs",
    )
    capacity_factor: float = described_later(
        "Most tokens of a rank's microbatch that an expert takes, over the mean; the others skip it. 0: it takes all "
        "(dropless).",
        0.0,
        "Capacity of an expert",
        least=0,
    )
    expert_imbalance: float = described_later(
        "Tokens of the busiest expert-parallel rank over the mean, 1 to 1.5 or so; simulated only.",
        1.0,
        "Imbalance of experts",
        least=1,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.schedule:
            object.__setattr__(self, "schedule", default_schedule(self.v))
        definition(self.schedule)
        if self.data_parallel == "zero3" and self.sharded_optimizer:
            raise ConfigurationError(
                "sharded_optimizer=True with data_parallel='zero3', which shards it already; needs one of the two; "
                "try sharded_optimizer=false"
            )
        if self.data_parallel == "zero2" and not self.sharded_optimizer:
            raise ConfigurationError(
                "data_parallel='zero2' with sharded_optimizer=False; needs both, ZeRO-2 shards the optimizer's states, "
                "too; try sharded_optimizer=true"
            )
        if self.reduce_every > 1 and self.data_parallel != "zero2":
            raise ConfigurationError(
                f"reduce_every={self.reduce_every} with data_parallel={self.data_parallel!r}, which reduces once; "
                "needs 'zero2'; try reduce_every=1"
            )
        if self.distribute_checkpointed_activations and (self.t == 1 or self.recompute not in ("full", "auto")):
            raise ConfigurationError(
                f"distribute_checkpointed_activations=True with t={self.t}, recompute={self.recompute!r}; needs t > 1 "
                "and recompute='full'; try distribute_checkpointed_activations=false"
            )
        if self.distribute_checkpointed_activations and self.sequence_parallel:
            raise ConfigurationError(
                "distribute_checkpointed_activations=True with sequence_parallel=True, by which tensor ranks keep 1/t "
                "of a block's input anyway; needs one of the two; try distribute_checkpointed_activations=false"
            )
        shards, ranks = self.zero3_shards, self.weight_replicas
        if shards and (self.data_parallel != "zero3" or ranks % shards or shards * self.t % self.expert_parts):
            raise ConfigurationError(
                f"zero3_shards={shards} with data_parallel={self.data_parallel!r} on d*c={ranks} GPUs with the same "
                f"weights; needs 'zero3', a divisor of these, and with experts one that e*etp/t={self.expert_parts}/"
                f"{self.t} divides; try zero3_shards=0"
            )
        if unknown := [name for name in self.recompute_modules.split(",") if name not in RECOMPUTE_MODULES]:
            raise ConfigurationError(
                f"recompute_modules={self.recompute_modules!r} with {unknown[0]!r}; needs some of "
                f"{', '.join(RECOMPUTE_MODULES)}; try recompute_modules='core_attn'"
            )
        if self.recompute_modules != "core_attn" and self.recompute != "selective":
            raise ConfigurationError(
                f"recompute_modules={self.recompute_modules!r} with recompute={self.recompute!r}; needs the choice of "
                "modules; try recompute='selective'"
            )
        if self.offload or self.offload_layers:
            self._check_offload()
        for choice in filter(None, self.attention_kernels.split(",")):
            kind, _, kernel = choice.partition("=")
            if kind not in KINDS_OF_ATTENTION or kernel not in ATTENTION_KERNELS:
                raise ConfigurationError(
                    f"attention_kernels={self.attention_kernels!r} with {choice!r}; needs "
                    f"{' or '.join(KINDS_OF_ATTENTION)} = {' or '.join(ATTENTION_KERNELS)}; "
                    "try attention_kernels='sinks=none'"
                )
        per_step = self.d * self.b
        if self.B % per_step:
            up = (self.B // per_step + 1) * per_step
            raise ConfigurationError(
                f"B={self.B} does not split into microbatches of b={self.b} on d={self.d} replicas; "
                f"needs a multiple of d*b={per_step}; try B={up}"
            )
        check_schedule(self.schedule, self.p, self.m, self.v)
        if self.lora_rank and "muon" in self.optimizer_states:
            raise ConfigurationError(
                f"lora_rank={self.lora_rank} with optimizer_states={self.optimizer_states!r}, which is for whole "
                "matrices; needs another; try optimizer_states='adam'"
            )
        if self.pipeline_layout:
            self._check_layout(stage_sizes(self.pipeline_layout))

    def _check_offload(self) -> None:
        """Raise ConfigurationError unless what is offloaded is known, and kept."""
        if unknown := [name for name in self.offload.split(",") if self.offload and name not in OFFLOADED]:
            raise ConfigurationError(
                f"offload={self.offload!r} with {unknown[0]!r}; needs some of {', '.join(OFFLOADED)}; "
                "try offload='layers'"
            )
        if self.offloaded_modules and self.recompute == "full":
            raise ConfigurationError(
                f"offload={self.offload!r} with recompute='full', by which layers keep nothing but their input; needs "
                "another; try recompute='none'"
            )
        if self.offload_layers and not self.offloaded_modules:
            raise ConfigurationError(
                f"offload_layers={self.offload_layers} with offload={self.offload!r}; needs what they keep; "
                "try offload='layers'"
            )

    def _check_layout(self, sizes: tuple[int, ...]) -> None:
        """Raise ConfigurationError unless a layout has p*v stages, of which each rank has something to hold."""
        if len(sizes) != self.p * self.v:
            v = len(sizes) // self.p
            fix = f"v={v}" if v * self.p == len(sizes) else f"p={len(sizes)} with v=1"
            raise ConfigurationError(
                f"pipeline_layout={self.pipeline_layout!r} has {len(sizes)} stages; needs p*v={self.p}*{self.v}="
                f"{self.p * self.v}; try {fix}"
            )
        placement = self.placement
        for rank, stages in enumerate(() if all(sizes[1:-1]) else placement.stages):
            if rank not in (placement.first, placement.last) and not any(sizes[stage] for stage in stages):
                raise ConfigurationError(
                    f"pipeline_layout={self.pipeline_layout!r} leaves pipeline rank {rank} without a layer; needs one "
                    f"in stage {' or '.join(map(str, stages))}, counted from 0; try p={self.p - 1}"
                )

    @property
    def n(self) -> int:
        """GPUs used: n = p*t*d (Section 3.1), with context parallelism p*t*c*d."""
        return self.p * self.t * self.c * self.d

    @property
    def weight_replicas(self) -> int:
        """GPUs that hold the same weights, over which gradients are reduced and the optimizer's states sharded: d*c."""
        return self.d * self.c

    @property
    def expert_tensor_ranks(self) -> int:
        """Ranks that share each expert: `etp`, or t."""
        return self.etp or self.t

    @property
    def whole_experts(self) -> bool:
        """Whether tensor ranks, which share all other matrices, have experts of their own (etp = 1)."""
        return self.expert_tensor_ranks < self.t

    @property
    def expert_parts(self) -> int:
        """Parts into which a layer's experts are divided among ranks: e*etp."""
        return self.e * self.expert_tensor_ranks

    @property
    def expert_replicas(self) -> int:
        """Ranks that hold the same part of the same experts: d*c*t/(e*etp)."""
        return self.weight_replicas * self.t // self.expert_parts

    @property
    def shards(self) -> tuple[int, int]:
        """With ZeRO-3, GPUs that share a copy of the states, and the number of copies."""
        shards = self.zero3_shards or self.weight_replicas
        return shards, self.weight_replicas // shards

    @property
    def expert_shards(self) -> tuple[int, int]:
        """The same of the states of experts."""
        copies = self.shards[1]
        return self.expert_replicas // copies, copies

    @property
    def sequence_shards(self) -> int:
        """Parts into which the tensors between layers are cut along the sequence: t with sequence parallelism, or 1."""
        return self.t if self.sequence_parallel else 1

    @property
    def writes_scores(self) -> bool:
        """Whether a GPU writes the attention scores to memory, as in the paper."""
        return self.attention == "operators" or (self.attention == "auto" and not self.fused)

    def recomputed_modules(self, writes_scores: bool) -> tuple[str, ...]:
        """The modules of a layer that a GPU computes again; of the core 'sdpa' keeps none of what that saves."""
        if self.recompute != "selective":
            return ()
        return tuple(name for name in self.recompute_modules.split(",") if name != "core_attn" or writes_scores)

    @property
    def offloaded_modules(self) -> tuple[str, ...]:
        """Of what is offloaded, whatever is kept for the backward pass."""
        return tuple(name for name in self.offload.split(",") if name not in ("", "optimizer"))

    @property
    def placement(self) -> StagePlacement:
        """Which pipeline rank holds which stages: the schedule's (Section 2.2.2)."""
        return definition(self.schedule).placement(self.p, self.v)

    @property
    def vocabulary(self) -> str:
        """How all pipeline ranks share the vocabulary (`Definition.vocabulary`); "" if the model's ends have it."""
        return definition(self.schedule).vocabulary

    @property
    def reductions(self) -> int:
        """How often an iteration reduces a GPU's gradients: once, with ZeRO-2 every `reduce_every` microbatches."""
        return -(-self.m // self.reduce_every) if self.data_parallel == "zero2" else 1

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
        model, parallel, t = self.model, self.parallel, self.parallel.t
        _check_divides("t", t, "heads", model.heads, "whole attention heads on every tensor rank")
        self._check_sequence()
        _check_divides("t", t, "kv_heads", model.query_groups, "whole key/value heads on every tensor rank")
        if model.has_states and (model.mamba_groups % parallel.t or parallel.c > 1):
            raise ConfigurationError(
                f"t={parallel.t}, c={parallel.c} with layer_pattern={model.layer_pattern!r}; needs whole groups of "
                f"mamba_groups={model.mamba_groups} on every tensor rank, and whole sequences; try c=1, "
                f"t={largest_divisor(model.mamba_groups, parallel.t)}"
            )
        _check_divides("t", t, "ffn_hidden", model.mlp_width, "equal parts of the MLP on every tensor rank")
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
        e, etp, ranks = parallel.e, parallel.expert_tensor_ranks, parallel.weight_replicas * parallel.t
        _check_divides("e", e, "experts", model.experts, "as many on every rank")
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
        _check_divides("etp", etp, "expert_ffn_hidden", model.expert_width, "equal parts of each expert", fix="t")
        shared = model.shared_expert_ffn_hidden
        _check_divides("t", parallel.t, "shared_expert_ffn_hidden", shared, "equal parts of it")

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


@lru_cache(maxsize=256)
def _shortened(model: ModelConfig, c: int) -> ModelConfig:
    """The model with 1/c of the sequence."""
    return replace(model, seq=model.seq // c)


def in_todays_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values in which the names that earlier records used are replaced by today's.

    scheme='zero3' is data_parallel='zero3' now, and a dtype has the engine's name where it was PyTorch's.
    """
    today = dict(values)
    if values.get("scheme") == "zero3":
        today["data_parallel"] = "zero3"
    if (dtype := values.get("dtype")) in OLDER_DTYPES:
        today["dtype"] = OLDER_DTYPES[dtype]
    return today


def padded_vocab(vocab: int, t: int) -> int:
    """Vocabulary padded to a multiple of 128*t, so that every tensor rank holds an equal, aligned part."""
    unit = 128 * t
    return -(-vocab // unit) * unit
