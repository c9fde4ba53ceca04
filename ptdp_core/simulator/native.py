"""The compiled form of the simulator's inner loops, where it was built (`native.c`).

An installation builds it if the machine has a C compiler. In a browser, or where there is no compiler, everything runs
in Python, with the same result to the picosecond, and more slowly. PTDP_NATIVE=0 chooses Python; `why_in_python` says
where Python runs and why: `reproduce doctor`, `plan` and `predict` print it.

What each part is worth, in processor time of one core (300 random points of `bench run simulator_rate`; tables of 4 to
32 ranks): to execute and settle, 14 ms in place of 360; to compile their tables, 0.16 s in place of 1.8, with which a
cold point takes 1.4 ms in place of 8; to derive exchanges, 1 to 10 ms a table in place of 30 to 560. Fronts of the
stash, which a formula gives or Python in the time of a table, are not compiled.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol, cast

from ptdp_core.schedules import Definition


class Native(Protocol):
    """What `native.c` offers. Both functions return None for what they cannot do; Python then does it, or says why."""

    def compile(
        self, ranks: tuple[tuple[Any, ...], ...], rank_of: tuple[int, ...], m: int, exchanges: str, q: int, /
    ) -> object | None:
        """A schedule's table as a program.

        `rank_of` is the rank of each stage, q the number of microbatches of a period, 0 if there is none.
        """

    def execute(
        self,
        program: object,
        forward: Sequence[int],
        backward: Sequence[int],
        weight_gradient: Sequence[int],
        alone: Sequence[int],
        shared: Sequence[int],
        gather: int,
        exchange: int,
        /,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int | None] | None:
        """The end of each rank, the time of its exchanges, that of a period; and a period's length if it settles.

        The costs are those of `executor.Costs`, in picoseconds.
        """


def _load() -> tuple[Native | None, str]:
    """The compiled loops, or why there are none, and what to do."""
    if os.environ.get("PTDP_NATIVE") == "0":
        return None, "PTDP_NATIVE=0 turns the compiled loops off; unset it"
    try:
        loaded: Any = import_module("_ptdp_native")
    except ImportError as error:
        return None, f"the compiled loops were not built ({error}); install again where there is a C compiler"
    return cast(Native, loaded), ""


_chosen = [_load()]


def native() -> Native:
    """The compiled loops, where no `why_in_python` says that there are none."""
    loops, why = _chosen[-1]
    assert loops is not None, why
    return loops


def why_in_python(schedule: Definition | None = None) -> str:
    """Why Python executes a schedule, or all of them, in a few words; empty if the compiled loops do.

    They leave times beyond 64 bits to Python in any case.
    """
    if schedule is not None and (schedule.fuses or schedule.vocabulary):
        return "fused pairs" if schedule.fuses else "a shared vocabulary"
    return _chosen[-1][1]


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within it everything runs in Python: to compare the two, and to count what Python executes."""
    _chosen.append((None, "the compiled loops are turned off, as where there is no C compiler"))
    try:
        yield
    finally:
        _chosen.pop()
