"""ZB-H2 of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024, Section 2): eager 1F1B with split backward passes.

Rank r warms up with 2(p - r) - 1 forward passes and defers the W of 2r microbatches, the last of them to the end. So
every rank holds up to 2p - 1 microbatches, and with equal times no rank waits between its first and its last pass.
"""

from ptdp_core.schedules.definition import Definition, Order, Time, split
from ptdp_core.schedules.zoo import eager_1f1b


def order(p: int, m: int, v: int) -> Order:
    """Return eager 1F1B's order, split, with the W of 2r microbatches deferred on rank r."""
    return [split(row, 2 * rank) for rank, row in enumerate(eager_1f1b.order(p, m, v))]


def own_bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time between its first and its last pass, (p-1)(t_f + t_i - 2 t_w), with t_i = t_b - t_w.

    That is the formula of Qi et al., who write B for the input's gradient alone. It is None where it does not hold: for
    m < 2p - 1, or where it would be negative.
    """
    return (p - 1) * (t_f + t_b - 3 * t_w) if m >= 2 * p - 1 and t_f + t_b >= 3 * t_w else None


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time from flush to flush, or None for m < 2p - 1.

    It is at least (p-1) t_f, the last rank's wait for its first activation: a flush does not let it catch up.
    """
    return (p - 1) * max(t_f, t_f + t_b - 3 * t_w) if m >= 2 * p - 1 else None


SCHEDULE = Definition(
    name="zb-h2",
    title="ZB-H2",
    year=2023,
    reference="Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, Section 2",
    order=order,
    splits=True,
    period=lambda p: 1,
    bubble=bubble,
    own_bubble=own_bubble,
    stash=lambda p, m, v: [min(m, 2 * p - 1)] * p,
    published=("0", "2", "1"),
)
