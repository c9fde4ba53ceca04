"""What the sections collect: entries (a point, a schedule, a case) with exact quantities of a few kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ptdp_core.config import ParallelConfig

SECTIONS = ("simulated", "schedules", "engine")

# In this order one explains the next: another order of actions sends other messages, those take other time. The first,
# an entry that is new or gone, is no kind of quantity.
KINDS = ("entries", "parameters", "order", "communication", "work", "memory", "time")

PROBLEM = "cannot run"  # the quantity of an entry that has no others: why

Scalar = int | float | str
Value = Scalar | list[int] | list[str]
Quantities = Mapping[str, Mapping[str, Value]]  # by kind, by name


@dataclass(frozen=True)
class Entry:
    """The quantities of one entry, by kind and name; a list has one item per rank.

    `schedule` names the table of actions the entry runs ('' for none), `shards` says into how many parts
    scatter/gather would cut its boundary tensors: both only to explain differences.
    """

    quantities: Quantities = field(default_factory=dict)
    schedule: str = ""
    shards: int = 1

    @property
    def problem(self) -> str:
        """Why the entry has no quantities, such as a schedule that deadlocks; empty if it has."""
        return str(self.quantities.get("order", {}).get(PROBLEM, ""))


Section = Mapping[str, Entry]  # by name


def schedule_name(schedule: str, p: int, m: int, v: int) -> str:
    """The name of a schedule's table."""
    return f"{schedule} p={p} m={m} v={v}"


def schedule_of(parallel: ParallelConfig) -> str:
    """The name of the table that a configuration runs; '' for ZeRO-3, which has no pipeline."""
    if parallel.data_parallel == "zero3":
        return ""
    return schedule_name(parallel.schedule, parallel.p, parallel.m, parallel.v)


def shards_of(parallel: ParallelConfig) -> int:
    """Into how many parts scatter/gather cuts a boundary tensor, whether it is on or not (Section 4.1)."""
    return parallel.t if parallel.p > 1 else 1
