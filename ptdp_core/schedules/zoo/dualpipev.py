"""DualPipeV (DeepSeek-AI and Sea AI Lab, 2025): DualPipe's V of stages, cut in half so that weights are held once.

Its steady state pairs an F of one chunk with a B of the other, which may overlap (`dualpipev_overlap.py`); here they
run one after the other. B is split only where W fills gaps: at the end of the warm-up and in the cool-down.
"""

from ptdp_core.schedules.definition import Order, Time, numbered, split_on_v
from ptdp_core.schedules.placement import wave


def order(p: int, m: int, v: int) -> Order:
    """Return each rank's passes as words of kind and chunk (`numbered`): warm-up, steady state and cool-down."""
    ranks = []
    for rank, stages in enumerate(wave(p, 2).stages):
        below = p - rank - 1  # ranks from the next one to the bottom of the V
        warmup = ["F0"] * (2 * below) + ["F0", "F1"] * (rank + 1) + ["I1", "W", "F1"] * below
        steady = ["F0", "B1", "F1", "B0"] * (m - p - below) + ["B1", "F1", "B0"] * below
        # Chunks 1 and 0 in turn; the second half of these passes is split.
        cooldown = [f"{'B' if k <= rank else 'I'}{1 - k % 2}" for k in range(2 * rank + 2)]
        ranks.append(numbered(warmup + steady + cooldown + ["W", "I0"] * below + ["W"] * (rank + 1), stages))
    return ranks


def problem(p: int, m: int, v: int) -> str:
    """Return the error for fewer than 2p microbatches, which do not fill the V; empty if there are enough."""
    if m < 2 * p:
        return f"m={m} microbatches on p={p} devices with schedule='dualpipev'; needs m >= 2p; try m={2 * p}"
    return ""


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time, (p-1)(2 t_i - t_w) with t_i = t_b - t_w, for t_w <= t_f = t_i; otherwise None."""
    return (p - 1) * (2 * t_b - 3 * t_w) if t_w <= t_f == t_b - t_w else None


SCHEDULE = split_on_v(
    name="dualpipev",
    title="DualPipeV",
    year=2025,
    reference="DeepSeek-AI, DualPipe, README of the repository; DeepSeek-V3, arXiv:2412.19437, Section 3.2.1",
    order=order,
    problem=problem,
    bubble=bubble,
    stash=lambda p, m, v: [2 * p + 1] * p,
    finding=(
        "Published: (p-1)(F&B + B - 3W) per chunk, F&B an F and a B that overlap. Executed one after the other, with "
        "t_f = t_i, the bubble is that of F&B = B, not of F&B = F + B: the next rank need not wait for the whole pair."
    ),
)
