"""What a `config.json` of Hugging Face's hub describes: the nearest model that is known here, and by name all that the
real one is beyond it, with its share of the parameters and of the FLOPs.

One reader, for `plan` and `simulate`, which take the nearest model unless more than `MOST_UNKNOWN` of it is unknown,
and for weights (`annex/weights/hugging_face.py`), which are refused if anything is missing. Every key of the file
either makes the model, or has no effect on time and memory (`WITHOUT_EFFECT`), or is named. Imports no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum
from typing import Any, NamedTuple

from ptdp_core.config import LAYER_LETTERS, ModelConfig
from ptdp_core.formulas import active_parameters, forward_flops, parameters
from reproduce.planning.config_keys import KINDS, of_kind
from reproduce.planning.config_lacks import Lack, lacks
from reproduce.planning.config_read import FULL, WINDOW, HubConfig, LayerWords
from results.records.errors import UsageError

MOST_TOKENS = 8192  # of a sequence, if none is asked for: models are trained on shorter ones than their positions allow
MOST_UNKNOWN = 1 / 3  # of a model's parameters, or of its FLOPs: with more of it unknown the nearest model says nothing
MOST_LAYERS = 10_000  # of which each is looked at
MOST_EXPERTS = 1 << 16
LEAST_SHARE = 0.0005  # that is worth a number
# Kinds that are what the fields say; others are said to be taken as what they are taken as.
FAMILIES = (
    *("gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gpt_oss", "gemma3_text"),
    *("deepseek_v2", "deepseek_v3", "kimi_k2", "nemotron_h"),
)
LINEAR_WINDOW = 256  # tokens over which attention computes about as much as a linear one with a state of 128 x 128
LETTERS = {kind: letter for letter, kind in LAYER_LETTERS.items()}


class Missing(NamedTuple):
    """What of a model is not modelled; it matters for sequences of more than `beyond` tokens."""

    text: str
    beyond: int = 0


def described(config: Mapping[str, Any], seq: int | None = None) -> tuple[ModelConfig, tuple[Missing, ...]]:
    """The model of a configuration with sequences of `seq` tokens, by default the longest, or 8,192, and what it lacks.

    Raises `UsageError` for one of which too much is unknown, KeyError for a size that is missing, ValueError for one
    that no model has, and what `ModelConfig` raises.
    """
    read = HubConfig(config)
    for name in ("layers", "mtp_layers"):
        if (count := read.number(name, 0)) > MOST_LAYERS:
            raise ValueError(f"{name}={count} is more than any model's; needs at most {MOST_LAYERS}; try fewer")
    layers = read.layers()
    model = _model(read, layers, seq)
    lacking = list(lacks(read, model, layers, FAMILIES))
    total = parameters(model) + fsum(lack.parameters for lack in lacking)
    work = forward_flops(model, 1) / model.seq + 2 * model.hidden * model.vocab * (1 + model.mtp_layers)
    flops = work + fsum(lack.flops for lack in lacking)
    unknown = max(
        fsum(abs(lack.parameters) for lack in lacking) / total, fsum(abs(lack.flops) for lack in lacking) / abs(flops)
    )
    named = [Missing(f"{lack.what} ({lack.how}{_shares(lack, total, flops)})", lack.beyond) for lack in lacking]
    if unknown > MOST_UNKNOWN:
        raise UsageError(
            f"model_type={read.kind!r}: {unknown:.0%} of it is unknown here, {'; '.join(item.text for item in named)}; "
            f"needs at most {MOST_UNKNOWN:.0%}; try layers, hidden and heads of a model like it"
        )
    if read.kind not in FAMILIES:
        named.insert(0, Missing(_taken(read.kind, model)))
    return model, tuple(named)


def _taken(kind: str, model: ModelConfig) -> str:
    """What a kind that has no name here is taken as."""
    like = "DeepSeek" if model.kv_latent else "GPT" if model.norm == "layernorm" and model.branches == 1 else "Llama"
    states = sum(model.layer_kind(layer).mixer == "mamba" for layer in range(model.layers)) if model.mamba_heads else 0
    parts = {f"{model.experts} experts": model.experts, f"{states} state-space layers": states}
    of = "".join(f" {'and' if i else 'with'} {part}" for i, part in enumerate(part for part in parts if parts[part]))
    size = f"{parameters(model) / 1e9:.3g} billion parameters"
    if model.experts:
        size += f", {active_parameters(model) / 1e9:.3g} of a token"
    if model.mtp_layers:
        size += f", with mtp_layers={model.mtp_layers}; {parameters(replace(model, mtp_layers=0)) / 1e9:.3g} without"
    return f"model_type={kind!r} as such (taken as a {like}{of}: {size})"


def _shares(lack: Lack, parameters: float, flops: float) -> str:
    """How much of the whole something is, as the end of a list; '' for too little to be said."""
    shares = {"parameters": lack.parameters / parameters, "FLOPs": lack.flops / flops}
    return "".join(f", {share:+.1%} of the {of}" for of, share in shares.items() if abs(share) >= LEAST_SHARE)


def _model(read: HubConfig, layers: Sequence[LayerWords], seq: int | None) -> ModelConfig:
    """The model that is nearest: a Llama's computation, and what some have beyond it."""
    kind, heads = of_kind(read.kind, KINDS, {}), read.number("heads")
    hidden, longest = read.number("hidden"), read.number("longest", MOST_TOKENS)
    rope = read.get("rope_parameters") or read.get("rope_scaling") or {}
    length = min(longest, MOST_TOKENS) if seq is None else seq
    width = read.number("width", 0) or read.number("expert_width", 0) or 4 * hidden
    gated = kind.get("activation", "swiglu") != "gelu"
    fields: dict[str, Any] = {
        "activation": "swiglu",
        "norm": "rmsnorm",
        "positions": "rotary",
        "tied_embeddings": False,
        "qk_norm": bool(read.get("use_qk_norm")),
    } | {name: value for name, value in kind.items() if name != "router"}
    if read.get("position_embedding_type") == "nope":
        fields["positions"] = "none"
    fields["tied_embeddings"] = read.get("tie_word_embeddings", fields["tied_embeddings"])
    fields["bias"] = read.has_biases or (fields.get("bias", False) and read.get("bias", read.get("use_bias", True)))
    if read.get("multi_query") and not read.get("new_decoder_architecture"):
        fields["kv_heads"] = 1
    elif read.kind != "gpt2":
        fields["kv_heads"] = min(heads, read.number("kv_heads", 0) or heads)
    if fields["positions"] == "rotary":
        fields["rope_theta"] = rope.get("rope_theta", read.get("rope_theta", 1e4))
    fields |= {"layers": read.number("layers"), "mtp_layers": read.number("mtp_layers", 0)}
    fields |= {"ffn_hidden": 0 if width == 4 * hidden and not gated else width}
    fields |= _window(read, layers, length) | _heads(read) | _experts(read, kind) | _pattern(read, layers)
    return ModelConfig(hidden=hidden, heads=heads, seq=length, vocab=read.number("vocab"), **fields)


