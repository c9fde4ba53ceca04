"""DualPipeV as published: the F and the B that its steady state pairs run together (Section 3.2.1 of DeepSeek-V3).

With experts one computes while the other's tokens travel. The table is `ScheduleDualPipeV` of
torch.distributed.pipelining.
"""

from ptdp_core.schedules.actions import Cell, Fused
from ptdp_core.schedules.definition import Time, fused, split_on_v
from ptdp_core.schedules.zoo import dualpipev


def order(p: int, m: int, v: int) -> list[list[Cell]]:
    """Return DualPipeV's passes with each F and the B after it as a pair, but for the first ones on the last rank."""
    rows = [fused(row) for row in dualpipev.order(p, m, v)]
    first = next(cell for cell in rows[-1] if isinstance(cell, Fused))
    place = rows[-1].index(first)
    rows[-1][place : place + 1] = first  # apart: all other ranks wait for what this B makes
    return rows


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time as published, (p-1)(F&B + B - 3W), with F&B = t_f + t_b.

    It is exact for t_w <= t_f = t_i, with t_i = t_b - t_w; otherwise None.
    """
    return (p - 1) * (t_f + 2 * t_b - 3 * t_w) if t_w <= t_f == t_b - t_w else None


SCHEDULE = split_on_v(
    name="dualpipev-overlap",
    title="Overlapped DualPipeV",
    year=2025,
    reference=dualpipev.SCHEDULE.reference,
    order=order,
    problem=dualpipev.problem,
    fuses=True,
    bubble=bubble,
    stash=lambda p, m, v: [2 * p + 1] * p,
    finding=(
        "Published: (p-1)(F&B + B - 3W) per chunk. Executed it is that, with t_f = t_i. Where a pair hides nothing, as "
        "without experts, F&B = F + B: (p-1) t_f more per chunk than with the same passes one after the other."
    ),
)
