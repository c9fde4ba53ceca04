"""V-Half of Qi et al., "Pipeline Parallelism with Controllable Memory" (NeurIPS 2024): half of 1F1B's memory."""

from collections.abc import Sequence

from ptdp_core.schedules.building_block import from_block


def block(p: int, rank: int) -> Sequence[int]:
    """Return the slots in which a rank runs one microbatch's F of chunk 0 and 1, and its I of chunk 1 and 0.

    From rank to rank a pass takes two slots where it goes to higher ranks, and one slot where it goes to lower ranks.
    """
    gap = 0 if p % 2 else 3  # keeps apart the slots of a rank, which repeat for every microbatch
    return 2 * rank, 3 * p - rank - 2, 3 * p + gap + 2 * rank - 1, 6 * p + gap - rank - 2


SCHEDULE = from_block(
    name="v-half",
    title="V-Half",
    block=block,
    peak=lambda p: 2 * ((p + 2) // 2),  # floor((p+2)/2) microbatches, as published
    idle=lambda p: 3 * (p - 1) - p % 2,  # half of 1F1B's, less 1 for an odd p
    published=("1/2", "1/2", "2"),
    can_share=True,
)
