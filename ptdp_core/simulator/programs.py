"""Training programs as data: one file each (`programs/*.toml`), with what it does, what it cannot do, and its numbers.

A cluster's file names the program that runs there unless another is asked for. A program's file has a `title`, the
`software` that it switches on, a `source`, `[defaults]` for fields of a configuration that a point leaves open, and may
have `[lacks]`, fields that have to keep their usual values, each with the reason, and `[numbers]` of its host and its
libraries, which replace the cluster's. `[[until]]` says what was otherwise until a release: a program may be named with
one, as `megatron-bridge@26.04`, and is its newest without.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator.software import Software, software_of

PROGRAM_FOLDER = Path(__file__).parent / "programs"
NEWEST = "99"
USUAL: Mapping[str, Any] = {item.name: item.default for part in (ModelConfig, ParallelConfig) for item in fields(part)}


@dataclass(frozen=True)
class TrainingProgram:
    """A training program: its switches, the numbers of its host and libraries, its defaults, the fields it lacks."""

    name: str
    title: str
    source: str
    software: Software
    numbers: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)

    def with_defaults(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """A point with the program's defaults where it says nothing."""
        return {**self.defaults, **entry}

    def check(self, config: TrainingConfig) -> None:
        """Raise ConfigurationError for a technique that the program does not have."""
        plain = config.to_plain()
        for name, reason in self.lacks.items():
            if (value := plain.get(name, USUAL[name])) != USUAL[name]:
                raise ConfigurationError(
                    f"{name}={value!r} with program={self.name!r}, {reason}; needs {name}={USUAL[name]!r}; try "
                    "program='megatron-core'"
                )


def program_names() -> list[str]:
    """The programs there are."""
    return sorted(path.stem for path in PROGRAM_FOLDER.glob("*.toml"))


@cache
def load_program(name: str) -> TrainingProgram:
    """The program of this name, or of one of its releases. Raises ConfigurationError for a name that is none."""
    known, (stem, _, release) = program_names(), str(name).partition("@")
    if stem not in known:
        near = get_close_matches(stem.lower(), known, n=1) or ["megatron-core"]
        raise ConfigurationError(f"program={name!r} is unknown; needs one of {', '.join(known)}; try {near[0]}")
    entry = tomllib.loads((PROGRAM_FOLDER / f"{stem}.toml").read_text(encoding="utf-8"))
    software, defaults = set(entry["software"]), entry.get("defaults", {})
    for change in entry.get("until", ()):
        if (release or NEWEST) < change["release"]:
            software = software - set(change.get("off", ())) | set(change.get("on", ()))
            defaults = defaults | change.get("defaults", {})
    numbers = {number: value["value"] for number, value in entry.get("numbers", {}).items()}
    switches = software_of(sorted(software))
    return TrainingProgram(name, entry["title"], entry["source"], switches, numbers, defaults, entry.get("lacks", {}))
