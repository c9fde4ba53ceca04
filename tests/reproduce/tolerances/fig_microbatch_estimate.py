"""Edges of Figure 8's claims."""

from tests.reproduce.tolerances.edges import above, between, over

MODULE = "reproduce.papers.sc21.fig_microbatch_estimate"
SIZES = (1, 2, 4, 8, 16)
# Figure 7 as if it had 100 teraFLOP/s, at b = 1 half of it; it is rounded to 1 teraFLOP/s, Figure 8 to 0.01.
RATES = {b: 50e12 if b == 1 else 100e12 for b in SIZES}
HALF_RATE, HALF_STEP = 0.5e12, 0.005


def by_eq_1(batch, b, off=0.0):
    """Eq. (1) for p = 8 on these rates; that of b `off` too high, that of b = 1 as much too low."""
    return (batch + 7) / ((batch / b + 7) * b) * (RATES[b] + off) / (RATES[1] - off)


def estimate(fixed, moved):
    """By x, eq. (1)'s estimates: 1 at b = 1, x at b = 2 where `moved`, 2 at b = 4 where `fixed`, else 0."""

    def normalised(x):
        def value(times, b, batch, p):
            return {1: 1.0, 2: x * moved(p, batch), 4: 2.0 * fixed(p, batch)}.get(b, 0.0)

        return value

    return normalised


EDGES = {
    "optimal_b_is_4": [
        above(
            "b=4 has the highest estimate of the five sizes",
            1.0,
            normalised_throughput=lambda point, x, batch=batch, other=other: (
                (x if point.batch_size == batch else 2) if point.b == 4 else float(point.b == other)
            ),
        )
        for batch in (128, 512)
        for other in (1, 2, 8, 16)
    ],
    "figure_8_is_eq_1_on_figure_7": between(
        "within the rounding of both figures",
        by_eq_1(128, 4, -HALF_RATE) - HALF_STEP,
        by_eq_1(128, 4, HALF_RATE) + HALF_STEP,
        patch={f"{MODULE}.figure_7": lambda x: lambda: RATES},
        paper={
            "normalised_throughput": lambda point, x: (
                x if point.key == "batch128_b4" else by_eq_1(point.batch_size, point.b)
            )
        },
    ),
    # b = 4 is the best at b' = 512 whatever p is, or at p = 64 whatever b' is; so the other dependence decides.
    "takeaway_3_by_formula": [
        over(
            words,
            1.0,
            microbatch_time=lambda point, x: point.b,
            patch={f"{MODULE}.normalised": estimate(fixed, lambda p, batch, cell=cell: (p, batch) == cell)},
        )
        for words, fixed, cells in (
            ("not the same for p = 1, 8, 64", lambda p, batch: batch == 512, ((1, 32), (8, 128), (64, 2048))),
            ("nor for b' = 32 to 2048", lambda p, batch: p == 64, ((1, 32), (8, 128), (8, 512), (1, 2048))),
        )
        for cell in cells
    ],
}
