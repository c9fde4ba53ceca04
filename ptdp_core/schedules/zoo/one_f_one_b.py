"""1F1B, or PipeDream-Flush (Section 2.2.1, Figure 4 top): at most p - r microbatches are in flight on rank r.

With m < p, which is allowed, the first ranks have no steady state.
"""

from ptdp_core.schedules.definition import Definition, Order, in_turn


def order(p: int, m: int, v: int) -> Order:
    """Return p - r - 1 forward passes of warm-up on rank r, then forward and backward passes in turn."""
    return in_turn(p, m, warmup=lambda rank: min(p - rank - 1, m))


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
)
