"""Edges of Figure 17's claims."""

from tests.reproduce.tolerances.edges import at, between, printed_sizes, switch

WITH, WITHOUT = "With recomputation", "Without recomputation"
FITS = 8  # the largest batch size that fits without recomputation, in the paper


def peaks(point, best):
    """2 at the best batch size with recomputation, 1 at that without, elsewhere 0.5."""
    return {WITH: 2.0, WITHOUT: 1.0}[point.series] if best[point.series] == point.B else 0.5


def too_large(point):
    return point.series == WITHOUT and point.B > FITS


EDGES = {
    "up_to_33_percent_lower": [
        between(
            "is 32.5% to 33.5%",
            1 - 0.335,
            1 - 0.325,
            sequences_per_s=at(series=WITH, B=B),
            out=lambda point, x: too_large(point),
        )
        for B in (1, FITS)
    ],
    "needed_for_larger_batches": [
        switch(
            "every batch size fits with recomputation",
            peak_memory=1,
            out=lambda point, x: too_large(point) or (point.key == "full_B256" and not x),
        ),
        switch("without it some do not", peak_memory=1, out=lambda point, x: too_large(point) and x == 1),
        switch(
            "and these are the largest",
            peak_memory=1,
            out=lambda point, x: too_large(point) or (point.key == "none_B4" and not x),
        ),
    ],
    "up_to_two_times_higher": [
        *between(
            "between 1.95 and 2.05",
            1.95,
            2.05,
            tie=True,
            sequences_per_s=at(
                lambda point: 1.0 if point.series == WITHOUT and point.B == FITS else 0.5, series=WITH, B=256
            ),
            out=lambda point, x: too_large(point),
        ),
        # Where the best with recomputation is at 8, too, the best without it is at no smaller batch size.
        switch(
            "the latter at a smaller batch size",
            sequences_per_s=lambda point, x: peaks(point, {WITH: 256 if x else FITS, WITHOUT: FITS}),
            out=lambda point, x: too_large(point),
        ),
    ],
    "model_size": printed_sizes(layers_80="145"),
}
