"""Edges of the claims on the schedules' published numbers."""

from tests.reproduce.tolerances.edges import at, only, within

PASS = 1 / (3 * 11)  # of F, I or W, over the bubble of 1F1B on 12 ranks
MICROBATCH = 1 / 12  # over the memory of 1F1B on 12 ranks


def off_by_x(name):
    """Numbers over 1F1B's: 1, but one number of one schedule x more."""
    return {
        f"relative_{kind}": lambda point, x, kind=kind: 1 + x if (point.key, kind) == ("zb-h2", name) else 1.0
        for kind in ("bubble", "memory", "messages")
    } | dict.fromkeys(("published_bubble", "published_memory", "published_messages"), 1.0)


def bubble(judged, otherwise=1.0):
    """x forward passes as the bubble on each of p-1 ranks for one schedule: over 3m passes, of v chunks each."""
    return lambda point, x: (x if point.key == judged else otherwise) * 11 / (3 * 24 * point.v)


EDGES = {
    "published_ratios_hold": [
        *within("messages equal", 0.0, 1e-12, step=1e-14, **off_by_x("messages")),
        *within("bubbles no farther apart than one pass", 0.0, PASS, **off_by_x("bubble")),
        *within("memories no farther apart than 4/3 of a microbatch", 0.0, 4 / 3 * MICROBATCH, **off_by_x("memory")),
    ],
    "a_flush_leaves_a_bubble": [
        (
            only(
                "no bubble between a rank's first pass and its last",
                0.0,
                step=1e-12,
                own_bubble_fraction=at(0.0, key=name),
                bubble_fraction=bubble(None),
            ),
            within(
                "with the flush one of p-1 forward passes",
                1.0,
                1e-12 * 3 * 24 * v / 11,
                step=1e-13,
                own_bubble_fraction=0.0,
                bubble_fraction=bubble(name),
            ),
        )
        for name, v in (("zb-h2", 1), ("zb-v", 2))
    ],
    "dualpipev_is_better_than_its_formula": within(
        "a bubble of exactly 11 passes of a chunk", 1.0, 1e-9 / 11, step=1e-13, bubble_fraction=bubble("dualpipev")
    ),
}
