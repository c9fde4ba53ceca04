"""Words of configurations of Hugging Face's hub: the names of one size, what kinds of models have without a key, and
keys without effect on time and memory. Data for `config_json`."""

from collections.abc import Mapping
from typing import Any

# Our sizes, and the keys under which they stand; the first that a configuration has counts.
NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "n_embed", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "longest": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length"),
    "kv_heads": (
        *("num_key_value_heads", "num_kv_heads", "kv_n_heads", "n_head_kv", "multi_query_group_num"),
        "num_attention_groups",
    ),
    "head_dim": ("head_dim", "attention_head_dim", "kv_channels"),
    "width": ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "mtp_layers": ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts"),
    "experts_per_token": (
        *("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "moe_top_k"),
        *("num_selected_experts", "experts_top_k", "top_k_experts"),
    ),
    "expert_width": (
        *("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "intermediate_size"),
        "ffn_hidden_size",
    ),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_width": (
        *("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim"),
        "shared_intermediate_size",
    ),
    "first": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", "n_dense_first_layers"),
}
GPT: dict[str, Any] = {"activation": "gelu", "norm": "layernorm", "bias": True}
TIED: dict[str, Any] = {"tied_embeddings": True}
GEMMA: dict[str, Any] = {"activation": "geglu", **TIED}
NORMED: dict[str, Any] = {"qk_norm": True}
# What kinds are in which they differ from a Llama.
DIFFERENCES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt2 gpt_bigcode gpt_neo opt", {**GPT, **TIED, "positions": "learned"}),
    ("gpt_neox gptj codegen phi persimmon", GPT),
    ("starcoder2", {**GPT, **TIED}),
    ("bloom", {**GPT, **TIED, "positions": "none"}),
    ("falcon", {**GPT, **TIED, "bias": False}),
    ("mpt", {**GPT, **TIED, "bias": False, "positions": "none"}),
    ("phi3 falcon_h1 nemotron-nas", {}),
    ("glm4_moe", {"router": "sigmoid"}),
    ("jamba", {"positions": "none"}),
    ("stablelm phimoe", {"norm": "layernorm"}),
    ("cohere cohere2", {"norm": "layernorm", **TIED}),
    ("nemotron", {"activation": "gelu", "norm": "layernorm"}),
    ("nemotron_h", {"activation": "gelu", "positions": "none", "router": "sigmoid"}),
    ("arcee", {"activation": "gelu"}),
    ("apertus", {"activation": "gelu", **NORMED}),
    ("gemma", GEMMA),
    ("gemma2", {**GEMMA, "post_norms": True}),
    ("gemma3 gemma3n", {**GEMMA, "post_norms": True, **NORMED}),
    ("glm4", {"post_norms": True}),
    ("qwen3 olmo2 olmo3 olmoe exaone4 dots1 hunyuan minimax_m2", NORMED),
    ("gpt_oss", {"sinks": True}),
    ("recurrent_gemma", GEMMA),
)
HALVED = ("recurrent_gemma",)  # whose width of an MLP is that of gate and up together
KINDS: Mapping[str, Mapping[str, Any]] = {kind: fields for kinds, fields in DIFFERENCES for kind in kinds.split()}
# What some kinds have without a key that says so.
BIASES: Mapping[str, str] = {
    "qwen2": "biases of queries, keys and values",
    "qwen2_moe": "biases of queries, keys and values, and the gate of the shared expert",
    "gpt_oss": "biases",
}
GATED = ("qwen3_next", "qwen3_5")  # each head's output of attention is gated, by as many outputs more of its linear
# Of how many layers the last has no window, where a kind does not say it.
WINDOW_EVERY: Mapping[str, int] = {"gpt_oss": 2, "gemma2": 2, "gemma3": 6, "cohere2": 4}
# Sizes that a nested configuration leaves out where they are its class's own.
CLASS_SIZES: Mapping[str, Mapping[str, Any]] = {
    "gemma3": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208},
}
# Where a model of several kinds of input has its language model, and parts that are put into one configuration.
LANGUAGE = ("text_config", "llm_config", "language_config", "thinker_config")
PARTS = ("attn_config", "ffn_config")
WITHOUT_EFFECT = (
    *("architectures", "auto_map", "dtype", "torch_dtype", "transformers_version", "tokenizer_class"),
    *("use_cache", "return_dict", "id2label", "label2id", "output_attentions", "output_hidden_states"),
    *("torchscript", "pruned_heads", "task_specific_params", "problem_type", "finetuning_task"),
    *("is_encoder_decoder", "is_decoder", "prefix", "pretraining_tp", "quantization_config"),
    *("initializer_range", "initializer_factor", "rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"),
    *("rope_scaling", "rope_parameters", "original_max_position_embeddings", "rotary_pct", "rotary_dim"),
    *("initial_context_length", "max_window_layers", "attn_pdrop", "embd_pdrop", "resid_pdrop", "n_ctx"),
    *("reorder_and_upcast_attn", "scale_attn_weights", "output_router_logits", "attn_scale", "floor_scale"),
    *("router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size", "routed_scaling_factor"),
    *("query_pre_attn_scalar", "rope_local_base_freq", "cache_implementation", "attn_temperature_tuning"),
    *("topk_method", "n_group", "topk_group", "swiglu_limit", "norm_topk_prob", "scoring_func", "use_bias"),
    *("no_rope_layer_interval", "no_rope_layers", "use_qk_norm", "embedding_multiplier", "logits_scaling"),
    *("residual_multiplier", "attention_multiplier", "mm_tokens_per_image", "image_size", "rotary_emb_base"),
    *("num_logits_to_keep", "rescale_prenorm_residual", "use_conv_bias", "use_mamba_kernels", "time_step_rank"),
    *("moe_shared_expert_overlap", "keep_mtp_spec_in_bf16", "rope_theta", "partial_rotary_factor", "mlp_hidden_act"),
    *("norm_epsilon", "norm_type", "moe_layer_end_index", "qk_norm_type", "use_mtp", "conv_L_cache", "chunk_size"),
    *("moe_loss_weight", "moe_jitter_eps", "router_jitter_noise", "input_jitter_noise", "do_layer_norm_before"),
    *("moe_eval_capacity_factor", "moe_train_capacity_factor", "moe_min_capacity", "use_residual", "conv1d_width"),
    *("embeddings_scale_by_sqrt_dim", "final_w_init_variance_scale", "w_init_variance_scale"),
    *("normalization_function", "position_embedding_type"),
    *("no_bias", "mamba_chunk_size", "time_step_limit", "time_step_min", "time_step_max", "time_step_floor"),
)
ENDS_WITHOUT_EFFECT = ("_token_id", "_token_ids", "_token_index", "_initializer_range")


def of_kind(kind: str, table: Mapping[str, Any], default: Any) -> Any:
    """The entry of a table for a kind of models: that of the longest name with which the kind begins."""
    names = (name for name in table if kind == name or kind.startswith((f"{name}_", f"{name}-")))
    return table.get(max(names, key=len, default=""), default)
