"""Models of Hugging Face's hub: well-known ones by name, others by their `config.json`. Imports no torch."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig
from reproduce.planning.config_json import Missing, described
from results import opening
from results.records.errors import UsageError


def _config(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, **further: Any
) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "tie_word_embeddings": False,
    } | further


# The configurations on the hub: organisation and name there, and what counts here. `max_position_embeddings` is the
# length of the sequences that most of the pre-training used, as the models' reports have it.
QWEN_2 = {"model_type": "qwen2", "max_position_embeddings": 4096, "rope_theta": 1e6}
QWEN_3: dict[str, Any] = {"model_type": "qwen3", "max_position_embeddings": 4096, "rope_theta": 1e6, "head_dim": 128}
LLAMA_3_2: dict[str, Any] = {"model_type": "llama", "rope_theta": 5e5, "tie_word_embeddings": True}
GEMMA_3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "head_dim": 128,
    "sliding_window": 1024,
    "tie_word_embeddings": True,
}
LLAMA_4: dict[str, Any] = {
    "model_type": "llama4",
    "head_dim": 128,
    "rope_theta": 5e5,
    "intermediate_size_mlp": 16384,
    "num_experts_per_tok": 1,
}
GLM_4_5: dict[str, Any] = {
    "model_type": "glm4_moe",
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "num_nextn_predict_layers": 1,
    "attention_bias": True,
    "scoring_func": "sigmoid",
}
MIXTRAL = {"model_type": "mixtral", "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN_3_MOE = {
    "model_type": "qwen3_moe",
    "max_position_embeddings": 4096,
    "rope_theta": 1e6,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "max_position_embeddings": 4096,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "scoring_func": "sigmoid",
}
NEMOTRON_H: dict[str, Any] = {
    "model_type": "nemotron_h",
    "head_dim": 128,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
}
NEMOTRON_3 = NEMOTRON_H | {"n_shared_experts": 1}
NANO = NEMOTRON_3 | {
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "mamba_num_heads": 64,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
}
LATENT_MOE = NEMOTRON_3 | {"n_routed_experts": 512, "num_experts_per_tok": 22, "num_nextn_predict_layers": 1}
CONFIGS: Mapping[str, dict[str, Any]] = {
    "llama-3-405b": _config(126, 16384, 128, 8, 53248, 128256, model_type="llama", rope_theta=5e5),
    "mistral-7b": _config(32, 4096, 32, 8, 14336, 32000, model_type="mistral"),
    "mistral-7b-v0.1": _config(32, 4096, 32, 8, 14336, 32000, model_type="mistral", sliding_window=4096),
    "mixtral-8x7b": _config(32, 4096, 32, 8, 14336, 32000, **MIXTRAL),
    "mixtral-8x22b": _config(56, 6144, 48, 8, 16384, 32768, **MIXTRAL),
    "qwen2.5-7b": _config(28, 3584, 28, 4, 18944, 152064, **QWEN_2),
    "qwen2.5-32b": _config(64, 5120, 40, 8, 27648, 152064, **QWEN_2),
    "qwen2.5-72b": _config(80, 8192, 64, 8, 29568, 152064, **QWEN_2),
    "qwen3-0.6b": _config(28, 1024, 16, 8, 3072, 151936, **QWEN_3 | {"tie_word_embeddings": True}),
    "qwen3-1.7b": _config(28, 2048, 16, 8, 6144, 151936, **QWEN_3 | {"tie_word_embeddings": True}),
    "qwen3-4b": _config(36, 2560, 32, 8, 9728, 151936, **QWEN_3 | {"tie_word_embeddings": True}),
    "qwen3-8b": _config(36, 4096, 32, 8, 12288, 151936, **QWEN_3),
    "qwen3-14b": _config(40, 5120, 40, 8, 17408, 151936, **QWEN_3),
    "qwen3-32b": _config(64, 5120, 64, 8, 25600, 151936, **QWEN_3),
    "llama-3.2-1b": _config(16, 2048, 32, 8, 8192, 128256, **LLAMA_3_2),
    "llama-3.2-3b": _config(28, 3072, 24, 8, 8192, 128256, **LLAMA_3_2),
    "llama-4-scout": _config(48, 5120, 40, 8, 8192, 202048, num_local_experts=16, **LLAMA_4),
    "llama-4-maverick": _config(
        *(48, 5120, 40, 8, 8192, 202048), num_local_experts=128, interleave_moe_layer_step=2, **LLAMA_4
    ),
    "gemma-3-27b": _config(62, 5376, 32, 16, 21504, 262208, hidden_activation="gelu_pytorch_tanh", **GEMMA_3),
    "smollm3-3b": _config(36, 2048, 16, 4, 11008, 128256, model_type="smollm3", tie_word_embeddings=True),
    "phi-4": _config(40, 5120, 40, 10, 17920, 100352, model_type="phi3", max_position_embeddings=4096),
    "olmoe-1b-7b": _config(
        *(16, 2048, 16, 16, 1024, 50304),
        model_type="olmoe",
        max_position_embeddings=4096,
        num_experts=64,
        num_experts_per_tok=8,
    ),
    "glm-4.5": _config(
        *(92, 5120, 96, 8, 12288, 151552),
        n_routed_experts=160,
        moe_intermediate_size=1536,
        first_k_dense_replace=3,
        use_qk_norm=True,
        **GLM_4_5,
    ),
    "glm-4.5-air": _config(
        *(46, 4096, 96, 8, 10944, 151552),
        n_routed_experts=128,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
        **GLM_4_5,
    ),
    "qwen3-30b-a3b": _config(48, 2048, 32, 4, 6144, 151936, moe_intermediate_size=768, **QWEN_3_MOE),
    "qwen3-235b-a22b": _config(94, 4096, 64, 4, 12288, 151936, moe_intermediate_size=1536, **QWEN_3_MOE),
    "gpt-oss-120b": _config(
        *(36, 2880, 64, 8, 2880, 201088),
        model_type="gpt_oss",
        max_position_embeddings=4096,
        rope_theta=1.5e5,
        head_dim=64,
        num_local_experts=128,
        num_experts_per_tok=4,
        sliding_window=128,
    ),
    "deepseek-v3": _config(
        *(61, 7168, 128, 128, 18432, 129280),
        n_routed_experts=256,
        first_k_dense_replace=3,
        num_nextn_predict_layers=1,
        **DEEPSEEK_V3,
    ),
    "kimi-k2": _config(
        *(61, 7168, 64, 64, 18432, 163840), n_routed_experts=384, first_k_dense_replace=1, **DEEPSEEK_V3
    ),
    "nemotron-h-8b": _config(
        *(52, 4096, 32, 8, 21504, 131072),
        hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        mamba_num_heads=128,
        **NEMOTRON_H,
    ),
    "nemotron-3-nano": _config(52, 2688, 32, 2, 1856, 131072, **NANO),
    "nemotron-3.5-lightning": _config(52, 2688, 32, 2, 1856, 131072, num_nextn_predict_layers=1, **NANO),
    "nemotron-3-super": _config(
        *(88, 4096, 32, 2, 2688, 131072),
        hybrid_override_pattern="MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
        "EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
        mamba_num_heads=128,
        moe_intermediate_size=2688,
        moe_shared_expert_intermediate_size=5376,
        moe_latent_size=1024,
        **LATENT_MOE,
    ),
    "nemotron-3-ultra": _config(
        *(108, 8192, 64, 2, 5120, 131072),
        hybrid_override_pattern="MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*"
        "EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        mamba_num_heads=256,
        moe_intermediate_size=5120,
        moe_shared_expert_intermediate_size=10240,
        moe_latent_size=2048,
        **LATENT_MOE,
    ),
}
SUFFIXES = ("-hf", "-instruct", "-chat", "-base", "-it", "-pt", "-0924", "-v0.1", "-v0.3")
OTHER_NAMES = {
    "405b": "llama-3-405b",
    "gpt3-175b": "175b",
    "deepseek-r1": "deepseek-v3",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "llama4-maverick-400b": "llama-4-maverick",
    "deepseekv3": "deepseek-v3",
    "nemotron-8b": "nemotron-3-8b",
    "nemotron-15b": "nemotron-4-15b",
    "nemotron-22b": "nemotron-3-22b",
    "nemotron-340b": "nemotron-4-340b",
    "nemotron-3-5-lightning": "nemotron-3.5-lightning",
    "nvidia-nemotron-3-nano-30b-a3b-bf16": "nemotron-3-nano",
    "nvidia-nemotron-3-super-120b-a12b-bf16": "nemotron-3-super",
    "nvidia-nemotron-3-ultra-550b-a55b-bf16": "nemotron-3-ultra",
}


class Known(NamedTuple):
    """A model: how it is called here, its sizes, and what of it is not modelled."""

    name: str
    model: ModelConfig
    missing: tuple[Missing, ...] = ()

    def unmodelled(self, seq: int | None = None) -> str:
        """What is not modelled at sequences of so many tokens, by default the model's, in a sentence; '' if all is."""
        seq = self.model.seq if seq is None else seq
        return "; ".join(item.text for item in self.missing if seq > item.beyond)


