"""V-Min of Qi et al., "Pipeline Parallelism with Controllable Memory" (NeurIPS 2024): a third of 1F1B's memory.

The building block in which every pass of a microbatch follows as soon as it can (`v_half.py` says how a block becomes a
schedule). Where F, I and W do not take equally long, gaps appear in every period, not only at the ends.
"""

from collections.abc import Sequence

from ptdp_core.schedules.definition import Definition, Order, Time
from ptdp_core.schedules.placement import wave
from ptdp_core.schedules.zoo.v_half import repeated


def peak(p: int) -> int:
    """Chunks that a rank stashes at most: floor((p+4)/3) microbatches, as published."""
    return 2 * ((p + 4) // 3)


def order(p: int, m: int, v: int) -> Order:
    gap = 0 if p % 3 else 2  # keeps the slots of a rank apart

    def block(rank: int) -> Sequence[int]:
        return rank, 2 * p - rank - 1, 2 * p + gap + rank, 4 * p + gap - rank - 1

    return repeated(block, p, m, peak(p))


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """With equal times two thirds of 1F1B's, 4(p-1), less 1, or 1 more where 3 divides p."""
    return (4 * (p - 1) + (-1 if p % 3 else 1)) * t_f if t_f == t_w and t_b == 2 * t_w and m >= 2 * p > 2 else None


SCHEDULE = Definition(
    name="v-min",
    title="V-Min",
    year=2024,
    reference="Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362",
    order=order,
    placement=wave,
    chunks=(2, 2),
    splits=True,
    period=lambda p: 1,
    bubble=bubble,
    stash=lambda p, m, v: [min(2 * m, peak(p))] * p,
    published=("2/3", "1/3", "2"),
)
