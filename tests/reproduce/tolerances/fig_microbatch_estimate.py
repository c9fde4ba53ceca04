"""Edges of Figure 8's claims."""

from tests.reproduce.tolerances.edges import above, between

MODULE = "reproduce.artifacts.fig_microbatch_estimate"
SIZES = (1, 2, 4, 8, 16)
# Figure 7 as if it had 100 teraFLOP/s at every b; it is rounded to 1 teraFLOP/s, Figure 8 to 0.01.
RATE, HALF_RATE, HALF_STEP = 100e12, 0.5e12, 0.005
BY_EQ_1 = {b: (128 + 7) / ((128 / b + 7) * b) for b in SIZES}  # at equal rates, B = 128, p = 8
MOST = (RATE + HALF_RATE) / (RATE - HALF_RATE)


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
            "b=4 has the highest estimate of the five sizes, for both batch sizes",
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
        BY_EQ_1[4] / MOST - HALF_STEP,
        BY_EQ_1[4] * MOST + HALF_STEP,
        patch={f"{MODULE}.figure_7": lambda x: lambda: dict.fromkeys(SIZES, RATE)},
        paper={
            "normalised_throughput": lambda point, x: (
                x
                if point.key == "batch128_b4"
                else (point.batch_size + 7) / ((point.batch_size / point.b + 7) * point.b)
            )
        },
    ),
    # b = 4 is the best at b' = 2048 whatever p is, or at p = 64 whatever b' is; so the other dependence decides.
    "takeaway_3_by_formula": [
        above(
            words,
            1.0,
            tie=False,
            microbatch_time=lambda point, x: point.b,
            patch={f"{MODULE}.normalised": estimate(fixed, moved)},
        )
        for words, fixed, moved in (
            ("not the same for p = 1, 8, 64", lambda p, batch: batch == 2048, lambda p, batch: (p, batch) == (64, 32)),
            ("nor for b' = 32 to 2048", lambda p, batch: p == 64, lambda p, batch: (p, batch) == (1, 512)),
        )
    ],
}
