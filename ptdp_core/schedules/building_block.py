"""Schedules that are made of a building block, on a V of stages with split backward passes.

The construction is that of Qi et al., "Pipeline Parallelism with Controllable Memory" (NeurIPS 2024). Time is divided
into slots of one pass each. A building block says in which slots each rank runs F and I of microbatch 0, for both of
its chunks. It is repeated for every further microbatch, six slots later each time, since a rank has six passes for each
microbatch: F, I and W of two chunks. How long a block keeps activations decides how much memory the schedule needs.
The repeated blocks are then squeezed: each rank runs its passes in that order as early as it can, and a W wherever it
would wait otherwise. It starts no F while its memory is full.
"""

from collections.abc import Callable, Sequence

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.definition import Definition, Order, Time, split_on_v
from ptdp_core.schedules.list_scheduling import PartialSchedule, list_schedule
from ptdp_core.schedules.placement import wave

PERIOD = 6


def from_block(
    name: str,
    title: str,
    block: Callable[[int, int], Sequence[int]],
    peak: Callable[[int], int],
    idle: Callable[[int], int],
    published: tuple[str, str, str],
) -> Definition:
    """Return the definition of a building block's schedule.

    - `block(p, rank)` gives the slots of four passes of microbatch 0 on a rank: F of chunk 0, F of chunk 1, I of chunk
      1 and I of chunk 0.
    - `peak(p)` is the number of chunks' activations that fit on a rank at once.
    - `idle(p)` is the number of passes for which each rank waits in a batch, if all passes take equally long and
      m >= 2p.
    - `name`, `title` and `published` are those of `Definition`.
    """

    def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
        return idle(p) * t_f if t_f == t_w and t_b == 2 * t_w and m >= 2 * p > 2 else None

    return split_on_v(
        name=name,
        title=title,
        year=2024,
        reference="Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362",
        order=lambda p, m, v: _repeated([block(p, rank) for rank in range(p)], m, peak(p)),
        bubble=bubble,
        stash=lambda p, m, v: [min(2 * m, peak(p))] * p,
        published=published,
    )


def _repeated(blocks: Sequence[Sequence[int]], m: int, most: int) -> Order:
    """Return each rank's order for m microbatches, with at most `most` chunks' activations held on a rank."""
    placement = wave(len(blocks), 2)
    ranks: list[list[Action]] = []
    for block, (first, last) in zip(blocks, placement.stages, strict=True):
        kinds = zip("FFII", (first, last, last, first), block, strict=True)
        slots = [(slot + PERIOD * i, Action(kind, g, i)) for kind, g, slot in kinds for i in range(m)]
        ranks.append([action for _, action in sorted(slots)])

    def offers(rank: int, partial: PartialSchedule) -> list[Action]:
        done = partial.passes[rank]
        following = ranks[rank][done : done + 1]
        if following and following[0].kind == "F" and partial.stash[rank] >= most:
            following = []
        return [*following, *partial.deferred[rank][:1]]

    return list_schedule(placement, m, (1, 1, 1), offers)
