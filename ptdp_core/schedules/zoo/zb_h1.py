"""ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024, Section 2): 1F1B with backward passes split.

F and I run in 1F1B's order. Rank r defers the W of r microbatches: it runs the W of microbatch k right after the I of
microbatch k + r, and the last r of them at the end. So every rank holds at most min(m, p) microbatches whose W is still
to come, as many as 1F1B stashes on its first rank: a later rank warms up with fewer F, and defers as many more W. In
the cool-down gradients are sent on without waiting for W, and the W fill the gaps.
"""

from ptdp_core.schedules.definition import Definition, Order, Time, split
from ptdp_core.schedules.zoo import one_f_one_b


def order(p: int, m: int, v: int) -> Order:
    """Return 1F1B's order, split, with the W of r microbatches deferred on rank r."""
    return [split(row, rank) for rank, row in enumerate(one_f_one_b.order(p, m, v))]


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time:
    """Return a rank's idle time, (p-1)(t_f + t_i - t_w) for m >= p, with t_i = t_b - t_w.

    That is the formula of Qi et al., who write B for the input's gradient alone. With m < p fewer W fill the bubble.
    Where W takes longer than F or I, the bubble is larger.
    """
    return (p - 1) * (t_f + t_b - t_w) - (min(m, p) - 1) * t_w


SCHEDULE = Definition(
    name="zb-h1",
    title="ZB-H1",
    year=2023,
    reference="Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241",
    order=order,
    splits=True,
    exchanges="neighbours",
    period=lambda p: 1,
    bubble=bubble,
    stash=lambda p, m, v: [min(m, p)] * p,
    published=("1/3", "1", "1"),
)
