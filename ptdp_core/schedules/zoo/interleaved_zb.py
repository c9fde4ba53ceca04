"""Interleaved 1F1B (Section 2.2.2) with split backward passes: ZB-H1 (Qi et al., ICLR 2024) with model chunks.

As ZB-H1 does without chunks, rank r warms up with one forward pass less than the rank before it, where interleaved 1F1B
has two less. Rank r defers the W of r passes, which fill the gaps. Microbatches go through the chunks in rounds of
n = m / floor(m/p), which is p where m is a multiple of p. The schedule is `ScheduleInterleavedZeroBubble` of
torch.distributed.pipelining.
"""

from ptdp_core.schedules.definition import Definition, Order, Time, in_turn, split
from ptdp_core.schedules.zoo import interleaved


def round_size(p: int, m: int) -> int:
    """Return how many microbatches a rank takes through one chunk before the next chunk."""
    return m // (m // p)


def order(p: int, m: int, v: int) -> Order:
    """Return interleaved 1F1B with a shorter warm-up, split, with r weight-gradient passes deferred on rank r."""
    n = round_size(p, m)
    rows = in_turn(p, m, lambda rank: min((v - 1) * n + p - 1 - rank, m * v), v, n)
    return [split(row, rank) for rank, row in enumerate(rows)]


def problem(p: int, m: int, v: int) -> str:
    """Return the error for p = 1, or for microbatches that do not make equal rounds of at least p; else empty."""
    if p < 2:
        return interleaved.problem(p, m, v)
    if m < p or m % (m // p):
        return (
            f"m={m} microbatches with v={v} model chunks on p={p} devices; needs m >= p in equal rounds of at least p; "
            f"try m={(m // p + 1) * p}"
        )
    return ""


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time:
    """Return a rank's idle time, (p-1)(t_f + t_i - t_w) with t_i = t_b - t_w.

    It is ZB-H1's formula; but the times are those of a chunk, whose passes are v times as short.
    """
    return (p - 1) * (t_f + t_b - 2 * t_w)


SCHEDULE = Definition(
    name="interleaved-zb",
    title="Interleaved ZB-H1",
    year=2024,
    reference="Qi et al., arXiv:2401.10241, with the chunks of arXiv:2104.04473; torch's ScheduleInterleavedZeroBubble",
    order=order,
    chunks=(2, None),
    problem=problem,
    splits=True,
    bubble=bubble,
    stash=lambda p, m, v: [min((v - 1) * round_size(p, m) + p, m * v)] * p,
)
