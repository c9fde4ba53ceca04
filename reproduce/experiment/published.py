"""The paper's numbers, from `published.json`: facts of the paper, each with how it was read."""

import json
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.records import PaperValue

FILE = Path(__file__).with_name("published.json")


@cache
def _document() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def artifact(id: str) -> MappingProxyType[str, Any]:
    """An artifact's entry: 'config', 'series' or 'rows', ... Raises KeyError if the paper gives none."""
    return MappingProxyType(_document()["artifacts"][id])


def constants() -> MappingProxyType[str, Any]:
    """What all experiments of the paper share: sequence length, vocabulary, peak FLOP/s, GPUs per node."""
    return MappingProxyType(_document()["constants"])


def series(id: str, x: str, unit: str, factor: float = 1.0, how: str = "plot") -> dict[str, dict[Any, PaperValue]]:
    """A figure's points in the paper: series -> x -> value in `unit`, `factor` times the published.

    `x` is the name of the x value in the file: a number, a text, or a pair of parallel sizes, here as a tuple.
    """
    entry = artifact(id)
    quantum = entry.get("quantum")
    step = None if quantum is None else quantum * factor
    return {
        line["name"]: {
            tuple(point[x]) if isinstance(point[x], list) else point[x]: PaperValue(
                point["y"] * factor, unit, how, quantum=step
            )
            for point in line["points"]
        }
        for line in entry.get("series") or ()
    }
