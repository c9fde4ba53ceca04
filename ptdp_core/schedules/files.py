"""Schedules of one's own, read from a file and checked.

.csv     torch.distributed.pipelining's table of computations
.py      a module with `SCHEDULE`, a `Definition`, or with `order(p, m, v)`, which gives each rank's passes as text
others   a line per rank, passes separated by blanks, comments after '#'
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ptdp_core.schedules.actions import Action, Schedule
from ptdp_core.schedules.checks import check_complete, check_groups, check_order, check_progress
from ptdp_core.schedules.definition import Definition, of_table
from ptdp_core.schedules.lowering import lower
from ptdp_core.schedules.program import MODES
from results import opening

# Names that end so are files wherever a schedule is named; a Python file, which is executed, on a command line only.
TABLES, PYTHON = (".csv", ".txt"), ".py"
SIZES = {"p": 4, "m": 8, "v": 1}  # of a schedule that is a function, where nothing says them


def read_schedule(path: Path, sizes: Mapping[str, int | None]) -> Schedule:
    """The table of a file, named like the file, checked: it is complete and runs in both ways of exchanging.

    A Python module is executed, and gives it for these `sizes` (p, m, v). Raises `ValueError` that names file, rank,
    action and cure.
    """
    try:
        if path.suffix == PYTHON:
            schedule = _from_module(path, {size: sizes.get(size) or usual for size, usual in SIZES.items()})
        else:
            text = opening.read_text(path, encoding="utf-8-sig")
            if path.suffix != ".csv":
                rows = (line.partition("#")[0].split() for line in text.splitlines())
                text = "\n".join(",".join(row) for row in rows if row)
            schedule = Schedule.from_csv(text, path.stem)
        check(schedule)
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError as error:  # also of text that is not UTF-8
        raise ValueError(f"{path}: {error}") from None
    return schedule


def read_definition(name: str) -> Definition:
    """The schedule of the table in the file `name`, called by that name, which exists for the table's own sizes only.

    Raises `ValueError` for what `read_schedule` finds wrong.
    """
    path = Path(name)
    return replace(of_table(replace(read_schedule(path, {}), name=name)), title=path.stem)


def execute_definition(name: str) -> Definition:
    """The `SCHEDULE` of the Python file `name`, called by that name. The file is executed.

    Raises `ValueError` for what `read_schedule` finds wrong, and for a module without a `Definition`.
    """
    path = Path(name)
    try:
        definition = _module(path).get("SCHEDULE")
    except OSError as error:
        raise _unreadable(path, error) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(definition, Definition):
        raise ValueError(
            f"{path}: no SCHEDULE in it; needs a Definition, which says for which sizes it exists; "
            f"try reproduce schedule {path} --export torch, and the schedule.csv that it writes"
        )

    @lru_cache(maxsize=64)
    def problem(p: int, m: int, v: int) -> str:
        try:
            check(_table(definition, p, m, v))
        except ValueError as error:
            return f"{path}: {error}"
        return ""

    return replace(definition, name=name, problem=problem)


def check(schedule: Schedule) -> None:
    """Raise `ValueError` unless the schedule is complete and runs, with its messages in one order on both sides."""
    check_complete(schedule)
    for mode in MODES:
        program = lower(schedule, mode)
        check_order(program)
        check_progress(program)
        if mode == "blocking":
            check_groups(program)


def _unreadable(path: Path, error: OSError) -> ValueError:
    return ValueError(
        f"cannot read {path}: {error.strerror}; needs a file with a schedule; try reproduce schedule, which shows "
        "those known by name"
    )


def _module(path: Path) -> dict[str, Any]:
    """What the file defines."""
    module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    source = opening.read_bytes(path)
    with _own_code():
        exec(compile(source, str(path), "exec"), module)
    return module


@contextmanager
def _own_code() -> Iterator[None]:
    """Whatever the user's code raises is an error of the file."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _from_module(path: Path, sizes: Mapping[str, int]) -> Schedule:
    module = _module(path)
    definition, order = module.get("SCHEDULE"), module.get("order")
    if isinstance(definition, Definition):
        return _table(definition, sizes["p"], sizes["m"], max(sizes["v"], definition.chunks[0]))
    if not callable(order):
        raise ValueError(
            "no SCHEDULE and no order in it; needs a Definition called SCHEDULE, or order(p, m, v); see docs/adding.md"
        )
    with _own_code():
        # A plain tuple is a pass; an `Action` or a `Fused` pair, tuples too, are written as they are.
        cells = [[Action(*each) if type(each) is tuple else each for each in row] for row in order(*sizes.values())]
        rows = [",".join(map(str, row)) for row in cells]
    return Schedule.from_csv("\n".join(rows), path.stem)


def _table(definition: Definition, p: int, m: int, v: int) -> Schedule:
    """The definition's table. Raises `ValueError` if there is none."""
    with _own_code():
        has_chunks = definition.has_chunks(v)
        why = definition.problem(p, m, v) if has_chunks else f"v={v}; needs {definition.chunks} model chunks"
        if why:
            raise ValueError(why)
        return definition.table(p, m, v)
