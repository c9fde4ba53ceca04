"""The wave of Hanayo (Liu et al., SC 2023): stages go v/2 times down the ranks and up again; no pass is split.

The table is the greedy one for t_b = 2 t_f: a free rank runs a backward pass if it can, otherwise the forward pass of
the earliest microbatch, and of its latest stage. Where the wave turns, two neighbouring stages are on one rank and need
no message.
"""

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.definition import Definition, Order, Time
from ptdp_core.schedules.list_scheduling import PartialSchedule, list_schedule
from ptdp_core.schedules.placement import wave


def order(p: int, m: int, v: int) -> Order:
    """Return what the greedy rule at the top of this file gives, with t_f = t_i = t_w = 1."""
    placement = wave(p, v)

    def offers(rank: int, partial: PartialSchedule) -> list[Action]:
        """The next passes of a rank's stages, the best first: "B" sorts before "F"."""
        following = [action for kind in "BF" for g in placement.stages[rank] for action in partial.next(kind, g)]
        return sorted(following, key=lambda action: (action.kind, action.microbatch, -action.stage))

    return list_schedule(placement, m, (1, 1, 1), offers)


def problem(p: int, m: int, v: int) -> str:
    """Return the error for an odd v, with which the wave would not come up again; empty for an even one."""
    return f"v={v} with schedule='hanayo'; needs an even v, twice the waves; try v={v + 1}" if v % 2 else ""


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """Return a rank's idle time, 4(p-1) t_f, for one wave of m = p microbatches and t_b = 2 t_f; otherwise None.

    For other sizes there is no formula: the greedy order has to be executed.
    """
    return 4 * (p - 1) * t_f if v == 2 and m == p and t_b == 2 * t_f else None


SCHEDULE = Definition(
    name="hanayo",
    title="Hanayo wave",
    year=2023,
    reference="Liu et al., Hanayo: Harnessing Wave-like Pipeline Parallelism, arXiv:2308.15762",
    order=order,
    placement=wave,
    chunks=(2, None),
    problem=problem,
    bubble=bubble,
)
