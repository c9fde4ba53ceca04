"""ZB-V of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024, Section 6): split passes on a V of stages.

Rank r holds stages r and 2p - 1 - r, so that the loss is on the first rank. In its steady state a rank runs F, I and W
of chunk 0, then of chunk 1; in the cool-down it runs I before W, so that gradients are sent early. With equal times no
rank waits between its first and its last pass, and none holds more than the first rank does in 1F1B.
"""

from ptdp_core.schedules.definition import Order, Time, numbered, split_on_v
from ptdp_core.schedules.placement import wave


def order(p: int, m: int, v: int) -> Order:
    """Return each rank's passes as words of kind and chunk (`numbered`): warm-up, steady state and cool-down."""
    n = max(m, 2 * p - 1)  # fewer microbatches have the table of 2p - 1, without the passes of the missing ones
    ranks = []
    for rank, stages in enumerate(wave(p, 2).stages):
        left = p - rank  # ranks from this one to the bottom of the V
        warmup = ["F0"] * (2 * left - 1) + ["F1", "F0"] * rank + ["F1", "I1", "W1"] * left
        steady = ["F0", "I0", "W0", "F1", "I1", "W1"] * (n - p - left + 1) + ["I0", "W0", "F1", "I1", "W1"] * (left - 1)
        cooldown = ["I0", "I1"] * rank + ["I0", "W0"] * left + ["W1"] * rank + ["W0"] * rank
        ranks.append([each for each in numbered(warmup + steady + cooldown, stages) if each[2] < m])
    return ranks


def own_bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time between its first and its last pass, 2(p-1)(t_i - t_w), with t_i = t_b - t_w.

    With equal times it is 0, as published. It is None where it does not hold: unless m >= 2p - 1 and t_w <= t_f <= t_i.
    """
    return 2 * (p - 1) * (t_b - 2 * t_w) if m >= 2 * p - 1 and t_w <= t_f <= t_b - t_w else None


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time from flush to flush for t_f = t_i, or None where `own_bubble` does not hold.

    It is at least (p-1) t_f, the last rank's wait for its first activation.
    """
    without_flush = own_bubble(p, m, v, t_f, t_b, t_w) if t_f == t_b - t_w else None
    return None if without_flush is None else max(without_flush, (p - 1) * t_f)


SCHEDULE = split_on_v(
    name="zb-v",
    title="ZB-V",
    year=2023,
    reference="Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, Section 6",
    order=order,
    bubble=bubble,
    own_bubble=own_bubble,
    stash=lambda p, m, v: [min(2 * m, 2 * p)] * p,
    published=("0", "1", "2"),
)
