"""The data of the exact checks: sections of entries (a point, a schedule, a case), each with quantities by kind.

What is simulated and trained are rows of tables, `simulated.toml` and `engine.toml`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.config import ParallelConfig
from results import ROOT

OURS = tuple(f"{ROOT / package}/" for package in ("kernels", "ptdp_core"))  # whose functions are counted
SECTIONS = (
    *("simulated", "schedules", "growth", "planner", "layout", "startup", "page", "artifacts"),
    *("engine", "counts", "resources"),
)


def tables(name: str) -> dict[str, Any]:
    """The tables of a file beside this one, such as a section's cases."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


class Kind(NamedTuple):
    """A kind of quantities: how headlines begin, whether values are texts that count several things, a unit of work.

    A text such as '4 clone bf16, 12 mm bf16' is compared by what it counts. What has a unit may move between functions.
    """

    title: str
    counted: bool = False
    unit: str = ""


KINDS = {name: Kind(**row) for name, row in tables("kinds").items()}
NEW_OR_GONE, *_ = KINDS
UNITS = {kind: of.unit for kind, of in KINDS.items() if of.unit}  # the most telling one first

PROBLEM = "cannot run"  # the name of the only quantity of an entry that cannot run; the value says why

Scalar = int | float | str
Value = Scalar | list[int] | list[str]
Quantities = Mapping[str, Mapping[str, Value]]  # by kind, by name


@dataclass(frozen=True)
class Entry:
    """The quantities of one entry, by kind and name; a list has one item per rank.

    `schedule` names the table of actions that the entry runs ('' for none), and `shards` is the number of parts into
    which scatter/gather would cut its boundary tensors. Both serve only to explain differences.
    """

    quantities: Quantities = field(default_factory=dict)
    schedule: str = ""
    shards: int = 1

    @property
    def problem(self) -> str:
        """Why the entry could not run, such as a deadlock of its schedule; empty if it could."""
        return str(self.quantities.get("order", {}).get(PROBLEM, ""))


Section = Mapping[str, Entry]  # by name


def schedule_name(schedule: str, p: int, m: int, v: int) -> str:
    """The name of a schedule's table."""
    return f"{schedule} p={p} m={m} v={v}"


def schedule_of(parallel: ParallelConfig) -> str:
    """The name of the schedule's table that a configuration runs; '' for ZeRO-3, which has no pipeline."""
    if parallel.data_parallel == "zero3":
        return ""
    return schedule_name(parallel.schedule, parallel.p, parallel.m, parallel.v)


def shards_of(parallel: ParallelConfig) -> int:
    """The number of parts into which scatter/gather cuts a boundary tensor, were it on (Section 4.1)."""
    return parallel.t if parallel.p > 1 else 1


Case = dict[str, Any]  # a row: fields of a configuration


def model_of(models: Mapping[str, Case], name: str) -> Case:
    """The fields of a model; those that it has not itself are those of the model that it is `like`."""
    of_other = model_of(models, like) if (like := models[name].get("like")) else {}
    return of_other | {key: value for key, value in models[name].items() if key != "like"}
