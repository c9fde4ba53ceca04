"""1F1B, or PipeDream-Flush (Section 2.2.1, Figure 4 top): at most p - r microbatches are in flight on rank r.

With m < p, which is allowed, the first ranks have no steady state.
"""

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.definition import Definition, Order, in_turn
from ptdp_core.schedules.placement import looped
from ptdp_core.schedules.vocabulary import METHODS, shared_order


def order(p: int, m: int, v: int) -> Order:
    """Return p - r - 1 forward passes of warm-up on rank r, then forward and backward passes in turn."""
    return in_turn(p, m, warmup=lambda rank: min(p - rank - 1, m))


def shared(p: int, m: int, v: int, method: str) -> Order:
    """Return the order with passes of a shared vocabulary, and some more forward passes of warm-up."""
    if METHODS[method].together:
        queues: Order = [_between(p - rank - 1, rank, m) for rank in range(p)]
    else:
        queues = in_turn(p, m, warmup=lambda rank: min(p - rank - 1 + METHODS[method].ahead, m))
    return shared_order(looped(p, 1), m, method, queues, [m] * p)


def _between(distance: int, rank: int, m: int) -> list[Action]:
    """F and B of a rank so far from the last one, between passes S that all ranks run at the same moment.

    Between two S each rank runs one F and one B, as long on all ranks. Every second rank from the last on runs B first,
    its neighbours F: an activation then goes two ranks further from one S to the next, a gradient only one, as B takes
    longer than F. So a rank holds about half as many microbatches more than in 1F1B.
    """
    row = []
    for n in range(-distance // 2 - 1, m + distance):  # after the S of microbatch n
        forward, backward = Action("F", rank, n + 1 + distance // 2), Action("B", rank, n - distance)
        pair = (forward, backward) if distance % 2 else (backward, forward)
        row += [action for action in (Action("S", rank, n), *pair) if 0 <= action.microbatch < m]
    return row


SCHEDULE = Definition(
    name="1f1b",
    title="1F1B",
    year=2020,
    reference="Narayanan et al., PipeDream-2BW, arXiv:2006.09503; Section 2.2.1",
    order=order,
    exchanges="neighbours",
    period=lambda p: 1,
    bubble=lambda p, m, v, t_f, t_b, t_w: (p - 1) * (t_f + t_b),
    stash=lambda p, m, v: [min(m, p - rank) for rank in range(p)],
    shared=shared,
)
