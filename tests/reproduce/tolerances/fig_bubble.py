"""Edges of Figure 6's claims."""

from tests.reproduce.tolerances.edges import at, falls, under, within

SERIES = {"n=32, b'=32": (1, 2, 4, 8, 16, 32), "n=128, b'=512": (1, 2, 4, 8, 16, 32, 64)}


def smaller_with_b_prime(n, d):
    """1/b' of the execution, x at the larger b' of n and d; none where d = n."""
    largest = {32: 128, 128: 512}[n]
    return lambda point, x: (
        0.0 if point.d == point.n else x if (point.n, point.d, point.b_prime) == (n, d, largest) else 1 / point.b_prime
    )


EDGES = {
    "formula_is_the_schedule": within(
        "the executed schedule's bubble over the ideal time equals the formula",
        1.0,
        1e-9,
        step=1e-12,
        bubble_fraction=1.0,
        executed_bubble_fraction=at(1.0, key="n32_b128_d4"),
    ),
    "larger_d_smaller_bubble": [
        falls(
            "falls from each d to the next, in every series",
            "executed_bubble_fraction",
            "d",
            (1, 2, 4, 8, 16, 32, 64),
            among=lambda point, series=series: point.series == series,
        )[: len(sizes) - 1]
        for series, sizes in SERIES.items()
    ],
    "larger_batch_smaller_bubble": [
        under(
            "at equal n and d < n, the series with the larger b' has the smaller bubble",
            1 / n,
            executed_bubble_fraction=smaller_with_b_prime(n, d),
        )
        for n, d in ((32, 1), (32, 16), (128, 64))
    ],
}
