"""Sizes for which each registered schedule exists: what generic tests run over, so that a new schedule is in them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from ptdp_core.schedules import Program, Schedule, definition, exists, names

Rows = TypeVar("Rows", Schedule, Program)

PS, MS = range(1, 9), range(1, 25)

Size = tuple[str, int, int, int]  # schedule, p, m, v


def existing(name: str, ps: Iterable[int] = PS, ms: Iterable[int] = MS, most_v: int = 4) -> list[Size]:
    """Every (name, p, m, v) of these p and m, with v up to `most_v` (or the least there is), that exists."""
    least, most = definition(name).chunks
    vs = range(least, min(most or most_v, max(most_v, least)) + 1)
    return [(name, p, m, v) for p in ps for m in ms for v in vs if exists(name, p, m, v)]


def sizes(ps: Iterable[int] = PS, ms: Iterable[int] = MS, most_v: int = 4) -> st.SearchStrategy[Size]:
    """Any schedule at any size that exists; each schedule as often as the others."""
    return st.one_of([st.sampled_from(existing(name, ps, ms, most_v)) for name in names()])


def texts(schedule: Schedule) -> list[str]:
    """The actions of each rank, as text."""
    return [" ".join(map(str, actions)) for actions in schedule.ranks]


def with_row(rows: Rows, rank: int, row: Iterable) -> Rows:
    """A schedule or a program with another row of one rank."""
    return replace(rows, ranks=(*rows.ranks[:rank], tuple(row), *rows.ranks[rank + 1 :]))
