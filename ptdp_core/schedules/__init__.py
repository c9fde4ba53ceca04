"""Pipeline schedules as data (Section 2.2): one object, executed, simulated, drawn, exported and checked.

- `placement.py`: which rank holds which stages: `looped` as in the paper, `wave` (a V with v = 2)
- `actions.py`: `Action` (`2F0`), `Schedule` (placement, and per rank the actions in order), CSV exchange with torch
- `zoo/`: a module for each schedule: GPipe, 1F1B and interleaved 1F1B, and those since
- `definition.py`: what such a module says of its schedule, and helpers to write its order with
- `list_scheduling.py`, `building_block.py`: make a schedule from a greedy rule, or from a block that is repeated
- `vocabulary.py`: tables in which all ranks share the vocabulary, from a schedule's own order
- `registry.py`: finds the schedules by name; `build(name, p, m, v)` makes one for its sizes
- `files.py`: reads a schedule of one's own, and checks it
- `lowering.py`: `lower(schedule, mode)` places the sends and receives, blocking (the paper's; for any table:
  `derived.py`) or overlapped; `program.py`: what comes out
- `execution.py`: runs a schedule or a program in exact arithmetic: timeline (of `TimelineEvent`s), bubble
- `checks.py`: completeness, order and groups of messages, progress, peak stash

    schedule = build("interleaved", p=4, m=8, v=2)
    program = lower(schedule, "blocking")
    bubble_fraction(schedule, t_f=1, t_b=2)  # Fraction(3, 16), that is (p-1)/(v*m)
"""

from ptdp_core.schedules.actions import KINDS, Action, Cell, Fused, Schedule, passes_of
from ptdp_core.schedules.checks import (
    Moment,
    Summary,
    check_complete,
    check_groups,
    check_order,
    check_progress,
    most_scored,
    peak_stash,
    stash_course,
    stash_fronts,
    summary,
    undominated,
)
from ptdp_core.schedules.definition import Definition
from ptdp_core.schedules.execution import Time, TimelineEvent, bubble_fraction, execute, execute_program
from ptdp_core.schedules.files import read_schedule
from ptdp_core.schedules.lowering import MESSAGES_AT_ONCE, blocking_groups, lower
from ptdp_core.schedules.placement import StagePlacement, looped, wave
from ptdp_core.schedules.program import (
    MODES,
    Compute,
    Exchange,
    Instruction,
    Message,
    Program,
    channels,
    message_into,
    message_out_of,
)
from ptdp_core.schedules.registry import (
    build,
    check_schedule,
    default_schedule,
    definition,
    exists,
    names,
    register,
    register_table,
)