def _window(read: HubConfig, layers: Sequence[LayerWords], seq: int) -> dict[str, Any]:
    """The fields of attention over a window of the last tokens only, where that is less than the sequence.

    A linear attention of unknown size is taken as one over `LINEAR_WINDOW` tokens.
    """
    unknown = read.states(read.number("hidden")) is None
    full = (FULL, "") if unknown else (FULL, "", *(layer.mixer for layer in layers if layer.mixer != WINDOW))
    pattern = "".join("f" if layer.mixer in full else "w" for layer in layers)
    window = read.window or (LINEAR_WINDOW if unknown and "w" in pattern else 0)
    if not 0 < window < seq or "w" not in pattern:
        return {}
    return {"window": window, "window_layers": _period(pattern)}


def _pattern(read: HubConfig, layers: Sequence[LayerWords]) -> dict[str, Any]:
    """The fields that say what each layer is, where that is not an MLP, or experts but in the first."""
    states, experts = read.states(read.number("hidden")), read.number("experts", 0) > 1
    beside = states is not None and all(layer.mixer == FULL for layer in layers)  # attention: taken as before it
    letters = ""
    for mixer, mlp in layers:
        is_attention = mixer in (FULL, WINDOW) or (mixer != "" and states is None)
        letters += "M" * beside + LETTERS["attention" if is_attention else mixer and "mamba", mlp]
    usual = "e" if experts else "d"
    found: dict[str, Any] = {}
    if states is not None and set("Mmx") & set(letters):
        found = dict(zip(("mamba_heads", "mamba_head_dim", "mamba_groups", "mamba_state"), states, strict=True))
    if not letters.lstrip("d").strip(usual):
        return {"dense_layers": letters.count("d") if experts else 0}
    return {"layers": len(letters), "layer_pattern": _period(letters), **found}


def _period(pattern: str) -> str:
    """What is repeated: as long as the least shift by which the pattern is the same as before."""
    return pattern[: next(n for n in range(1, len(pattern) + 1) if pattern.startswith(pattern[n:]))]


def _heads(read: HubConfig) -> dict[str, Any]:
    """The size of heads, if they do not fill h, else 0, and the sizes of latent attention, if it is that."""
    hidden, heads, size = read.number("hidden"), read.number("heads"), read.number("head_dim", 0)
    if read.get("kv_lora_rank"):
        return {
            "kv_heads": heads,
            "head_dim": read["qk_nope_head_dim"],
            "kv_latent": read["kv_lora_rank"],
            "query_latent": read.get("q_lora_rank") or 0,
            "rotary_dim": read["qk_rope_head_dim"],
        }
    size = size or hidden // heads
    return {"head_dim": 0 if size * heads == hidden else size}


def _experts(read: HubConfig, kind: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a mixture of experts, none for a dense model."""
    experts = read.number("experts", 0)
    if experts < 2:
        return {}
    if experts > MOST_EXPERTS:
        raise ValueError(f"experts={experts} are more than any model's; needs at most {MOST_EXPERTS}; try fewer")
    of_all = read.kind.startswith(("qwen", "deepseek", "olmoe")) and not read.get("norm_topk_prob", False)
    router = "softmax_before" if of_all else "softmax_after"
    return {
        "experts": experts,
        "experts_per_token": read.number("experts_per_token", 1),
        "expert_ffn_hidden": read.number("expert_width"),
        "shared_expert_ffn_hidden": read.shared_width,
        "expert_latent": read.get("moe_latent_size") or 0,
        "router": kind.get("router", "sigmoid" if read.get("scoring_func") == "sigmoid" else router),
        "auxiliary_loss": float(read.get("router_aux_loss_coef") or 0.0),
    }
