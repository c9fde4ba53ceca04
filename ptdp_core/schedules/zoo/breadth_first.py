"""Looped breadth-first of Lamy-Poirier (MLSys 2023): all m microbatches through a chunk before the next one.

Forward through chunks 0 to v - 1, then backward through v - 1 to 0: interleaving's bubble with any m >= p, and only one
chunk's gradients at a time are unfinished; but all activations are held, as in GPipe.
"""

from ptdp_core.schedules.definition import Definition, Order, passes
from ptdp_core.schedules.placement import looped


def order(p: int, m: int, v: int) -> Order:
    ranks = []
    for stages in looped(p, v).stages:
        chunks, microbatches = [stage for stage in stages for _ in range(m)], [*range(m)] * v
        backward = [stage for stage in stages[::-1] for _ in range(m)]
        ranks.append(passes("F", chunks, microbatches) + passes("B", backward, microbatches))
    return ranks


SCHEDULE = Definition(
    name="breadth-first",
    title="Looped breadth-first",
    year=2022,
    reference="Lamy-Poirier, Breadth-First Pipeline Parallelism, arXiv:2211.05953",
    order=order,
    chunks=(2, None),
    # With m < p the first rank waits between two chunks for what has gone around.
    bubble=lambda p, m, v, t_f, t_b, t_w: (p - 1 + (v - 1) * max(p - m, 0)) * (t_f + t_b),
    stash=lambda p, m, v: [m * v] * p,
)
