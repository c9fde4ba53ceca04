"""Section `schedules`: the tables of actions, what they are lowered to, what they stash, and their bubble.

Small tables are kept whole, so that a difference can name the action; those of the paper's points by a digest, but for
the few whose size would cost more time than all the rest.
"""

import hashlib

from benchmarks.exact.quantities import Entry, Section, Value, schedule_name
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
    execute_program,
    lower,
    peak_stash,
)

T_F, T_B = 1, 2
MAX_ACTIONS = 20_000

Key = tuple[str, int, int, int]  # schedule, p, m, v

SMALL: tuple[Key, ...] = (
    *(("gpipe", p, m, 1) for p, m in ((2, 4), (4, 4), (4, 6))),
    *(("1f1b", p, m, 1) for p, m in ((1, 2), (2, 4), (4, 2), (4, 4), (4, 6), (4, 8))),
    *(("zb-h1", p, m, 1) for p, m in ((2, 4), (4, 2), (4, 4), (4, 8))),
    *(("interleaved", p, m, v) for p, m, v in ((2, 2, 2), (2, 4, 2), (2, 4, 3), (4, 4, 2), (4, 8, 2), (4, 8, 3))),
)


def collect(configurations: dict[str, TrainingConfig]) -> Section:
    """The small tables, and those that these configurations run."""
    parallels = [config.parallel for config in configurations.values() if config.parallel.data_parallel != "zero3"]
    large = {(c.schedule, c.p, c.m, c.v) for c in parallels if 2 * c.p * c.m * c.v <= MAX_ACTIONS} - set(SMALL)
    return {schedule_name(*key): _small(build(*key)) for key in SMALL} | {
        schedule_name(*key): _large(build(*key)) for key in sorted(large)
    }


def _small(schedule: Schedule) -> Entry:
    order: dict[str, Value] = {"table": [" ".join(map(str, actions)) for actions in schedule.ranks]}
    for mode in MODES:
        program = lower(schedule, mode)
        order[f"{mode} program"] = [" ".join(map(_text, instructions)) for instructions in program.ranks]
        order[f"{mode} program runs"] = problem(program) or "yes"
    return _entry(schedule, order)


def _large(schedule: Schedule) -> Entry:
    return _entry(schedule, {"digest of the table": hashlib.sha256(schedule.to_csv().encode()).hexdigest()})


def _entry(schedule: Schedule, order: dict[str, Value]) -> Entry:
    program = lower(schedule, "blocking")
    exchanges = [[one for one in instructions if isinstance(one, Exchange)] for instructions in program.ranks]
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
    """Idle over ideal time with t_b = 2 t_f, an exact fraction (Section 2.2)."""
    try:
        return str(bubble_fraction(schedule, T_F, T_B))
    except ValueError as error:
        return str(error)


def _text(instruction: Instruction) -> str:
    """An action as `2F0`, a group of messages as `[>2F0,<3B1]`: sent what 2F0 made, received what 3B1 made."""
    if isinstance(instruction, Compute):
        return str(instruction.action)
    sent = [f">{message.made_by}" for message in instruction.sends]
    return f"[{','.join(sent + [f'<{message.made_by}' for message in instruction.receives])}]"
