"""Edges of Figure 4's claims."""

from fractions import Fraction
from types import SimpleNamespace

from tests.reproduce.tolerances.edges import at, at_most, only, over, switch, under, within

MODULE = "reproduce.papers.sc21.fig_interleaved_timeline"

FEW_AND_MANY = ((4, 8), (12, 24))  # p and m: the figure's, and the deepest pipeline's


def stash(point):
    """As the claims say: GPipe's is m, 1F1B's no more than p."""
    return point.m if point.schedule == "gpipe" else 1


def inverse(value):
    return lambda point, x: 1 / value(point, x)


def bubble_over_the_ideal(x):
    """An order that runs, with x times the bubble (p-1)/(vm)."""
    return lambda schedule: SimpleNamespace(
        bubble=Fraction(x) * Fraction(schedule.placement.p - 1, schedule.placement.v * schedule.m)
    )


def stuck(schedule):
    """An order that cannot run."""
    raise ValueError("stuck")


one_that_runs = bubble_over_the_ideal(2)


def judged_point(point):
    return point.schedule == "interleaved" and (point.p, point.m, point.v) == (4, 8, 2)


def bubble_time(point, x):
    """A batch whose bubble is (p-1)(t_f + t_b)/v, x times that at one point."""
    return 3 * point.m + 3 * (point.p - 1) / point.v * (x if judged_point(point) else 1.0)


def bubble_share(point, x):
    """The bubble fraction (p-1)/(vm), x times that at one point."""
    return (point.p - 1) / (point.v * point.m) * (x if judged_point(point) else 1.0)


EDGES = {
    "one_f_one_b_bubble": [
        *(
            only("exactly, at every size", 100.0, makespan=at(100, schedule="1f1b", p=p, m=m), peak_stash=1)
            for p, m in FEW_AND_MANY
        ),
        *(
            at_most(
                "at most the number of pipeline stages",
                p,
                step=1,
                makespan=100,
                peak_stash=at(stash, schedule="1f1b", p=p, m=m),
            )
            for p, m in FEW_AND_MANY
        ),
    ],
    "one_f_one_b_stash": [
        *(at_most("at most p", p, step=1, peak_stash=at(stash, schedule="1f1b", p=p, m=m)) for p, m in FEW_AND_MANY),
        *(
            only("exactly m, at every size", m, step=1, peak_stash=at(stash, schedule="gpipe", p=p, m=m))
            for p, m in FEW_AND_MANY
        ),
    ],
    "interleaved_flush_sooner": [
        under("an earlier flush", 30.0, makespan=at(30, v=2), bubble_fraction=lambda point, x: 1 / point.v),
        under(
            "a smaller bubble, by any amount",
            0.375,
            makespan=lambda point, x: 30 / point.v,
            bubble_fraction=at(0.375, v=2),
        ),
    ],
    # in floating point, the bubble being a fraction
    "interleaved_bubble_by_v": [
        within(
            "a factor of v, exactly, at every size",
            v,
            1e-9,
            step=1e-12,
            bubble_fraction=inverse(at(lambda point: point.v, schedule="interleaved", p=p, m=m, v=v)),
        )
        for p, m, v in ((4, 8, 2), (4, 8, 4), (12, 24, 2))
    ],
    "interleaved_communication_by_v": within(
        "exactly v times as many messages", 4, 1e-9, step=1e-12, neighbour_messages=at(lambda point: point.v, v=4)
    ),
    "interleaved_communication_in_total": within(
        "exactly v times as many as 1F1B's",
        2,
        2e-9,
        step=1e-12,
        messages=lambda point, x: x if (point.p, point.m, point.v) == (4, 8, 2) else point.v,
    ),
    "interleaved_bubble_time": [
        within(
            "to 1e-9, at every size",
            1.0,
            1e-9,
            step=1e-12,
            makespan=lambda point, x, name=name: bubble_time(point, x if name == "makespan" else 1.0),
            bubble_fraction=lambda point, x, name=name: bubble_share(point, x if name == "bubble_fraction" else 1.0),
        )
        for name in ("makespan", "bubble_fraction")
    ],
    "all_forward_interleaved_stash": [
        only(
            "a peak of exactly m stashed microbatches",
            m,
            step=1,
            peak_stash=5.5,
            patch={
                f"{MODULE}.stashes_of": lambda x, m=m: lambda schedule: [2 * (x if schedule.m == m else schedule.m)]
            },
        )
        for m in (8, 64)
    ],
    "interleaved_multiple_of_p": switch(
        "it can run in no case", patch={f"{MODULE}.from_schedule": lambda x: stuck if x else one_that_runs}
    ),
    "interleaved_other_m_costs": over(
        "a bubble larger than (p-1)/(vm)",
        1 + 1e-9,
        step=1e-12,
        patch={f"{MODULE}.from_schedule": bubble_over_the_ideal},
    ),
}
