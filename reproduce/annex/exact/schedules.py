"""Section `schedules`: tables of actions, the programs they are lowered to, their peak stash and their bubble.

Small tables are kept whole, so that a difference can name the action. Tables of the paper's points are kept as a
digest; the few with more than `MAX_ACTIONS` actions are left out, as they would take longer than all others together.
"""

import hashlib

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import (
    MODES,
    Compute,
    Exchange,
    Instruction,
    Program,
    Schedule,
    bubble_fraction,
    build,
    check_complete,
    check_groups,
    check_order,
    definition,
    execute_program,
    exists,
    lower,
    names,
    peak_stash,
)
from reproduce.annex.exact.entries import Entry, Section, Value, schedule_name

T_F, T_B = 1, 2
MAX_ACTIONS = 20_000

Key = tuple[str, int, int, int]  # schedule, p, m, v

THOROUGH: tuple[Key, ...] = (
    *(("gpipe", p, m, 1) for p, m in ((2, 4), (4, 4), (4, 6))),
    *(("1f1b", p, m, 1) for p, m in ((1, 2), (2, 4), (4, 2), (4, 4), (4, 6), (4, 8))),
    *(("zb-h1", p, m, 1) for p, m in ((2, 4), (4, 2), (4, 4), (4, 8))),
    *(("interleaved", p, m, v) for p, m, v in ((2, 2, 2), (2, 4, 2), (2, 4, 3), (4, 4, 2), (4, 8, 2), (4, 8, 3))),
)
# Every other schedule at the first of these sizes at which it exists, with the fewest chunks that it has.
SIZES = ((3, 6), (4, 8))
OTHERS: tuple[Key, ...] = tuple(
    next(key for p, m in SIZES if exists(*(key := (name, p, m, definition(name).chunks[0]))))
    for name in names()
    if name not in {key[0] for key in THOROUGH}
)
SMALL = (*THOROUGH, *OTHERS)


def collect(configurations: dict[str, TrainingConfig]) -> Section:
    """The entries of the small tables, and of the tables that these configurations run."""
    parallels = [config.parallel for config in configurations.values() if config.parallel.data_parallel != "zero3"]
    large = {(c.schedule, c.p, c.m, c.v) for c in parallels if 2 * c.p * c.m * c.v <= MAX_ACTIONS} - set(SMALL)
    return {schedule_name(*key): _small(build(*key)) for key in SMALL} | {
        schedule_name(*key): _large(build(*key)) for key in sorted(large)
    }


def _small(schedule: Schedule) -> Entry:
    """The entry of a table that is kept whole, with its programs in both modes."""
    order: dict[str, Value] = {"table": [" ".join(map(str, cells)) for cells in schedule.cells]}
    for mode in MODES:
        program = lower(schedule, mode)
        order[f"{mode} program"] = [" ".join(map(_text, instructions)) for instructions in program.ranks]
        order[f"{mode} program runs"] = problem(program) or "yes"
    return _entry(schedule, order)


def _large(schedule: Schedule) -> Entry:
    """The entry of a table of which a digest is kept."""
    return _entry(schedule, {"digest of the table": hashlib.sha256(schedule.to_csv().encode()).hexdigest()})


def _entry(schedule: Schedule, order: dict[str, Value]) -> Entry:
    """An entry with this `order`, and with the counts of a table that all have."""
    program = lower(schedule, "blocking")
    exchanges = [[i for i in instructions if isinstance(i, Exchange)] for instructions in program.ranks]
    quantities: dict[str, dict[str, Value]] = {
        "order": order,
        "communication": {
            "messages": [sum(len(exchange.sends) for exchange in rank) for rank in exchanges],
            "exchanges": [len(rank) for rank in exchanges],
        },
        "memory": {"peak stash": peak_stash(schedule)},
        "time": {"bubble": _bubble(schedule)},
    }
    return Entry(quantities, schedule_name(schedule.name, schedule.p, schedule.m, schedule.v))


def problem(program: Program) -> str:
    """Why a program cannot run; empty if it can."""
    try:
        check_complete(program.schedule)
        check_order(program)
        if program.mode == "blocking":
            check_groups(program)
        execute_program(program, T_F, T_B)
    except ValueError as error:
        return str(error)
    return ""


def _bubble(schedule: Schedule) -> str:
    """The bubble with t_b = 2 t_f, idle over ideal time (Section 2.2), as an exact fraction; or why there is none."""
    try:
        return str(bubble_fraction(schedule, T_F, T_B))
    except ValueError as error:
        return str(error)


def _text(instruction: Instruction) -> str:
    """An instruction as text: an action is `2F0`; `[>2F0,<3B1]` sends the output of 2F0 and receives that of 3B1."""
    if isinstance(instruction, Compute):
        return str(instruction.cell)
    sends = [f">{message.made_by}" for message in instruction.sends]
    return f"[{','.join(sends + [f'<{message.made_by}' for message in instruction.receives])}]"
