"""The list of the benchmarks, the rows of benchmark_list.toml; and where their records are."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.records import PointResult, Record

FOLDER = "benchmarks"  # the folder of benchmarks' records, below the folder of results
CANARY = "canary"  # the series of the canaries' points
NOT_QUIET = "The machine was not quiet"  # the beginning of the note that says that the canaries differ


@dataclass(frozen=True)
class Benchmark:
    """A row of the list, a module of the annex `bench`; the file says what its fields are."""

    name: str
    title: str
    columns: Sequence[str]
    section: str | None = None
    uses_device: bool = True
    panels: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()


BENCHMARKS = {
    name: Benchmark(name, **row)
    for name, row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


def record_path(results: Path, name: str) -> Path:
    """The path of a benchmark's record."""
    return results / FOLDER / name / "record.json"


def results_of(record: Record) -> list[PointResult]:
    """The points of a benchmark's record without the canaries'."""
    return [point for point in record.points if point.series != CANARY]
