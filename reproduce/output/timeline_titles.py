"""What stands above a timeline: its schedule, and its bubble as executed and by the schedule's formula."""

from fractions import Fraction
from typing import Any

from ptdp_core.schedules import definition, names
from reproduce.output.timeline import Timeline


def title(timeline: Timeline) -> str:
    """The schedule, its bubble when executed, and the bubble by its formula if that is another one.

    '1F1B, p = 4, m = 8: bubble (p−1)/m = 3/8 = 37.5 %', 'ZB-H1, p = 4, m = 8: bubble 14 %; by its formula 12.5 %'.
    """
    p, m, v = timeline.p, timeline.m, timeline.v
    sizes = f"p = {p}, m = {m}" + (f", v = {v}" if v > 1 else "")
    bubble, percent = timeline.bubble, _percent(timeline.bubble)
    text = f"{bubble} = {percent}" if isinstance(bubble, Fraction) else percent
    formula = bubble_by_formula(timeline)
    symbols = "(p−1)/(vm)" if v > 1 else "(p−1)/m"
    if formula is not None and formula == Fraction(p - 1, v * m):
        fraction = f"{symbols} = {p - 1}/{v * m}"
        differs = f"{text}; by the formula {fraction} = {_percent(formula)}"
        text = f"{fraction} = {percent}" if bubble == formula else differs
    elif formula is not None and bubble != formula:
        text += f"; by its formula {_percent(formula)}"
    name = definition(timeline.schedule).title if timeline.schedule in names() else timeline.schedule
    return f"{name}, {sizes}: bubble {text}"


def bubble_by_formula(timeline: Timeline) -> Fraction | float | None:
    """The bubble by the formula of the timeline's schedule, over the ideal time, for its mean pass times.

    None for a schedule without a formula, or whose formula does not cover these times. Where the formula's idle time is
    that of p-1 forward and backward passes, the bubble is exactly (p-1)/(vm), whatever the passes take.
    """
    formula = definition(timeline.schedule).bubble if timeline.schedule in names() else None
    if formula is None:
        return None
    p, m, v = timeline.p, timeline.m, timeline.v
    t_f, t_b, t_i, t_w = (_mean_time(timeline, kind) for kind in "FBIW")
    t_b = t_b or t_i + t_w
    idle: Any = formula(p, m, v, t_f, t_b, t_w)
    if idle is None:
        return None
    if idle == (p - 1) * (t_f + t_b):
        return Fraction(p - 1, v * m)
    return idle / (v * m * (t_f + t_b))


def _mean_time(timeline: Timeline, kind: str) -> Any:
    """Mean duration of the passes of a kind, in the timeline's unit; 0 if there are none."""
    times = [box.end - box.start for row in timeline.rows for box in row if box.kind == kind]
    return sum(times) / len(times) if times else 0


def _percent(fraction: Fraction | float) -> str:
    return f"{100 * float(fraction):.4g} %"
