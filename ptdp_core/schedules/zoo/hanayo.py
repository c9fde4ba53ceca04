"""The wave of Hanayo (Liu et al., SC 2023): v/2 times down the ranks and up again, without split passes.

The table is the greedy one for t_b = 2 t_f: whenever a rank is free it runs a backward pass if it can, else the forward
pass of the earliest microbatch, of its latest stage. Neighbouring stages at the turns are on one rank, without message.
"""

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.definition import Definition, Order, Time
from ptdp_core.schedules.list_scheduling import Progress, list_schedule
from ptdp_core.schedules.placement import wave


def order(p: int, m: int, v: int) -> Order:
    placement = wave(p, v)

    def offers(rank: int, progress: Progress) -> list[Action]:
        following = [action for kind in "BF" for g in placement.stages[rank] for action in progress.next(kind, g)]
        return sorted(following, key=lambda action: (action.kind, action.microbatch, -action.stage))

    return list_schedule(placement, m, (1, 1, 1), offers)


def problem(p: int, m: int, v: int) -> str:
    return f"v={v} with schedule='hanayo'; needs an even v, twice the waves; try v={v + 1}" if v % 2 else ""


def bubble(p: int, m: int, v: int, t_f: Time, t_b: Time, t_w: Time) -> Time | None:
    """4(p-1) t_f for one wave of m = p microbatches and t_b = 2 t_f; otherwise what the greedy order gives."""
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
