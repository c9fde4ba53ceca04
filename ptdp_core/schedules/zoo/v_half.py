"""V-Half of Qi et al., "Pipeline Parallelism with Controllable Memory" (NeurIPS 2024): half of 1F1B's memory.

A building block says in which slot a microbatch's first pass of each kind is on each rank of a V of stages; it repeats
every six slots, one for each of F, I and W of two chunks. A W runs where its rank would wait, or before an F for which
there is no memory. That is the paper's construction: repeat, squeeze, reorder.
"""

from collections.abc import Callable, Sequence

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.definition import Definition, Order, Time
from ptdp_core.schedules.list_scheduling import Progress, list_schedule
from ptdp_core.schedules.placement import wave

# Of a rank: the slots of F of chunk 0, F of chunk 1, I of chunk 1 and I of chunk 0 of microbatch 0.
Block = Callable[[int], Sequence[int]]
PERIOD = 6


def repeated(block: Block, p: int, m: int, most: int) -> Order:
    """The building block for m microbatches, with at most so many chunks stashed on a rank."""
    ranks: list[list[Action]] = []
    for rank, (first, last) in enumerate(wave(p, 2).stages):
        kinds = zip("FFII", (first, last, last, first), block(rank), strict=True)
        slots = [(slot + PERIOD * i, Action(kind, g, i)) for kind, g, slot in kinds for i in range(m)]
        ranks.append([action for _, action in sorted(slots)])

    def offers(rank: int, progress: Progress) -> list[Action]:
        done = progress.passes[rank]
        following = ranks[rank][done : done + 1]
        if following and following[0].kind == "F" and progress.stash[rank] >= most:
            following = []
        return [*following, *progress.deferred[rank][:1]]

    return list_schedule(wave(p, 2), m, (1, 1, 1), offers)


def peak(p: int) -> int:
    """Chunks that a rank stashes at most: floor((p+2)/2) microbatches, as published."""
    return 2 * ((p + 2) // 2)


def order(p: int, m: int, v: int) -> Order:
    gap = 0 if p % 2 else 3  # keeps the slots of a rank apart

    def block(rank: int) -> Sequence[int]:
        return 2 * rank, 3 * p - rank - 2, 3 * p + gap + 2 * rank - 1, 6 * p + gap - rank - 2

    return repeated(block, p, m, peak(p))


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """With equal times half of 1F1B's, 3(p-1), less 1 for an odd p."""
    return (3 * (p - 1) - p % 2) * t_f if t_f == t_w and t_b == 2 * t_w and m >= 2 * p > 2 else None


SCHEDULE = Definition(
    name="v-half",
    title="V-Half",
    year=2024,
    reference="Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362",
    order=order,
    placement=wave,
    chunks=(2, 2),
    splits=True,
    period=lambda p: 1,
    bubble=bubble,
    stash=lambda p, m, v: [min(2 * m, peak(p))] * p,
    published=("1/2", "1/2", "2"),
)
