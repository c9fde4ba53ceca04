"""What a `config.json` of Hugging Face's hub describes: a model, and by name all of it that the model is not.

One reader, for `plan` and `simulate`, which take the nearest model, and for weights (`annex/weights/hugging_face.py`),
which are refused if anything is missing. Every key of the file either makes the model, or has no effect on time and
memory (`WITHOUT_EFFECT`, `ENDS_WITHOUT_EFFECT`), or is named. Imports no torch.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig
from ptdp_core.layers.state_space import CHUNK, KERNEL
from results.records.errors import UsageError

MOST_TOKENS = 8192  # of a sequence, if none is asked for: models are trained on shorter ones than their positions allow
FAMILIES = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gpt_oss", "gemma3_text"),
    *("deepseek_v2", "deepseek_v3", "kimi_k2"),
)
GPT_2, NEMOTRON_H = "gpt2", "nemotron_h"
BLOCK_TYPES = {
    "mamba": "M",
    "attention": "*",
    "mlp": "-",
    "moe": "E",
}  # Nemotron-H's words for `layer_pattern`'s letters
GPT_2_SIZES = ("n_layer", "n_embd", "n_head", "n_positions", "vocab_size")
GEMMA = ("gemma3_text",)
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
# What some families have without a key that says so.
OF_FAMILY = {
    "qwen2": "biases of queries, keys and values (left out)",
    "qwen2_moe": "biases of queries, keys and values, and the gate of the shared expert (left out)",
    "gpt_oss": "biases (left out)",
}
WITHOUT_EFFECT = (
    *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "tokenizer_class"),
    *("use_cache", "return_dict", "id2label", "label2id", "output_attentions", "output_hidden_states"),
    *("torchscript", "pruned_heads", "task_specific_params", "problem_type", "finetuning_task"),
    *("is_encoder_decoder", "is_decoder", "prefix", "pretraining_tp", "quantization_config"),
    *("initializer_range", "initializer_factor", "rms_norm_eps", "layer_norm_epsilon"),
    *("rope_scaling", "rope_parameters", "original_max_position_embeddings"),
    *("initial_context_length", "max_window_layers", "attn_pdrop", "embd_pdrop", "resid_pdrop", "n_ctx"),
    *("reorder_and_upcast_attn", "scale_attn_weights", "output_router_logits"),
    *("router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size", "routed_scaling_factor"),
    *("query_pre_attn_scalar", "rope_local_base_freq", "cache_implementation"),
    *("topk_method", "n_group", "topk_group", "swiglu_limit", "experts_per_token"),
    *("norm_eps", "num_logits_to_keep", "rescale_prenorm_residual", "mamba_ssm_cache_dtype", "mamba_hidden_act"),
    *("use_conv_bias", "use_mamba_kernels", "time_step_min", "time_step_max", "time_step_floor", "time_step_limit"),
    *("time_step_rank", "expand", "mlp_hidden_act", "moe_shared_expert_overlap", "norm_topk_prob", "rope_theta"),
    *("max_position_embeddings", "partial_rotary_factor", "keep_mtp_spec_in_bf16"),
)
ENDS_WITHOUT_EFFECT = ("_token_id", "_token_ids")
NOTHING: tuple[Any, ...] = (None, False, 0, "", [], {})  # values by which a key says that there is none of it


class Missing(NamedTuple):
    """What of a model is not modelled; it matters for sequences of more than `beyond` tokens."""

    text: str
    beyond: int = 0


class _Read(dict[str, Any]):
    """A configuration that knows which of its keys were asked for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, the default where it has none."""
        self.asked.add(key)
        return super().get(key, default)


def described(config: Mapping[str, Any], seq: int | None = None) -> tuple[ModelConfig, tuple[Missing, ...]]:
    """The model of a configuration with sequences of `seq` tokens, by default the longest, or 8,192, and what it lacks.

    Raises `UsageError` for a kind that is unknown, KeyError for a size that is missing, and what `ModelConfig` raises.
    """
    read = _Read(config)
    kind = read.get("model_type")
    if kind == GPT_2:
        model, missing = _gpt_2(read, seq), [*_activation(read, "gelu")]
    elif kind == NEMOTRON_H:
        model, missing = _nemotron_h(read, seq), [*_missing_states(read)]
    elif kind in FAMILIES:
        model, missing = _llama(read, kind, seq), [*_missing(read, kind)]
    else:
        raise UsageError(f"model_type={kind!r} is unknown; needs one of gpt2, {', '.join((*FAMILIES, NEMOTRON_H))}")
    unread = (key for key in read if key not in (*read.asked, *WITHOUT_EFFECT) and not key.startswith("_"))
    unread = (key for key in unread if not key.endswith(ENDS_WITHOUT_EFFECT) and read[key] not in NOTHING)
    unknown = [Missing(f"{key}={read[key]!r} (not known here, left out)") for key in sorted(unread)]
    return model, (*missing, *unknown)


def _gpt_2(read: _Read, seq: int | None) -> ModelConfig:
    layers, hidden, heads, longest, vocab = (read[key] for key in GPT_2_SIZES)
    width = read.get("n_inner") or 0
    tied = read.get("tie_word_embeddings", True)
    model = {"ffn_hidden": 0 if width == 4 * hidden else width, "tied_embeddings": tied}
    return ModelConfig(layers, hidden, heads, longest if seq is None else seq, vocab, **model)


def _llama(read: _Read, kind: str, seq: int | None) -> ModelConfig:
    """A model with Llama's computation, and what some have beyond it."""
    heads, rope = read["num_attention_heads"], read.get("rope_parameters") or read.get("rope_scaling") or {}
    longest = read.get("max_position_embeddings", MOST_TOKENS)
    return ModelConfig(
        read["num_hidden_layers"],
        read["hidden_size"],
        heads,
        seq=min(longest, MOST_TOKENS) if seq is None else seq,
        vocab=read["vocab_size"],
        kv_heads=min(heads, read.get("num_key_value_heads") or heads),
        mtp_layers=read.get("num_nextn_predict_layers") or 0,
        ffn_hidden=read["intermediate_size"],
        activation="geglu" if kind in GEMMA else "swiglu",
        norm="rmsnorm",
        positions="rotary",
        rope_theta=rope.get("rope_theta", read.get("rope_theta", 1e4)),
        tied_embeddings=read.get("tie_word_embeddings", kind in GEMMA),
        bias=_has_biases(read),
        qk_norm=kind.startswith("qwen3") or kind in GEMMA,
        post_norms=kind in GEMMA,
        sinks=kind == "gpt_oss",
        **_window(read, kind, min(longest, MOST_TOKENS) if seq is None else seq),
        **_heads(read),
        **_experts(read, kind),
    )


