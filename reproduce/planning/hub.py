"""Models of Hugging Face's hub: well-known ones by name, others by their `config.json`. Imports no torch."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.config import ModelConfig
from reproduce.planning.config_json import Missing, described
from results import opening
from results.records.errors import UsageError

SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
KNOWN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def whole(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A known model's fields, beneath them those of the family that it is `like`."""
    family = whole(KNOWN["families"][entry["like"]]) if "like" in entry else {}
    return family | {key: value for key, value in entry.items() if key not in ("like", "sizes")}


# The known configurations by name, as the hub has them.
CONFIGS = {
    name: dict(zip(SIZES, entry["sizes"], strict=True)) | {"tie_word_embeddings": False} | whole(entry)
    for name, entry in KNOWN["models"].items()
}
SUFFIX = re.compile(r"-(?:hf|instruct|chat|base|it|pt|thinking|v0\.[13]|\d{4}|\d+k)$")  # of tunings and releases


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
    while SUFFIX.search(short) and short not in CONFIGS:
        short = SUFFIX.sub("", short)
    return KNOWN["other_names"].get(short, re.sub(r"^llama-?(\d)(\.1)?-", r"llama-\1-", short))


def is_file(name: str) -> bool:
    """Whether a model is given by its `config.json`, or the folder that has it."""
    return name.endswith(".json") or os.path.exists(Path(name) / "config.json")


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
