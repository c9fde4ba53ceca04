"""Pipeline schedules as data (Section 2.2): one object, executed, simulated, drawn, exported and checked.

- `actions.py`: `Action` (`2F0`), `Schedule` (per rank the actions in order), CSV exchange with torch
- `build.py`: GPipe, 1F1B and interleaved 1F1B, and ZB-H1 beyond the paper; `build(name, p, m, v)`
- `lowering.py`: `lower(schedule, mode)` places the sends and receives, blocking (the paper's) or overlapped
- `execution.py`: runs a schedule or a program in exact arithmetic: timeline, bubble
- `checks.py`: completeness, order and groups of messages, progress, peak stash

    schedule = build("interleaved", p=4, m=8, v=2)
    program = lower(schedule, "blocking")
    bubble_fraction(schedule, t_f=1, t_b=2)  # Fraction(3, 16), that is (p-1)/(v*m)
"""

from ptdp_core.schedules.actions import KINDS, Action, Schedule
from ptdp_core.schedules.build import build, gpipe, interleaved, one_f_one_b, zb_h1, zb_h1_bubble
from ptdp_core.schedules.checks import (
    check_complete,
    check_groups,
    check_order,
    check_progress,
    fullest,
    peak_stash,
)
from ptdp_core.schedules.execution import Span, Time, bubble_fraction, execute, execute_program
from ptdp_core.schedules.lowering import (
    MODES,
    Compute,
    Exchange,
    Instruction,
    Message,
    Program,
    lower,
    message_into,
    message_out_of,
)

__all__ = [
    "KINDS",
    "MODES",
    "Action",
    "Compute",
    "Exchange",
    "Instruction",
    "Message",
    "Program",
    "Schedule",
    "Span",
    "Time",
    "bubble_fraction",
    "build",
    "check_complete",
    "check_groups",
    "check_order",
    "check_progress",
    "execute",
    "execute_program",
    "fullest",
    "gpipe",
    "interleaved",
    "lower",
    "message_into",
    "message_out_of",
    "one_f_one_b",
    "peak_stash",
    "zb_h1",
    "zb_h1_bubble",
]
