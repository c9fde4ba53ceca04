"""Weights in Hugging Face's naming: `config.json` and `model.safetensors`, to and from ours.

Of GPT-2, Llama, and the mixtures of experts Mixtral and Qwen3-MoE. Besides names, four things differ. They keep
queries, keys and values apart (GPT-2 one after the other), where we keep them by groups of heads. They keep gate and up
apart, where our rows take turns (`layout.layer_parameters`). Their files have a matrix for each expert, where we have
one tensor of all. GPT-2's matrices are [inputs, outputs]. Rotary positions turn the same halves in both. Only files
need the package `safetensors`.
"""

import importlib.util
import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from ptdp_core.config import ModelConfig
from ptdp_core.engine.errors import EngineUnavailableError, not_writable
from ptdp_core.engine.files import read_json
from ptdp_core.engine.model import EPSILON
from ptdp_core.formulas import parameters
from ptdp_core.layout import chunk_parameters
from ptdp_core.packages import missing
from reproduce.planning.config_json import described
from results import opening

Tensors = dict[str, torch.Tensor]
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GPT_2, LLAMA, MIXTRAL, QWEN3_MOE = "gpt2", "llama", "mixtral", "qwen3_moe"
LLAMA_FIELDS: dict[str, Any] = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary"}


def _formats() -> dict[str, dict[str, Any]]:
    """The table of formats, each with what it has from the one that it is like."""
    formats: dict[str, dict[str, Any]] = {}
    for kind, own in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items():
        other = formats.get(own.pop("like", ""), {})
        merged = {key: other[key] | own[key] for key in other.keys() & own.keys() if isinstance(own[key], dict)}
        formats[kind] = other | own | merged
    return formats


FORMATS = _formats()
# The fields, beyond the paper's, that these formats describe: a model with any other has none of them.
DESCRIBED = {
    *("kv_heads", "ffn_hidden", "activation", "norm", "positions", "rope_theta", "tied_embeddings", "bias", "head_dim"),
    *("qk_norm", "experts", "experts_per_token", "expert_ffn_hidden", "shared_expert_ffn_hidden", "dense_layers"),
    *("router", "auxiliary_loss"),
}


def family(model: ModelConfig) -> str:
    """Which of Hugging Face's models it is: 'gpt2', 'llama', 'mixtral' or 'qwen3_moe'.

    Raises `ValueError` if it is none of them.
    """
    for item in fields(model):
        if item.metadata["later"] and item.name not in DESCRIBED and getattr(model, item.name) != item.default:
            raise ValueError(
                f"{item.name}={getattr(model, item.name)!r} is in no format of Hugging Face's known here; "
                f"needs {item.default!r}; try exporting a model without it"
            )
    if all(getattr(model, name) == value for name, value in LLAMA_FIELDS.items()):
        return _llama_or_experts(model)
    if replace(model, ffn_hidden=0).is_gpt:
        return GPT_2
    raise ValueError(
        f"activation={model.activation!r}, norm={model.norm!r}, positions={model.positions!r}, kv_heads="
        f"{model.kv_heads}, bias={model.bias} is neither GPT-2 nor Llama; needs the defaults, or swiglu, rmsnorm and "
        "rotary; try exporting a model of one of the two"
    )


def _llama_or_experts(model: ModelConfig) -> str:
    """Which kind a model with Llama's computation is, by its experts. Raises `ValueError` if it is none."""
    if not model.experts and not model.qk_norm:
        return LLAMA
    if model.experts and not model.shared_expert_ffn_hidden and not model.bias:
        if model.qk_norm and model.router != "sigmoid":
            return QWEN3_MOE
        if not model.qk_norm and model.router == "softmax_after" and not model.dense_layers:
            return MIXTRAL
    raise ValueError(
        f"experts={model.experts}, qk_norm={model.qk_norm}, router={model.router!r}, dense_layers="
        f"{model.dense_layers}, shared_expert_ffn_hidden={model.shared_expert_ffn_hidden}, bias={model.bias} is "
        "neither Mixtral nor Qwen3-MoE; "
        "needs softmax_after and no dense layer, or qk_norm and a softmax, and neither a shared expert nor biases; "
        "try exporting a model of one of the two"
    )