def short_name(name: str) -> str:
    """Others' names as models are called here: 'meta-llama/Llama-3.1-70B-Instruct', 'LLAMA3_70B' are 'llama-3-70b'."""
    short = name.lower().rpartition("/")[2].removeprefix("meta-").replace("_", "-")
    while short.endswith(SUFFIXES) and short not in CONFIGS:
        short = next(short.removesuffix(suffix) for suffix in SUFFIXES if short.endswith(suffix))
    return OTHER_NAMES.get(short, re.sub(r"^llama-?(\d)(\.1)?-", r"llama-\1-", short))


def is_file(name: str) -> bool:
    """Whether a model is given by its `config.json`, or the folder that has it."""
    return name.endswith(".json") or opening.exists(Path(name) / "config.json")


def read(name: str) -> Known:
    """The model of a `config.json`, or of the folder that has it. Raises `UsageError`."""
    path = Path(name) if name.endswith(".json") else Path(name) / "config.json"
    try:
        config = json.loads(opening.read_text(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; needs a config.json of the hub") from None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise UsageError(f"{path} is no JSON object; needs a config.json of the hub")
    try:
        return known(path.absolute().parent.name.lower() or "own", config)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        wrong = f"{error} is missing" if isinstance(error, KeyError) else error
        raise UsageError(f"{path}: {wrong}; needs a config.json of the hub") from None


def known(name: str, config: Mapping[str, Any]) -> Known:
    """The model of a configuration.

    Raises `UsageError` for a kind that is unknown, KeyError for a size that is missing.
    """
    return Known(name, *described(config))
