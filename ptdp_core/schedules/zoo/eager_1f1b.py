"""Eager 1F1B of Zhuang et al. (MLSys 2023, Section 4): 1F1B that warms up with twice as many forward passes.

An activation then arrives a whole pass before it is used, so that computation can hide its message. The bubble is that
of 1F1B. Rank r holds up to 2(p - r) - 1 microbatches instead of p - r.
"""

from ptdp_core.schedules.definition import Definition, Order, in_turn


def order(p: int, m: int, v: int) -> Order:
    """Return 1F1B's order with 2(p - r - 1) forward passes of warm-up on rank r."""
    return in_turn(p, m, warmup=lambda rank: min(2 * (p - rank - 1), m))


SCHEDULE = Definition(
    name="eager-1f1b",
    title="Eager 1F1B",
    year=2022,
    reference="Zhuang et al., On Optimizing the Communication of Model Parallelism, arXiv:2211.05322, Section 4",
    order=order,
    period=lambda p: 1,
    bubble=lambda p, m, v, t_f, t_b, t_w: (p - 1) * (t_f + t_b),
    stash=lambda p, m, v: [min(2 * (p - rank) - 1, m) for rank in range(p)],
)
