"""A configuration of Hugging Face's hub as it is read: its language model's sizes by our names, and its layers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from reproduce.planning.config_keys import CLASS_SIZES, HALVED, LANGUAGE, NAMES, PARTS, WINDOW_EVERY, of_kind

FULL, WINDOW, MAMBA = "full attention", "sliding attention", "mamba"
# Kinds of attention by configurations' words; any other is linear in the sequence's length.
MIXERS = {
    **dict.fromkeys(("full_attention", "attention", "global", "*", "1", "G", "full"), FULL),
    **dict.fromkeys(("sliding_attention", "chunked_attention", "local", "L"), WINDOW),
    **dict.fromkeys(("M", "mamba", "mamba2"), MAMBA),
    "0": "linear attention",
}
MLP, EXPERTS = "mlp", "experts"
ALONE = {"-": MLP, "mlp": MLP, "E": EXPERTS, "moe": EXPERTS}  # layers that are no more, in a list of single parts
# Keys that say of how many layers one has experts.
EVERY = (
    *("decoder_sparse_step", "moe_layer_freq", "moe_layer_frequency", "interleave_moe_layer_step"),
    "moe_layer_interval",
    "expert_layer_period",
)
GROUPS = ("mamba_n_groups", "mamba_ngroups", "n_groups")
MAMBA_KEYS = ("ssm_state_size", "state_size", "conv_kernel", "n_groups", "expand", "chunk_size")
TOWER_HIDDEN = ("embed_dim", "hidden_size", "width", "dim", "d_model")
TOWER_LAYERS = ("num_hidden_layers", "depth", "layers", "num_layers", "n_layers", "encoder_layers")


class LayerWords(NamedTuple):
    """A layer: its kind of attention, and 'mlp' or 'experts'; '' for none."""

    mixer: str
    mlp: str


class HubConfig(dict[str, Any]):
    """A configuration of one language model, which knows the keys that were `asked` for.

    `towers` are what else a model of several kinds of input has, `averaged` the keys with a value for each layer, of
    which the mean is taken.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        own, self.towers = dict(config), {}
        while inner := next((own[key] for key in LANGUAGE if isinstance(own.get(key), dict)), None):
            own = {key: value for key, value in own.items() if key not in LANGUAGE} | inner
        for key in PARTS:
            own = {**(own.pop(key) if isinstance(own.get(key), dict) else {}), **own}
        for key in [key for key, value in own.items() if key.endswith("_config") and isinstance(value, dict)]:
            if first(own[key], TOWER_HIDDEN) and first(own[key], TOWER_LAYERS):
                self.towers[key.removesuffix("_config")] = own.pop(key)
        self.kind = str(own.get("model_type"))
        if self.kind in HALVED:
            own["intermediate_size"] //= 2
        super().__init__({**of_kind(self.kind, CLASS_SIZES, {}), **own})
        self.asked, self.averaged = {"model_type"}, set[str]()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, the default where it has none."""
        self.asked.add(key)
        return super().get(key, default)

    def number(self, name: str, default: int | None = None) -> Any:
        """The size of this name, of a list for each layer the mean. Raises KeyError where it is missing."""
        found = [key for key in NAMES[name] if self.get(key) is not None]
        key = found[0] if found else None
        if key is None:
            if default is None:
                raise KeyError(NAMES[name][0])
            return default
        value = self[key]
        if not isinstance(value, list) or not value:
            return value
        if len(set(value)) > 1:
            self.averaged.add(key)
        mean = sum(value) / len(value)
        return round(mean) if mean < 1024 else round(mean / 128) * 128  # which ranks can share

    @property
    def has_biases(self) -> bool:
        """Whether all linears are said to have biases, which a Llama may."""
        return bool(self.get("attention_bias") and self.get("mlp_bias"))

    @property
    def shared_width(self) -> int:
        """Width of what every token goes through beside its experts."""
        count, width = self.number("shared_experts", 0), self.number("shared_width", 0)
        alone = (count or 1) * width or count * self.number("expert_width", 0)
        if self.get("parallel_attn_mlp_res"):  # Arctic's MLP beside attention and experts, as wide as the model
            return self.number("hidden")
        return alone or (self.number("expert_width") if self.kind.startswith("llama4") else 0)

    def layers(self) -> tuple[LayerWords, ...]:
        """The layers one by one."""
        count = self.number("layers")
        single = [part for part in self._pattern if part != "|"]
        if any(part in ALONE for part in single):
            return tuple(
                LayerWords("" if part in ALONE else MIXERS.get(part, part), ALONE.get(part, "")) for part in single
            )
        if "hybrid" in single:  # Zamba: state-space layers alone, before some of them one with attention
            alone, shared = LayerWords(MAMBA, ""), LayerWords(FULL, MLP)
            return tuple(layer for part in single for layer in ([shared] * (part == "hybrid") + [alone]))
        mixers, experts = self._mixers(count), self._with_experts(count)
        return tuple(
            LayerWords(MIXERS.get(mixer, mixer), EXPERTS if has else MLP)
            for mixer, has in zip(mixers, experts, strict=True)
        )

    @property
    def _pattern(self) -> Any:
        return self.get("hybrid_override_pattern") or self.get("layers_block_type") or ()

    def _mixers(self, count: int) -> list[str]:
        """The kind of attention of each layer, in the words of the configuration."""
        period, places = self.get("full_attention_interval") or 0, self.get("attn_layer_indices")
        if (inner := self.get("linear_attn_config")) and "full_attn_layers" in inner:
            places = [layer - 1 for layer in inner["full_attn_layers"]]
        offset, kinds = period - 1, self.get("layer_types") or self.get("attn_type_list") or self._pattern
        if blocks := self.get("block_types"):  # again and again
            kinds = [MIXERS.get(str(blocks[layer % len(blocks)]), "recurrence") for layer in range(count)]
            return [WINDOW if kind == FULL and self.window else kind for kind in kinds]
        if self.get("attn_layer_period"):
            period, offset = self["attn_layer_period"], self.get("attn_layer_offset", 0)
        if kinds:
            return [str(kind) for kind in kinds][:count] + [FULL] * (count - len(kinds))
        if period:
            places = range(offset, count, period)
        if places is not None:
            return [FULL if layer in places else "linear attention" for layer in range(count)]
        return self._sliding(count)

    def states(self, h: int) -> tuple[int, int, int, int] | None:
        """What a linear attention has: heads, their size, groups that share keys, and their size; None if unknown."""
        if heads := self.get("linear_num_value_heads"):  # gated delta net
            groups, state = self["linear_num_key_heads"], self["linear_key_head_dim"]
            self.asked.add("linear_conv_kernel_dim")
            return heads, self["linear_value_head_dim"], groups, state
        if inner := self.get("linear_attn_config"):  # Kimi's delta attention
            return (inner["num_heads"], inner["head_dim"]) * 2
        if 0 in self.get("attn_type_list", ()):  # lightning attention
            heads = self.number("heads")
            return (heads, self.number("head_dim", 0) or h // heads) * 2
        state = first(self, ("ssm_state_size", "mamba_d_state", "state_size"))
        if not state:
            return None
        self.asked |= {key for key in self if key.startswith("mamba_")} | {*MAMBA_KEYS}
        heads = first(self, ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"))
        inside = self.get("mamba_d_ssm") or self.get("mamba_expand", self.get("expand", 2)) * h
        if not heads:  # the first Mamba, whose channels are heads of their own
            return inside // 64, 64, 8, state
        size = first(self, ("mamba_head_dim", "mamba_d_head", "mamba_headdim"))
        return heads, size if isinstance(size, int) else inside // heads, first(self, GROUPS) or 1, state

    @property
    def window(self) -> int:
        """The window of attention in tokens, 0 without one."""
        window = self.get("sliding_window") or self.get("attention_window_size") or 0
        return window if self.get("use_sliding_window", not self.kind.startswith("qwen")) else 0

    def _sliding(self, count: int) -> list[str]:
        """Which layers have the window: all, or all but every n-th."""
        every = self.get("sliding_window_pattern") or of_kind(self.kind, WINDOW_EVERY, 0)
        if not self.window:
            return [FULL] * count
        if isinstance(every, str):
            return [every[layer % len(every)] for layer in range(count)]
        return [FULL if 0 < every <= count and (layer + 1) % every == 0 else WINDOW for layer in range(count)]

    def _with_experts(self, count: int) -> list[bool]:
        """Which layers have experts."""
        if self.number("experts", 0) < 2:
            return [False] * count
        every = next((self[key] for key in EVERY if self.get(key)), 1)
        if kinds := self.get("mlp_layer_types") or (every if isinstance(every, list) else None):
            return [kind not in (0, False, "dense", "mlp") for kind in kinds][:count]
        places = self.get("moe_layers") or self.get("moe_layers_enum")
        if places:
            chosen = {int(place) for place in (places.split(",") if isinstance(places, str) else places)}
            return [layer in chosen for layer in range(count)]
        begin, without = self.number("first", 0), self.get("mlp_only_layers") or []
        # Every n-th layer, counted from 1; DeepSeek's and Jamba's count from 0, with an offset.
        offset = self.get("expert_layer_offset", 0 if self.get("moe_layer_freq") else every - 1)
        return [begin <= i and (i - offset) % every == 0 and i not in without for i in range(count)]


def first(config: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first value that one of these keys has; None where none has any."""
    return next((config[name] for name in names if config.get(name)), None)
