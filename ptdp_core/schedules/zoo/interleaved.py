"""Interleaved 1F1B with v model chunks per rank (Section 2.2.2, Figure 4 bottom); m is a multiple of p.

A rank takes p microbatches through chunk 0, the same p through chunk 1, and so on, then the next p microbatches;
backward with the chunks reversed. With m = p every forward pass comes before the first backward pass, as in the
authors' code.
"""

from ptdp_core.schedules.definition import Definition, Order, in_turn


def order(p: int, m: int, v: int) -> Order:
    """Return forward and backward passes in turn after `warmup` forward passes, in rounds of p microbatches."""
    return in_turn(p, m, lambda rank: warmup(p, m, v, rank), v, round_size=p)


def warmup(p: int, m: int, v: int, rank: int) -> int:
    """Return how many forward passes a rank runs before forward and backward passes take turns."""
    return m * v if m == p else min((p - rank - 1) * 2 + (v - 1) * p, m * v)


def problem(p: int, m: int, v: int) -> str:
    """Return the error for p = 1 or for an m that is not a multiple of p; empty for sizes that can be interleaved."""
    if p < 2:
        return f"p={p} with v={v} model chunks; needs p >= 2 pipeline stages to interleave; try v=1"
    if m % p:
        return (
            f"m={m} microbatches with v={v} model chunks on p={p} devices; needs m a multiple of p (Section 2.2.2); "
            f"try m={(m // p + 1) * p}, or v=1"
        )
    return ""


SCHEDULE = Definition(
    name="interleaved",
    title="Interleaved 1F1B",
    year=2021,
    reference="Narayanan et al., arXiv:2104.04473, Section 2.2.2",
    order=order,
    chunks=(2, None),
    problem=problem,
    exchanges="slots",
    period=lambda p: p,
    bubble=lambda p, m, v, t_f, t_b, t_w: (p - 1) * (t_f + t_b),
    stash=lambda p, m, v: [min(warmup(p, m, v, rank) + 1, m * v) for rank in range(p)],
)
