"""GPipe: all m forward passes, then all m backward passes (Section 2.2.1, Figure 3)."""

from ptdp_core.schedules.definition import Definition, Order, passes


def order(p: int, m: int, v: int) -> Order:
    """Return the same order for every rank: F of microbatches 0 to m - 1, then B of 0 to m - 1."""
    return [passes("F", rank, range(m)) + passes("B", rank, range(m)) for rank in range(p)]


SCHEDULE = Definition(
    name="gpipe",
    title="GPipe",
    year=2018,
    reference="Huang et al., GPipe, arXiv:1811.06965; Section 2.2.1",
    order=order,
    exchanges="neighbours",
    bubble=lambda p, m, v, t_f, t_b, t_w: (p - 1) * (t_f + t_b),
    stash=lambda p, m, v: [m] * p,
)
