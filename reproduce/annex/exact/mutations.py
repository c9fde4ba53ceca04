"""The mutation suite: does the exact check name a regression, and the function that has it?

    python -m reproduce.annex.exact.mutations [NAME ...]

It makes each change of `mutations.toml` in a copy of the sources, where the check of the change's sections has to print
one headline that contains all of its texts `named`, of a difference with its `values`. Two of them only move lines into
another function, and have to be said to do no more. Before that, the check of the unchanged copy must find nothing.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import ROOT
from results.records import errors

FILE = Path(__file__).with_suffix(".toml")
COPIED = (
    *("kernels", "ptdp_core", "benchmarks", "reproduce", "ptdp"),
    *("results/records", "results/schema", "results/reference"),
)


@dataclass(frozen=True)
class Mutation:
    """One regression: in `file`, `old` becomes `new`; some headline must hold every text of `named`.

    `values` are changes of that difference, such as 'Table 1, iteration ns: 5 -> 6'. `known_miss` says why the check
    cannot see it, if it cannot. With `alone` there must be no other headline.
    """

    name: str
    sections: list[str]
    file: str
    old: str
    new: str
    named: list[str]
    values: Sequence[str] = ()
    known_miss: str = ""
    alone: bool = False


def read() -> dict[str, Mutation]:
    """The mutations, by name."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))["mutation"]
    return {table["name"]: Mutation(**table) for table in tables}


def copy(folder: Path) -> None:
    """Copy what an exact check needs into a folder."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "results").glob("*.py"):
        shutil.copy(path, folder / "results")


def check(folder: Path, sections: Sequence[str]) -> dict[str, set[str]]:
    """Run an exact check of the copy, and return the changes by headline. Raises `RuntimeError` if it does not run."""
    process = subprocess.run(
        [sys.executable, "-m", "reproduce", "gate", "exact", *sections, "--json"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode not in (errors.DONE, errors.REGRESSED):
        raise RuntimeError(f"exit code {process.returncode}: {process.stderr.strip() or process.stdout.strip()}")
    return {
        each["headline"]: {_value(change) for change in (*each["changes"], *each["with_it"])}
        for each in json.loads(process.stdout)["differences"]
    }


def _value(change: Mapping[str, Any]) -> str:
    rank = "" if change["rank"] is None else f", rank {change['rank']}"
    return f"{change['entry']}{rank}, {change['name']}: {change['old']} -> {change['new']}"


def found(folder: Path, mutation: Mutation) -> dict[str, set[str]]:
    """Make a mutation in the copy, return what its check finds, and undo it.

    Raises `ValueError` if the file does not hold the text `old` exactly once.
    """
    path = folder / mutation.file
    source = path.read_text(encoding="utf-8")
    if source.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: {mutation.file} has {source.count(mutation.old)} times: {mutation.old}")
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        return check(folder, mutation.sections)
    finally:
        path.write_text(source, encoding="utf-8")


def naming(mutation: Mutation, report: Mapping[str, Collection[str]]) -> str:
    """The headline that names a mutation; empty if none does, or if others stand beside one that has to be alone."""
    if mutation.alone and len(report) > 1:
        return ""
    named = (line for line, changes in report.items() if set(mutation.values) <= set(changes))
    return next((line for line in named if all(text in line for text in mutation.named)), "")


def row(mutation: Mutation) -> str:
    """The row of a mutation in `docs/mutations.md`."""
    named = ", ".join(f"`{text.strip()}`" for text in mutation.named)
    return f"| {mutation.name} | {mutation.file} | {f'not named: {why}' if (why := mutation.known_miss) else named} |"


def _unnamed(mutation: Mutation, report: Collection[str]) -> str:
    return f"**not named**: {mutation.known_miss}" if mutation.known_miss else f"**MISSED**: {list(report)}"


def main(names: Sequence[str]) -> int:
    """Check the named mutations, or all, print what each is named as, and the seconds, and return the exit code."""
    mutations = read()
    if unknown := [name for name in names if name not in mutations]:
        print(f"mutations: {unknown[0]!r} is unknown; there are {', '.join(mutations)}", file=sys.stderr)
        return errors.USAGE
    chosen = [mutations[name] for name in names or mutations]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="ptdp-") as name:
        folder = Path(name)
        copy(folder)
        sections = sorted({section for mutation in chosen for section in mutation.sections})
        if named := check(folder, sections):
            print("not mutated, yet the check finds:", *named, sep="\n  ")
            return errors.REGRESSED
        for mutation in chosen:
            start = time.monotonic()
            named = found(folder, mutation)
            seconds = time.monotonic() - start
            line = naming(mutation, named)
            missed += not line and not mutation.known_miss
            print(f"| {mutation.name} | {line or _unnamed(mutation, named)} | {seconds:.0f} |", flush=True)
    print(f"{len(chosen)} mutations, {missed} missed unexpectedly")
    return errors.REGRESSED if missed else errors.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
