"""What a project has the gate measure: `[tool.ptdp.gate]` of its pyproject.toml, or this project's own workloads."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gate.workloads import SUITE, WORKLOADS
from results import ROOT
from results.records.errors import UsageError, did_you_mean

KEYS = ("workloads", "packages", "counts")
KINDS = {"function": "module:name", "command": "a line for the shell", "pytest": "a test's id"}
FUNCTION = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class Project:
    """A git checkout, its workloads by name, the usual ones of them, and how its exact counts are found.

    With `own_checks` head has exact checks of its own (`reproduce gate exact`); else `counts` says whether
    base's and head's are compared.
    """

    folder: Path
    workloads: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    suite: tuple[str, ...] = ()
    counts: bool = True
    own_checks: bool = False


OWN = Project(ROOT, WORKLOADS, SUITE, counts=False, own_checks=True)


def read(folder: Path) -> Project:
    """The project in a folder. Raises `UsageError` for one that says nothing, or something else than it may."""
    file = folder / "pyproject.toml"
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read: {error}; needs [tool.ptdp.gate.workloads]") from None
    if document.get("project", {}).get("name") == "ptdp":
        return OWN
    table = document.get("tool", {}).get("ptdp", {}).get("gate")
    if not isinstance(table, dict) or not table.get("workloads"):
        raise UsageError(f'{file} has no [tool.ptdp.gate.workloads]; needs one line for each: name = "module:function"')
    for key in table:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS)
            raise UsageError(f"{file}: tool.ptdp.gate.{key} is unknown{hint}; known: {', '.join(KEYS)}")
    packages, counts = table.get("packages", []), table.get("counts", True)
    if not isinstance(packages, list) or not all(isinstance(name, str) for name in packages):
        raise UsageError(f'{file}: packages={packages!r}; needs a list of modules to import first, such as ["numpy"]')
    if not isinstance(counts, bool):
        raise UsageError(f"{file}: counts={counts!r}; needs true or false")
    entries = table["workloads"]
    if not isinstance(entries, dict):
        raise UsageError(f'{file}: workloads={entries!r}; needs a table, name = "module:function"')
    made = {name: _workload(entry, f"{file}: workload {name}") for name, entry in entries.items()}
    return Project(folder, {name: {**each, "packages": packages} for name, each in made.items()}, tuple(made), counts)


def tests(folder: Path, ids: Mapping[str, str]) -> Project:
    """The project in a folder whose workloads are tests with a `benchmark` fixture, by name."""
    workloads = {name: {"kind": "pytest", "test": test} for name, test in ids.items()}
    return Project(folder, workloads, tuple(workloads))


def _workload(entry: Any, where: str) -> dict[str, Any]:
    if isinstance(entry, str):
        entry = {"function": entry}
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in KINDS:
        kinds = ", or ".join(f'{{{kind} = "{what}"}}' for kind, what in KINDS.items())
        raise UsageError(f'{where} is {entry!r}; needs "module:function", or {kinds}')
    ((kind, text),) = entry.items()
    if not isinstance(text, str) or (kind == "function" and not FUNCTION.fullmatch(text)):
        raise UsageError(f"{where}: {kind}={text!r}; needs {KINDS[kind]}")
    return {"kind": kind, ("test" if kind == "pytest" else kind): text}
