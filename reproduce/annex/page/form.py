"""The fields of a configuration as the page's form has them: groups, words for people, letters and units.

What a field is and may be comes from its definition (`ptdp_core.config`).
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field
from dataclasses import fields as dataclass_fields
from functools import cache
from math import floor, log10
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.fields import LARGEST, smallest
from ptdp_core.schedules import names
from ptdp_core.simulator.cluster import ClusterParameter


class Label(NamedTuple):
    """What the form calls a field: words, the paper's letter if it has one, and the unit if it has one."""

    words: str
    letter: str = ""
    unit: str = ""


GROUPS: Mapping[str, Mapping[str, Label]] = {
    "Layout": {
        "p": Label("Pipeline stages", "p", "GPUs"),
        "t": Label("Tensor parallelism", "t", "GPUs"),
        "d": Label("Data parallelism", "d", "replicas"),
        "B": Label("Batch size", "B", "sequences"),
        "b": Label("Microbatch size", "b", "sequences"),
        "c": Label("Context parallelism", "c", "GPUs"),
        "e": Label("Expert parallelism", "e", "GPUs"),
        "etp": Label("Tensor ranks of an expert", "", "GPUs"),
    },
    "Schedule": {
        "schedule": Label("Pipeline schedule"),
        "v": Label("Model chunks on a GPU", "v"),
        "pipeline_layout": Label("Layers of the stages"),
    },
    "Techniques": {
        "recompute": Label("Recomputation"),
        "checkpoint_layers": Label("Recomputed together", "", "layers"),
        "distribute_checkpointed_activations": Label("Kept inputs shared by tensor ranks"),
        "sequence_parallel": Label("Sequence parallelism"),
        "data_parallel": Label("Gradient reduction"),
        "sharded_optimizer": Label("Sharded optimizer (ZeRO-1)"),
        "scatter_gather": Label("Scatter/gather messages"),
        "fused": Label("Fused operators"),
        "attention": Label("Attention"),
        "fp8_recipe": Label("FP8 for linears"),
        "context_exchange": Label("Exchange of context parallelism"),
        "capacity_factor": Label("Capacity of an expert"),
        "expert_imbalance": Label("Imbalance of experts"),
    },
    "Model": {
        "layers": Label("Layers", "l"),
        "hidden": Label("Hidden size", "h"),
        "heads": Label("Attention heads", "a"),
        "seq": Label("Sequence length", "s", "tokens"),
        "vocab": Label("Vocabulary", "V", "tokens"),
        "kv_heads": Label("Key/value heads"),
        "ffn_hidden": Label("Width of the MLP"),
        "activation": Label("Activation"),
        "norm": Label("Normalisation"),
        "positions": Label("Positions"),
        "rope_theta": Label("Rotary base", "θ"),
        "tied_embeddings": Label("Tied embeddings"),
        "bias": Label("Biases"),
        "head_dim": Label("Size of a head"),
        "qk_norm": Label("Normalised queries and keys"),
        "experts": Label("Experts", "E"),
        "experts_per_token": Label("Experts of a token", "k"),
        "expert_ffn_hidden": Label("Width of an expert"),
        "shared_expert_ffn_hidden": Label("Width of the shared expert"),
        "dense_layers": Label("Layers without experts"),
        "kv_latent": Label("Latent of keys and values"),
        "query_latent": Label("Latent of queries"),
        "rotary_dim": Label("Turned part of a head"),
        "mtp_layers": Label("Layers of multi-token prediction"),
        "router": Label("Router"),
        "auxiliary_loss": Label("Balancing loss"),
    },
}
ACRONYMS = {
    "allreduce": "all-reduce",
    "gemm": "GEMM",
    "gpus": "GPUs",
    "hca": "HCA",
    "nvlink": "NVLink",
    "p2p": "point-to-point",
    "zero3": "ZeRO-3",
}
PREFIXED = ("B", "B/s", "FLOP/s", "s")
PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
LABELS = {name: label for group in GROUPS.values() for name, label in group.items()}


@cache
def offered() -> dict[str, dict[str, Any]]:
    """Every field by name, in the order of the form: group, words, and what its definition says."""
    defined = {field.name: field for part in (ModelConfig, ParallelConfig) for field in dataclass_fields(part)}
    return {
        name: {"group": group, **label._asdict(), **_definition(defined[name])}
        for group, labels in GROUPS.items()
        for name, label in labels.items()
    }


def _definition(field: Field[Any]) -> dict[str, Any]:
    """The sentence, default and range of a field; `most` is None where it is no smaller than what numbers can count."""
    most = field.metadata["most"]
    return {
        "sentence": field.metadata["description"],
        "default": None if field.default is MISSING else field.default,
        "choices": ("", *names()) if field.name == "schedule" else field.metadata["choices"] or None,
        "least": smallest(field),
        "most": None if most == LARGEST else most,
        "whole": int in (field.type, type(field.default)),
    }


def shown(value: object) -> str:
    """A field's value in words."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value or "default")


def number_words(name: str) -> str:
    """What the page calls a number of a cluster."""
    words = " ".join(ACRONYMS.get(word, word) for word in name.split("_"))
    return words[0].upper() + words[1:]


def prefixed(number: ClusterParameter) -> tuple[str, float]:
    """The unit that a number is shown in, and how many of its own units that is: TFLOP/s and 1e12."""
    if number.unit not in PREFIXED or not number.value:
        return ("" if number.unit in ("1", "count") else number.unit), 1.0
    power = min(max(floor(log10(abs(number.value)) / 3), -3), 5)
    return PREFIXES[power] + number.unit, 10.0 ** (3 * power)


def number_shown(number: ClusterParameter) -> str:
    """A number of a cluster with its unit, in a sentence."""
    unit, factor = prefixed(number)
    return f"{number.value / factor:g} {unit}".strip()
