"""What a schedule costs in short: idle time, activation memory, messages; to compare schedules at the same p and m."""

from fractions import Fraction
from typing import NamedTuple

from ptdp_core.schedules.actions import Schedule
from ptdp_core.schedules.checks import peak_stash
from ptdp_core.schedules.definition import Time
from ptdp_core.schedules.execution import execute, vocabulary_time


class Summary(NamedTuple):
    """An executed table of p ranks and m microbatches (Section 2.2).

    - `bubble`: idle time of a batch with its flush, over the ideal time
    - `own_bubble`: the same between a rank's first and its own last pass, of the rank that idles most
    - `peak_stash`: microbatches whose activations the fullest rank holds, in units of a whole rank (v chunks)
    - `messages`: messages between ranks for each microbatch
    """

    bubble: Fraction
    own_bubble: Fraction
    peak_stash: Fraction
    messages: int


def summary(schedule: Schedule, t_f: Time = 1, t_b: Time = 2, t_w: Time = 1) -> Summary:
    """Execute a table; by default F, I and W take equally long (S and T: `vocabulary_time`).

    Raises `ValueError` if it cannot run."""
    t_s = vocabulary_time(schedule, t_f)
    rows, ideal = execute(schedule, t_f, t_b, t_w, t_s), schedule.m * (schedule.v * (t_f + t_b) + 2 * t_s)
    return Summary(
        bubble=Fraction(max(row[-1].end for row in rows) - ideal) / ideal,
        own_bubble=Fraction(max(row[-1].end - row[0].start for row in rows) - ideal) / ideal,
        peak_stash=Fraction(max(peak_stash(schedule)), schedule.v),
        messages=sum(map(schedule.placement.sends, range(schedule.p))),
    )
