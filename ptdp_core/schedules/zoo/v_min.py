"""V-Min of Qi et al., "Pipeline Parallelism with Controllable Memory" (NeurIPS 2024): a third of 1F1B's memory.

Where F, I and W do not take equally long, gaps appear in every period, not only at the ends.
"""

from collections.abc import Sequence

from ptdp_core.schedules.building_block import from_block


def block(p: int, rank: int) -> Sequence[int]:
    """Return the slots in which a rank runs one microbatch's F of chunk 0 and 1, and its I of chunk 1 and 0.

    Every pass follows as soon as it can, one slot after the pass on the neighbouring rank that it needs.
    """
    gap = 0 if p % 3 else 2  # keeps apart the slots of a rank, which repeat for every microbatch
    return rank, 2 * p - rank - 1, 2 * p + gap + rank, 4 * p + gap - rank - 1


SCHEDULE = from_block(
    name="v-min",
    title="V-Min",
    block=block,
    peak=lambda p: 2 * ((p + 4) // 3),  # floor((p+4)/3) microbatches, as published
    idle=lambda p: 4 * (p - 1) + (-1 if p % 3 else 1),  # two thirds of 1F1B's, less 1, or 1 more where 3 divides p
    published=("2/3", "1/3", "2"),
)