def config_of(model: ModelConfig) -> dict[str, Any]:
    """The content of `config.json`. Raises `ValueError` for a model of no known kind."""
    kind = family(model)
    of = FORMATS[kind]
    config: dict[str, Any] = {"architectures": [of["architecture"]], "model_type": kind}
    config |= {theirs: getattr(model, ours) for theirs, ours in of["fields"].items()}
    config |= {**of["fixed"], of["epsilon"]: EPSILON}
    if model.head_dim:
        config["head_dim"] = model.head_dim
    if kind == LLAMA:
        config["mlp_bias"] = model.bias
    elif kind == MIXTRAL:
        config["sliding_window"] = None
    elif kind == QWEN3_MOE:
        config["norm_topk_prob"] = model.router == "softmax_after"
        config["mlp_only_layers"] = list(range(model.dense_layers))
    return config


def model_of(config: Mapping[str, Any], seq: int | None = None) -> ModelConfig:
    """The model that a `config.json` describes, with sequences of `seq` tokens, by default as long as it allows.

    Raises `ValueError` for a model that the engine cannot compute.
    """
    kind = config.get("model_type")
    if (of := FORMATS.get(str(kind))) is None:
        known = ", ".join(FORMATS)
        raise ValueError(f"model_type={kind!r} is unknown; needs one of {known}; try a model of one of them")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    expected, longest = {**of["fixed"], of["epsilon"]: EPSILON, **of["needed"]}, config[of["longest"]]
    if kind == LLAMA:
        expected["mlp_bias"] = config.get("attention_bias", False)
    elif kind == MIXTRAL:
        expected["sliding_window"] = None
    elif kind == QWEN3_MOE:
        dense = config.get("mlp_only_layers") or []
        expected["mlp_only_layers"] = list(range(len(dense))) if dense else config.get("mlp_only_layers")
    scaling = rope.get("rope_type", rope.get("type", "default"))
    if kind != GPT_2 and scaling != "default":
        raise ValueError(f"rope_type={scaling!r} is no plain rotary embedding; needs 'default'; try Llama 2 or 3")
    for name, value in expected.items():
        if config.get(name, value) != value:
            raise ValueError(f"{name}={config[name]!r} is another computation than ours; needs {value!r}")
    if kind == GPT_2 and seq is not None and seq > longest:
        raise ValueError(f"seq={seq} is beyond n_positions={longest}; needs at most that many positions")
    model, others = described(config, longest if seq is None else seq)
    if others:
        raise ValueError(f"{others[0].text}: another computation than ours; try a model without it")
    return model


def names_of(model: ModelConfig, name: str) -> tuple[str, ...]:
    """Hugging Face's names of the tensors that make up our parameter `name`."""
    of = FORMATS[family(model)]
    if name in of["ends"]:
        return (of["ends"][name],)
    owner, _, last = name.rpartition(".")
    if owner in of["ends"]:
        return (f"{of['ends'][owner]}.{last}",)
    _, layer, part = owner.split(".", 2)
    stem, parts = f"{of['layer']}.{layer}", of["parts"][part]
    if ".experts." in name:
        return tuple(f"{stem}.{own.format(i)}.{last}" for i in range(model.experts) for own in parts)
    return tuple(f"{stem}.{own}.{last}" for own in parts)


