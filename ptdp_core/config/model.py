"""A model: its sizes, the kinds of its layers, and what has to go together in it."""

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import (
    check_divides,
    check_fields,
    counted,
    counted_later,
    described_later,
    fields_of,
    largest_divisor,
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
        check_divides("kv_heads", self.query_groups, "heads", self.heads, "equal groups of query heads")
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

    def __hash__(self) -> int:
        if (known := vars(self).get("hash")) is None:  # once: what is kept of models is asked for many times a point
            known = vars(self)["hash"] = hash(tuple([getattr(self, name) for _, name, _ in fields_of(ModelConfig)]))
        return known

    def __getstate__(self) -> dict[str, Any]:
        """All but the hash: of the same strings another process has another."""
        return {name: value for name, value in vars(self).items() if name != "hash"}

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
        check_divides("mamba_groups", self.mamba_groups, "mamba_heads", self.mamba_heads, "equal groups of heads")

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
        return self.layer_kinds[0]

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The different kinds of the model's layers, the usual one first."""
        letters, windows = self.layer_pattern, len(self.window_layers)
        usual = min(map(letters.find, set("Eex") & set(letters)), default=self.dense_layers)
        # All kinds are among the first layers, among the first with experts, as many of each as both patterns have
        # together, and behind the last.
        together = windows * max(1, len(letters))
        ranges = [range(start, min(start + together, self.layers)) for start in (self.dense_layers, 0)]
        behind = range(self.layers, self.all_layers)[:windows]
        return tuple(dict.fromkeys(map(self.layer_kind, chain([usual], *ranges, behind))))

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


def padded_vocab(vocab: int, t: int) -> int:
    """Vocabulary padded to a multiple of 128*t, so that every tensor rank holds an equal, aligned part."""
    unit = 128 * t
    return -(-vocab // unit) * unit
