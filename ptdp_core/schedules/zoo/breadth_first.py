"""Looped breadth-first of Lamy-Poirier (MLSys 2023): all m microbatches go through a chunk before the next chunk.

A rank runs chunks 0 to v - 1 forward, then v - 1 to 0 backward. The bubble is that of interleaving, with any m >= p.
Only one chunk's gradients are unfinished at a time, but all activations are held at once, as in GPipe.
"""

from ptdp_core.schedules.definition import Definition, Order, passes
from ptdp_core.schedules.placement import looped


def order(p: int, m: int, v: int) -> Order:
    """Return each rank's forward passes, chunk by chunk, then its backward passes with the chunks reversed."""
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
    # With m < p the first rank waits before each further chunk until microbatch 0 has been through all ranks.
    bubble=lambda p, m, v, t_f, t_b, t_w: (p - 1 + (v - 1) * max(p - m, 0)) * (t_f + t_b),
    stash=lambda p, m, v: [m * v] * p,
)
