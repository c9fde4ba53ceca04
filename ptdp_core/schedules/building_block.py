"""Schedules that are made of a building block, on a V of stages with split backward passes.

The construction is that of Qi et al., "Pipeline Parallelism with Controllable Memory" (NeurIPS 2024). Time is divided
into slots of one pass each. A building block says in which slots each rank runs F and I of microbatch 0, for both of
its chunks. It is repeated for every further microbatch, six slots later each time, since a rank has six passes for each
microbatch: F, I and W of two chunks. How long a block keeps activations decides how much memory the schedule needs.
The repeated blocks are then squeezed: each rank runs its passes in that order as early as it can, and a W wherever it
would wait otherwise. It starts no F while its memory is full.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain

from ptdp_core.schedules.definition import Definition, Order, Pass, Time, passes, split_on_v
from ptdp_core.schedules.placement import wave
from ptdp_core.schedules.vocabulary import METHODS, shared_order

PERIOD = 6
_NEVER = 1 << 62
_NOTHING = ("", 0, 0)


def from_block(
    name: str,
    title: str,
    block: Callable[[int, int], Sequence[int]],
    peak: Callable[[int], int],
    idle: Callable[[int], int],
    published: tuple[str, str, str],
    can_share: bool = False,
) -> Definition:
    """Return the definition of a building block's schedule.

    - `block(p, rank)` gives the slots of four passes of microbatch 0 on a rank: F of chunk 0, F of chunk 1, I of chunk
      1 and I of chunk 0.
    - `peak(p)` is the number of chunks' activations that fit on a rank at once.
    - `idle(p)` is the number of passes for which each rank waits in a batch, if all passes take equally long and
      m >= 2p.
    - `can_share` is whether there is a rule for it with a vocabulary that all ranks share.
    - `name`, `title` and `published` are those of `Definition`.
    """

    def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
        return idle(p) * t_f if t_f == t_w and t_b == 2 * t_w and m >= 2 * p > 2 else None

    def shared(p: int, m: int, v: int, method: str) -> Order:
        ahead = METHODS[method].ahead  # by so many periods later comes I, and so much longer are activations held
        queues = _queues([(*slots[:2], *(slot + PERIOD * ahead for slot in slots[2:])) for slots in blocks(p)], m)
        return shared_order(wave(p, 2), m, method, queues, [peak(p) + 2 * ahead] * p)

    def blocks(p: int) -> list[Sequence[int]]:
        return [block(p, rank) for rank in range(p)]

    return split_on_v(
        name=name,
        title=title,
        year=2024,
        reference="Qi et al., Pipeline Parallelism with Controllable Memory, arXiv:2405.15362",
        order=lambda p, m, v: _repeated(blocks(p), m, peak(p)),
        bubble=bubble,
        stash=lambda p, m, v: [min(2 * m, peak(p))] * p,
        published=published,
        shared=shared if can_share else None,
    )


def _queues(blocks: Sequence[Sequence[int]], m: int) -> list[list[Pass]]:
    """By rank, F and I of m microbatches in the order of their slots."""
    queues = []
    for block, (first, last) in zip(blocks, wave(len(blocks), 2).stages, strict=True):
        kinds = zip("FFII", (first, last, last, first), block, strict=True)
        slots = chain.from_iterable(
            zip(range(slot, slot + PERIOD * m, PERIOD), passes(kind, g, range(m)), strict=True)
            for kind, g, slot in kinds
        )
        queues.append([action for _, action in sorted(slots)])
    return queues


def _repeated(blocks: Sequence[Sequence[int]], m: int, most: int) -> Order:
    """Return each rank's order for m microbatches, with at most `most` chunks' activations held on a rank.

    If a block leaves all ranks waiting, the order is incomplete, which `checks.check_complete` finds.
    """
    p = len(blocks)
    waiting = list(map(deque, _queues(blocks, m)))
    weights = [passes("W", g, range(m)) for g in range(2 * p)]
    deferred: list[deque[Pass]] = [deque() for _ in blocks]  # by rank, the W of its I
    ranks: list[list[Pass]] = [[] for _ in blocks]
    stash = [0] * p
    # The slots in which the outputs of F and of I exist, by stage and microbatch; outside of the pipeline in any.
    forward, backward = ([*([_NEVER] * m for _ in range(2 * p)), [0] * m] for _ in "FI")
    now, run, before = 0, 0, -1
    while run > before:
        before = run
        for rank, (queue, later, row) in enumerate(zip(waiting, deferred, ranks, strict=True)):
            kind, g, i = queue[0] if queue else _NOTHING
            if kind == "F" and stash[rank] < most and forward[g - 1][i] <= now:
                forward[g][i] = now + 1
                stash[rank] += 1
                row.append(queue.popleft())
            elif kind == "I" and forward[g][i] <= now and backward[g + 1][i] <= now:
                backward[g][i] = now + 1
                later.append(weights[g][i])
                row.append(queue.popleft())
            elif later:
                stash[rank] -= 1
                row.append(later.popleft())
            else:
                continue
            run += 1
        now += 1
    return ranks
