"""The settings of a run as sections of plain values: from TOML, from `name=value`, and back.

A section is one class of `settings.py`. Every field name belongs to one section only, so `--set p=2` needs no section's
name.
"""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ptdp_core.config import KEYS_ELSEWHERE, ModelConfig, ParallelConfig
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, RunSettings, Settings
from ptdp_core.errors import ConfigurationError
from results import opening

SECTIONS: dict[str, Any] = {
    "model": ModelConfig,
    "parallel": ParallelConfig,
    "engine": EngineSettings,
    "optimizer": OptimizerSettings,
    "run": RunSettings,
}
FIELDS = {f.name: section for section, cls in SECTIONS.items() for f in dataclasses.fields(cls)}


def from_mapping(sections: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Settings from {section: {field: value}}, as TOML gives it. Raises `ConfigurationError` for unknown names."""
    parts = {}
    for section, values in sections.items():
        if section not in SECTIONS or not isinstance(values, Mapping):
            raise _unknown("section", section, SECTIONS)
        names = {f.name for f in dataclasses.fields(SECTIONS[section])}
        for name in values:
            if name not in names:
                raise _unknown("field", name, names)
        required = [f.name for f in dataclasses.fields(SECTIONS[section]) if f.default is dataclasses.MISSING]
        if missing := [name for name in required if name not in values]:
            raise ConfigurationError(
                f"section={section!r} lacks {', '.join(missing)}; needs {', '.join(required)}; try a recipe"
            )
        parts[section] = SECTIONS[section](**values)
    if "model" not in parts:
        raise ConfigurationError(
            "section='model' is missing; needs layers, hidden and heads; try a recipe, or [model] in the file"
        )
    return Settings(**parts)


def to_mapping(settings: Settings) -> dict[str, dict[str, Any]]:
    """Settings as {section: {field: value}}: the inverse of `from_mapping`."""
    return {section: dataclasses.asdict(getattr(settings, section)) for section in SECTIONS}


def read(path: str | Path) -> dict[str, dict[str, Any]]:
    """The sections of a TOML file. Raises `ConfigurationError` if it cannot be read, or a field has no section."""
    try:
        sections = tomllib.loads(opening.read_text(path, opening.TOML))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigurationError(
            f"config={str(path)!r} cannot be read: {reason}; needs a TOML file; try --recipe tiny"
        ) from error
    for section, values in sections.items():
        if not isinstance(values, dict):
            raise ConfigurationError(
                f"{section}={values!r} in {str(path)!r} stands outside a section; needs [model], [parallel], [engine], "
                f"[optimizer] or [run] above it; try [{FIELDS.get(section, 'model')}]"
            )
    return sections


def override(sections: dict[str, dict[str, Any]], assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The sections with `name=value` texts applied; a value that is not valid TOML is taken as plain text.

    Setting v without a schedule resets the schedule to v's default. Raises `ConfigurationError` for unknown names.
    """
    out = {section: dict(values) for section, values in sections.items()}
    for text in assignments:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise ConfigurationError(f"set={text!r} assigns nothing; needs name=value; try --set p=2")
        if name not in FIELDS:
            raise _unknown("field", name, FIELDS)
        try:
            parsed = tomllib.loads(f"x = {value.strip()}")["x"]
        except (tomllib.TOMLDecodeError, RecursionError):
            parsed = value.strip()
        out.setdefault(FIELDS[name], {})[name] = parsed
    changed = {text.partition("=")[0].strip() for text in assignments}
    if "v" in changed and "schedule" not in changed:
        out["parallel"].pop("schedule", None)  # ParallelConfig chooses it from v
    return out


def _unknown(what: str, name: str, known: Any) -> ConfigurationError:
    if name in KEYS_ELSEWHERE:
        return ConfigurationError(f"{what}={name!r} is unknown; {KEYS_ELSEWHERE[name]}")
    close = get_close_matches(name, list(known), n=1)
    fix = f"try {close[0]!r}" if close else "try --help, which has all"
    needs = ", ".join(f"[{section}]" for section in SECTIONS) if what == "field" else ", ".join(known)
    return ConfigurationError(f"{what}={name!r} is unknown; needs one of {needs}; {fix}")