def _nemotron_h(read: _Read, seq: int | None) -> ModelConfig:
    """A model of state-space layers, attention, MLPs and experts, each a layer by itself (arXiv:2504.03624).

    Its attention knows no positions, and its squared ReLU is priced and stored as GELU is.
    """
    layers, hidden, heads = (read[key] for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    longest = read.get("max_position_embeddings", MOST_TOKENS)
    size = read.get("head_dim") or read.get("attention_head_dim") or hidden // heads
    pattern = _pattern(read, "hybrid_override_pattern", "layers_block_type")
    experts = _experts(read, NEMOTRON_H) if "E" in pattern else {}
    if experts:
        shared = read.get("moe_shared_expert_intermediate_size") or experts["expert_ffn_hidden"]
        experts |= {"shared_expert_ffn_hidden": (read.get("n_shared_experts") or 0) * shared, "router": "sigmoid"}
    return ModelConfig(
        layers,
        hidden,
        heads,
        seq=min(longest, MOST_TOKENS) if seq is None else seq,
        vocab=read["vocab_size"],
        kv_heads=min(heads, read.get("num_key_value_heads") or heads),
        head_dim=0 if size * heads == hidden else size,
        ffn_hidden=read["intermediate_size"],
        norm="rmsnorm",
        positions="none",
        tied_embeddings=read.get("tie_word_embeddings", False),
        bias=False,
        layer_pattern=pattern,
        mamba_heads=read["mamba_num_heads"],
        mamba_head_dim=read["mamba_head_dim"],
        mamba_groups=read["n_groups"],
        mamba_state=read["ssm_state_size"],
        expert_latent=read.get("moe_latent_size") or 0,
        mtp_layers=read.get("num_nextn_predict_layers") or 0,
        **experts,
    )


def _pattern(read: _Read, letters: str, words: str) -> str:
    """What layers are, by a key that has a letter for each or one that has a list of words; '' without both."""
    pattern = read.get(letters)
    return str(pattern or "".join(BLOCK_TYPES[word] for word in read.get(words) or ()))


def _missing_states(read: _Read) -> Iterator[Missing]:
    """What the keys of a Nemotron-H say beyond the model."""
    for key in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias"):
        if read.get(key):
            yield Missing(f"{key}=True (left out)")
    for key, counted in (("chunk_size", CHUNK), ("conv_kernel", KERNEL)):
        if read.get(key, counted) != counted:
            yield Missing(f"{key}={read[key]} (counted as {counted})")
    if (predicts := _pattern(read, "mtp_hybrid_override_pattern", "mtp_layers_block_type")) not in ("", "*E"):
        yield Missing(f"layers of multi-token prediction {predicts} (taken as *E)")


def _sliding(read: _Read, kind: str) -> tuple[int, str]:
    """The window of attention in tokens, 0 without one, and which layers in turn have it (w) or see all (f)."""
    window, layers = read.get("sliding_window") or 0, read["num_hidden_layers"]
    every = read.get("sliding_window_pattern") or {"gpt_oss": 2, "gemma3_text": 6}.get(kind, 0)
    kinds = read.get("layer_types")
    if not read.get("use_sliding_window", not kind.startswith("qwen")):
        return 0, "f"
    if kinds:
        return window, "".join("w" if kind == "sliding_attention" else "f" for kind in kinds)
    return window, "w" * (every - 1) + "f" if 0 < every <= layers else "w"


def _window(read: _Read, kind: str, seq: int) -> dict[str, Any]:
    """The fields of attention over a window of the last tokens only, where that is less than the sequence."""
    window, layers = _sliding(read, kind)
    if not 0 < window < seq or "w" not in layers:
        return {}
    # What repeats is as long as the least shift by which the layers are the same as before.
    period = next(n for n in range(1, len(layers) + 1) if layers.startswith(layers[n:]))
    return {"window": window, "window_layers": layers[:period]}


def _has_biases(read: _Read) -> bool:
    """Whether all linears have biases, which a Llama may."""
    return bool(read.get("attention_bias") and read.get("mlp_bias"))


def _heads(read: _Read) -> dict[str, Any]:
    """The size of heads, if they do not fill h, else 0, and the sizes of latent attention, if it is that."""
    hidden, heads = read["hidden_size"], read["num_attention_heads"]
    if "kv_lora_rank" in read:
        return {
            "head_dim": read["qk_nope_head_dim"],
            "kv_latent": read["kv_lora_rank"],
            "query_latent": read.get("q_lora_rank") or 0,
            "rotary_dim": read["qk_rope_head_dim"],
        }
    size = read.get("head_dim") or hidden // heads
    return {"head_dim": 0 if size * heads == hidden else size}


def _experts(read: _Read, kind: str) -> dict[str, Any]:
    """The fields of a mixture of experts, none for a dense model."""
    experts = next((found for key in EXPERTS if (found := read.get(key))), 0)
    if not experts:
        return {}
    width = read.get("moe_intermediate_size") or read["intermediate_size"]
    shared = (read.get("n_shared_experts") or 0) * width or read.get("shared_expert_intermediate_size") or 0
    first = read.get("mlp_only_layers") or []
    weights_of_all = kind.startswith(("qwen", "deepseek")) and not read.get("norm_topk_prob", False)
    return {
        "experts": experts,
        "experts_per_token": read["num_experts_per_tok"],
        "expert_ffn_hidden": width,
        "shared_expert_ffn_hidden": shared,
        "dense_layers": read.get("first_k_dense_replace") or (len(first) if first == list(range(len(first))) else 0),
        "router": "sigmoid"
        if read.get("scoring_func") == "sigmoid"
        else "softmax_before"
        if weights_of_all
        else "softmax_after",
        "auxiliary_loss": float(read.get("router_aux_loss_coef") or 0.0),
    }


def _missing(read: _Read, kind: str) -> Iterator[Missing]:
    """What the keys that are known say beyond the model."""
    if kind in OF_FAMILY:
        yield Missing(OF_FAMILY[kind])
    elif not _has_biases(read):
        yield from (
            Missing(f"{key}={read[key]!r} (left out)") for key in ("attention_bias", "mlp_bias") if read.get(key)
        )
    yield from _activation(read, "gelu" if kind in GEMMA else "silu")
    yield from _other_attention(read)
    if read.get("v_head_dim", size := read.get("qk_nope_head_dim")) != size:
        yield Missing(f"v_head_dim={read['v_head_dim']} (values are taken as large as keys, {size})")
    if (turned := read.get("partial_rotary_factor", 1.0)) != 1:
        yield Missing(f"partial_rotary_factor={turned} (all of a head is turned)")
    for key in ("decoder_sparse_step", "moe_layer_freq"):
        if read.get(key, 1) not in (1, None):
            yield Missing(f"{key}={read[key]!r} (all layers but the first dense ones have experts)")
    first = read.get("mlp_only_layers") or []
    if first != list(range(len(first))):
        yield Missing(f"mlp_only_layers={first} (these layers have experts, too)")


def _activation(read: _Read, usual: str) -> Iterator[Missing]:
    for key in ("hidden_act", "hidden_activation", "activation_function"):
        if usual not in (name := str(read.get(key) or usual)).replace("swish", "silu"):
            yield Missing(f"{key}={name!r} (taken as {usual})")


def _other_attention(read: _Read) -> Iterator[Missing]:
    """Kinds of attention, by layer, that are neither full nor over a window."""
    kinds = list(read.get("layer_types") or ())
    for other in dict.fromkeys(kinds):
        if other not in ("sliding_attention", "full_attention"):
            yield Missing(
                f"{other.replace('_', ' ')} in {kinds.count(other)} of {len(kinds)} layers (taken as full attention)"
            )
