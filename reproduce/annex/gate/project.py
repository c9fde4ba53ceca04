"""What a project has the gate measure: `[tool.ptdp.gate]` of its pyproject.toml."""

import re
import runpy
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from results.records.errors import UsageError, did_you_mean

ALLOCATIONS = "allocations"  # all that is compared with these `counts`
KEYS: dict[str, tuple[Any, str]] = {  # of the table: the type, and what a value has to be
    "workloads": (dict, 'a table, name = "module:function"'),
    "counts": ((bool, str), 'true, false, or "allocations" for these alone, and no times'),
    "build": (str, "a text, a command that builds a tree's extension modules there"),
    "packages": (list, 'a list of modules to import first, such as ["a"]'),
    "suite": (list, 'a list of the usual workloads, such as ["a"]'),
    "sources": (list, 'a list of what must be committed, such as ["a"]'),
    "exact": (str, "a text, a module to run with its arguments"),
    "slowed": (str, "a text, a patch that makes head slower"),
}
KINDS = {"function": "module:name", "command": "a line for the shell", "pytest": "a test's id", "adapter": "module"}
FUNCTION = re.compile(r"[\w.]+:[\w.]+")


@dataclass(frozen=True)
class Project:
    """A git checkout, its workloads by name, the usual ones of them, and what else the gate does there.

    With `exact`, a module and its arguments, head's own exact checks are run; else base's and head's `counts` are
    compared, unless False, or allocations alone. With `slowed`, a patch, trials measure a head that it slows down, else
    one whose iterations are stretched. Only files of `sources` have to be committed, if any are named. `build` is the
    command that builds a tree's extension modules.
    """

    folder: Path
    workloads: Mapping[str, Mapping[str, Any]]
    suite: tuple[str, ...]
    counts: bool | str = True
    exact: str = ""
    slowed: str = ""
    sources: tuple[str, ...] = ()
    build: str = ""


def of(folder: Path, names: Sequence[str]) -> Project:
    """The project in a folder with its workloads of these names, or with its suite; or with tests, if these are ids.

    Raises `UsageError` for an unknown name.
    """
    if names and all("::" in name or name.endswith(".py") for name in names):
        return replace(read(folder, names), exact="", slowed="")
    project = read(folder)
    known = project.workloads
    if unknown := [name for name in names if name not in known]:
        near = did_you_mean(unknown[0], tuple(known))
        raise UsageError(f"unknown benchmark {unknown[0]!r}{near}; there are {', '.join(known)}")
    return replace(project, workloads={name: known[name] for name in names or project.suite})


def read(folder: Path, tests: Sequence[str] = ()) -> Project:
    """The project in a folder. With the ids of `tests` these are its workloads, and no table is needed.

    Raises `UsageError` for a table that says nothing, or something else than it may.
    """
    file = folder / "pyproject.toml"
    if not folder.is_dir():
        raise UsageError(f"--project {folder} is no folder; needs a git checkout; try --project .")
    if not file.exists() and not tests:
        needed = "one with [tool.ptdp.gate.workloads] (docs/gate.md), or tests; try --benchmark FILE.py::TEST"
        raise UsageError(f"{file} is not there; needs {needed}")
    table = _table(file) if file.exists() or not tests else {}
    if tests:
        table["workloads"] = {name: {"pytest": name} for name in tests}
    if not table.get("workloads"):
        _require_known(table, file)
        raise UsageError(f'{file} has no [tool.ptdp.gate.workloads]; needs one line for each: name = "module:function"')
    if isinstance(script := table["workloads"], str):
        try:
            table["workloads"] = runpy.run_path(str(folder / script))["WORKLOADS"]
        except Exception as error:
            why = f"{script!r} cannot be run: {error!r}; needs a script with WORKLOADS"
            raise UsageError(f"{file}: workloads={why}") from None
    _require_known(table, file)
    packages = table.get("packages", [])
    workloads = {
        name: {"packages": packages, **_workload(entry, f"{file}: workload {name}")}
        for name, entry in table["workloads"].items()
    }
    suite = tuple(tests or table.get("suite", workloads))
    if unknown := [name for name in suite if name not in workloads]:
        raise UsageError(f"{file}: suite: {unknown[0]!r} is no workload{did_you_mean(unknown[0], list(workloads))}")
    said = {key: table[key] for key in ("counts", "build", "exact", "slowed") if key in table}
    return Project(folder, workloads, suite, sources=tuple(table.get("sources", ())), **said)


def _table(file: Path) -> dict[str, Any]:
    """`[tool.ptdp.gate]` of a pyproject.toml; empty if there is none. Raises `UsageError`."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("ptdp", {}).get("gate", {})
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{file} cannot be read: {error}; needs [tool.ptdp.gate.workloads]") from None
    if not isinstance(table, dict):
        raise UsageError(f"{file}: tool.ptdp.gate={table!r}; needs a table")
    return table


def _require_known(table: Mapping[str, Any], file: Path) -> None:
    """Raise `UsageError` for a key that is unknown, or whose value is none."""
    for key, value in table.items():
        if key not in KEYS:
            near = did_you_mean(key, tuple(KEYS))
            raise UsageError(f"{file}: tool.ptdp.gate.{key} is unknown{near}; known: {', '.join(KEYS)}")
        kind, needed = KEYS[key]
        texts = kind is not list or (value and all(isinstance(each, str) for each in value))
        unknown = key == "counts" and value not in (True, False, ALLOCATIONS)
        if not isinstance(value, kind) or not texts or unknown:
            raise UsageError(f"{file}: {key}={value!r}; needs {needed}")


def _workload(entry: Any, where: str) -> dict[str, Any]:
    """A workload as `workload.py` takes it."""
    if isinstance(entry, str):
        entry = {"function": entry}
    kinds = [kind for kind in KINDS if isinstance(entry, dict) and kind in entry]
    further = {"function": {"sizes"}, "adapter": set(entry)}.get(kinds[0], set()) if kinds else set()
    if len(kinds) != 1 or not entry.keys() <= {*kinds, *further}:
        known = ", or ".join(f'{{{kind} = "{what}"}}' for kind, what in KINDS.items())
        raise UsageError(f'{where} is {entry!r}; needs "module:function", or {known}')
    (kind,) = kinds
    if not isinstance(entry[kind], str) or (kind == "function" and not FUNCTION.fullmatch(entry[kind])):
        raise UsageError(f"{where}: {kind}={entry[kind]!r}; needs {KINDS[kind]}")
    sizes = entry.get("sizes", [1, 2])
    whole = isinstance(sizes, list) and [type(size) for size in sizes] == [int, int]
    if kind == "function" and not (whole and 0 < sizes[0] < sizes[1]):
        needed = "two whole numbers from 1 on, the second larger, such as [1000, 2000]"
        raise UsageError(f"{where}: sizes={sizes!r}; needs {needed}")
    return {"kind": kind, **({"test": entry[kind]} if kind == "pytest" else entry)}