def from_hugging_face(model: ModelConfig, tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """Convert Hugging Face's tensors to our parameters, by global name.

    Raises `ValueError` for a tensor that is missing or has another shape than the model's.
    """
    weights, heads = {}, (model.query_groups, -1, model.head_size)
    for parameter in chunk_parameters(model, range(model.layers), 1):
        name, names = parameter.name, names_of(model, parameter.name)
        if missing := [theirs for theirs in names if theirs not in tensors]:
            raise ValueError(f"tensor={missing[0]!r} is missing; needs all weights of the model in {CONFIG}")
        parts = [tensors[theirs] for theirs in names]
        if _is_transposed(model, name):
            parts = [part.T for part in parts]
        if ".attention.qkv." in name:
            parts = list(parts[0].chunk(3)) if len(parts) == 1 else parts
            row_shape = parts[0].shape[1:]  # [H] of a weight, [] of a bias
            whole = torch.cat([part.reshape(*heads, *row_shape) for part in parts], 1).reshape(-1, *row_shape)
        elif ".experts." in name:
            each = len(parts) // model.experts
            whole = torch.stack([_taking_turns(parts[i : i + each]) for i in range(0, len(parts), each)])
        elif len(parts) == 2:
            whole = _taking_turns(parts)
        else:
            whole = parts[0][: model.seq] if name == "embedding.position.weight" else parts[0]
        if whole.shape != parameter.shape:
            raise ValueError(f"{names[0]} makes {name} {list(whole.shape)}; needs {list(parameter.shape)} by {CONFIG}")
        weights[name] = whole
    return weights


def to_hugging_face(model: ModelConfig, weights: Mapping[str, torch.Tensor]) -> Tensors:
    """Convert our parameters, given whole and by global name, to Hugging Face's tensors."""
    tensors: Tensors = {}
    queries = model.heads // model.query_groups
    for name, whole in weights.items():
        names = names_of(model, name)
        if ".attention.qkv." in name:
            grouped = whole.reshape(model.query_groups, queries + 2, model.head_size, *whole.shape[1:])
            parts = [part.flatten(0, 2) for part in grouped.split((queries, 1, 1), 1)]
            parts = [torch.cat(parts)] if len(names) == 1 else parts
        elif ".experts." in name:
            parts = [part for matrix in whole for part in _apart(matrix, len(names) // model.experts)]
        elif len(names) == 2:
            parts = _apart(whole, 2)
        else:
            parts = [whole]
        if _is_transposed(model, name):
            parts = [part.T for part in parts]
        tensors |= {theirs: part.contiguous() for theirs, part in zip(names, parts, strict=True)}
    return tensors


def _taking_turns(parts: list[torch.Tensor]) -> torch.Tensor:
    """One matrix of gate and up, whose rows take turns; a single matrix as it is."""
    return torch.stack(parts, 1).flatten(0, 1)


def _apart(whole: torch.Tensor, parts: int) -> list[torch.Tensor]:
    """The matrices whose rows take turns: `_taking_turns` backwards."""
    return list(whole.unflatten(0, (-1, parts)).unbind(1))


def _is_transposed(model: ModelConfig, name: str) -> bool:
    """Whether a parameter is one of GPT-2's matrices [inputs, outputs] (of its class Conv1D); its tables are not."""
    return family(model) == GPT_2 and name.endswith(("projection.weight", "qkv.weight", "up.weight", "down.weight"))


def write(folder: Path, model: ModelConfig, weights: Mapping[str, torch.Tensor]) -> None:
    """Write `config.json` and `model.safetensors`. Raises `EngineUnavailableError` where that is not possible."""
    config = config_of(model) | {"torch_dtype": str(next(iter(weights.values())).dtype).removeprefix("torch.")}
    package = _package()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        package.save_file(to_hugging_face(model, weights), folder / WEIGHTS, metadata={"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise not_writable("out", folder, error) from None


def read(folder: Path, seq: int | None = None) -> tuple[ModelConfig, Tensors]:
    """The model of a folder with `config.json` and safetensors, and its parameters by our names.

    Raises `ValueError` for a folder that lacks one of the two, and for a model of no known kind.
    """
    try:
        model = model_of(_json(folder / CONFIG), seq)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:  # a field that is missing, or no number
        raise ValueError(f"{str(folder / CONFIG)!r} describes no model: {error!r}; needs all its sizes") from None
    tensors: Tensors = {}
    for file in _weight_files(folder):
        try:
            opening.open_regular(folder / file).close()
            tensors |= _package().load_file(folder / file)
        except Exception as error:  # OSError, or the package's own
            raise ValueError(f"{str(folder / file)!r} cannot be read: {error}; needs safetensors") from None
    if (needed := parameters(model)) > (held := sum(tensor.numel() for tensor in tensors.values())):
        raise ValueError(
            f"layers={model.layers}, hidden={model.hidden}, vocab={model.vocab} of {CONFIG} make {needed} parameters, "
            f"and its files hold {held}; needs all weights of the model"
        )
    if family(model) == GPT_2:  # published files may leave the prefix out
        tensors = {name if name.startswith("transformer.") else f"transformer.{name}": x for name, x in tensors.items()}
    return model, from_hugging_face(model, tensors)


def _weight_files(folder: Path) -> list[str]:
    """The names of the folder's files of weights. Raises `ValueError` for an index that names others."""
    if not (folder / INDEX).is_file():
        return [WEIGHTS]
    names = _json(folder / INDEX).get("weight_map")
    if not isinstance(names, dict) or not all(
        isinstance(name, str) and Path(name).name == name for name in names.values()
    ):
        raise ValueError(f"{str(folder / INDEX)!r} has no weight_map; needs the files of this folder, by tensor")
    return sorted(set(names.values()))


def _json(path: Path) -> dict[str, Any]:
    """Read a JSON file. Raises `ValueError` if that is not possible."""
    try:
        content = read_json(path)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} {error}; needs a folder with {CONFIG} and {WEIGHTS}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{str(path)!r} holds no object; needs a folder with {CONFIG} and {WEIGHTS}")
    return content


def _package() -> Any:
    """The package's module for torch. Raises `EngineUnavailableError` where it is not installed."""
    if importlib.util.find_spec("safetensors") is None:
        raise EngineUnavailableError(missing("safetensors"))
    import safetensors.torch

    return safetensors.torch
