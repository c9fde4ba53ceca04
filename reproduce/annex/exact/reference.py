"""Reads and writes the committed values: a JSON file per section, with a line per quantity so that diffs read well."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduce.annex.exact.entries import KINDS, NEW_OR_GONE, Quantities, Section
from results import ROOT
from results.records.errors import InvalidResultsError
from results.records.storage import atomic_write_bytes, json_lines

FORMAT = "ptdp-exact/1"
FOLDER = ROOT / "results" / "reference" / "exact"
ACCEPT = "reproduce gate exact --accept"


def write(name: str, section: Section, folder: Path | None = None) -> Path:
    """Write a section's values, whole or not at all, and return the file's path. Raises `StorageError`."""
    path = (folder or FOLDER) / f"{name}.json"
    entries = {label: entry.quantities for label, entry in section.items()}
    document = {"format": FORMAT, "section": name, "entries": entries}
    atomic_write_bytes(path, (json_lines(document, 4) + "\n").encode())
    return path


def read(name: str, folder: Path | None = None) -> Mapping[str, Quantities]:
    """The committed quantities of a section, by entry. Raises `InvalidResultsError` if there are none."""
    path = (folder or FOLDER) / f"{name}.json"
    place = shown(path)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InvalidResultsError(f"{place}: there is no reference; {ACCEPT} writes it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidResultsError(f"{place}: cannot be read: {error}; {ACCEPT} writes it anew") from None
    if problem := _problem(document, name):
        raise InvalidResultsError(f"{place}: {problem}; {ACCEPT} writes it anew")
    entries: Mapping[str, Quantities] = document["entries"]
    return entries


def shown(path: Path) -> str:
    """A path as messages print it: relative to the project's root if it is below it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _problem(document: Any, name: str) -> str:
    """What is wrong with a parsed reference file; empty if nothing is."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        value = document.get("format") if isinstance(document, dict) else type(document).__name__
        return f"format={value!r}; needs {FORMAT!r}"
    if document.get("section") != name:
        return f"section={document.get('section')!r}; needs {name!r}"
    entries = document.get("entries")
    if not isinstance(entries, dict) or not entries:
        return "it has no entries"
    for entry, kinds in entries.items():
        if not isinstance(kinds, dict) or not kinds.keys() <= KINDS.keys() - {NEW_OR_GONE}:
            return f"entry {entry!r} has no quantities by kind ({', '.join(list(KINDS)[1:])})"
        for kind, quantities in kinds.items():
            for quantity, value in quantities.items() if isinstance(quantities, dict) else [(kind, None)]:
                if not _is_value(value):
                    return f"entry {entry!r}, {quantity!r}: {value!r} is no value"
    return ""


def _is_value(value: Any) -> bool:
    """Whether a parsed JSON value is a `Value`: a number, a text, or a list of whole numbers or of texts."""
    if isinstance(value, list):
        return bool(value) and (
            all(type(item) is int for item in value) or all(isinstance(item, str) for item in value)
        )
    return isinstance(value, int | float | str) and not isinstance(value, bool)
