"""Plain parameters that describe a training configuration: which there are, and what they describe."""

import json
from collections.abc import Mapping
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING, Any

from ptdp_core.config import KEYS_ELSEWHERE, ModelConfig, ParallelConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import choices
from results.records.errors import did_you_mean

if TYPE_CHECKING:
    from ptdp_core.engine.settings import Settings

Scalar = int | float | str | bool | None

KEYS = (*(field.name for part in (ModelConfig, ParallelConfig) for field in fields(part)), "cluster", "label")
REQUIRED = ("layers", "hidden", "heads", "B")


def ranks_of(parameters: Mapping[str, Any]) -> int:
    """Ranks of a configuration: n = p*t*d."""
    return prod(parameters.get(size, 1) for size in "ptd")


def settings_of(parameters: Mapping[str, Any]) -> "Settings":
    """The engine's settings that a point's parameters name; others do not matter. Raises ConfigurationError."""
    from ptdp_core.engine.settings_file import FIELDS, from_mapping

    sections: dict[str, dict[str, Any]] = {}
    for name, value in parameters.items():
        if name in FIELDS:
            sections.setdefault(FIELDS[name], {})[name] = value
    return from_mapping(sections)


def check_keys(entry: Any) -> None:
    """Raise ConfigurationError, naming the key, unless `entry` is an object with a point's keys and no others."""
    if not isinstance(entry, dict):
        raise ConfigurationError(f"found {json.dumps(entry)[:60]}; needs an object with the keys {', '.join(REQUIRED)}")
    for key in entry:
        if key not in KEYS:
            hint = KEYS_ELSEWHERE.get(key) or did_you_mean(key, KEYS)[2:] or f"known: {', '.join(KEYS)}"
            raise ConfigurationError(f"unknown key {key!r}; {hint}")
    if missing := [key for key in REQUIRED if key not in entry]:
        raise ConfigurationError(f"missing {', '.join(map(repr, missing))}; needs at least {', '.join(REQUIRED)}")
    for key in ("cluster", "label"):
        if not isinstance(entry.get(key, ""), str):
            raise ConfigurationError(f"{key}={entry[key]!r} is not text; needs a name in quotes")
    for key in ("schedule", "recompute", "data_parallel"):
        if key in entry and (not isinstance(entry[key], str) or not entry[key]):
            needed = " or ".join(choices(ParallelConfig).get(key, ("text in quotes",)))
            raise ConfigurationError(f"{key}={entry[key]!r} is not a name; needs {needed}, or leave it out")
