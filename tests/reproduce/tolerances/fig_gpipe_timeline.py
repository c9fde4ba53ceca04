"""Edges of Figure 3's claims."""

from dataclasses import replace

from reproduce.papers.sc21.fig_gpipe_timeline import ARTIFACT, timeline
from tests.reproduce.tolerances.edges import at, at_least, blanks, only, over

TIMELINE = "reproduce.papers.sc21.fig_gpipe_timeline.timeline"

LONG = "gpipe-p4-m128-tb2"

EXECUTED = {blank.seen.key: timeline(blank.result) for blank in blanks(ARTIFACT.points())}


def later_on_the_last_device(x):
    """The timeline, with everything the last device waits later by x."""

    def changed(point):
        run = EXECUTED[point.key]
        last = tuple(event._replace(start=event.start + x, end=event.end + x) for event in run.rows[-1])
        return replace(run, rows=(*run.rows[:-1], last))

    return changed


def longer_on_the_first_device(x):
    """The timeline, with the first pass of the first device longer by x, so that it idles less."""

    def changed(point):
        run = EXECUTED[point.key]
        first, *others = run.rows[0]
        return replace(run, rows=((first._replace(end=first.end + x), *others), *run.rows[1:]))

    return changed


def bubble(key):
    return at(lambda point: point.paper["bubble_fraction"], key=key)


EDGES = {
    "gpipe_efficiency": [
        only(
            "the same bubble fraction for t_b/t_f = 1, 1.5, 2 and 3, exactly", 0.375, bubble_fraction=at(0.375, t_b=t_b)
        )
        for t_b in (1, 1.5, 2, 3)
    ],
    "gpipe_bubble_time": [
        only("the last device waits", 0, step=1e-9, makespan=1, patch={TIMELINE: later_on_the_last_device}),
        only("every device for", 0, step=1e-9, makespan=1, patch={TIMELINE: longer_on_the_first_device}),
    ],
    "gpipe_bubble_fraction": [
        only("exactly, at ten points", (p - 1) / m, bubble_fraction=bubble(f"gpipe-p{p}-m{m}-tb2"))
        for p, m in ((2, 8), (4, 128))
    ],
    "gpipe_stash": [
        only(
            "exactly m stashed microbatches, at ten points",
            m,
            step=1,
            peak_stash=at(lambda point: point.m, key=f"gpipe-p{p}-m{m}-tb2"),
        )
        for p, m in ((2, 8), (4, 128))
    ],
    "gpipe_ideal_time": only(
        "computes for exactly m(t_f + t_b), at ten points",
        0,
        step=1e-9,
        makespan=1,
        patch={TIMELINE: longer_on_the_first_device},
    ),
    "gpipe_needs_many_microbatches": [
        over(
            "the bubble over the ideal time is at most 5% only where m is at least ten times p",
            0.05,
            bubble_fraction=at(lambda point: 0.02 if point.m == 128 else 1.0, key="gpipe-p8-m64-tb2"),
        ),
        at_least(
            "only where m is at least ten times p",
            40,
            step=1,
            bubble_fraction=lambda point, x: 0.02 if point.key == LONG else 1.0,
            change=lambda point, x: {"m": x} if point.key == LONG else {},
        ),
    ],
}
