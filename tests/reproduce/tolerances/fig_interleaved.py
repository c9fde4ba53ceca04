"""Edges of Figure 12's claims."""

from tests.reproduce.tolerances.edges import INCONSISTENT, above, at, at_least, below, between, falls, over, under

BATCHES = (12, 24, 36, 48, 60)
DEFAULT, INTERLEAVED = "Non-interleaved", "Interleaved"


def interleaved(judged=None, others=1.0):
    """x for the interleaved schedule at a batch size (None: all), `others` at the others; 1 for the default."""
    return lambda point, x: 1.0 if point.series == DEFAULT else x if judged in (None, point.B) else others


def small(judged):
    """x at one of the small batch sizes, a gain at the other, and none at the large ones."""
    return lambda point, x: interleaved(judged, 2.0 if point.B < 36 else 0.5)(point, x)


def per_sequence(value):
    """A total for the batch, by what it is for a sequence."""
    return lambda point, x: value(point, x) * point.B


def bytes_of(series, B):
    """Bytes per sequence: 1, or 2 when interleaved; x times as many at one point."""
    return lambda point, x: (1 if point.series == DEFAULT else 2) * (x if (point.series, point.B) == (series, B) else 1)


EDGES = {
    "improves_throughput": [
        at_least("at least 10% at one batch size", 1.10, throughput_per_gpu=interleaved(B)) for B in (12, 60)
    ],
    "comparable_memory": [
        below("the fullest GPU's peak is at most 5% above", 1.05, peak_memory=interleaved(B)) for B in BATCHES
    ],
    # 100 and x teraFLOP/s, plotted to 1 teraFLOP/s: 10.5% are contradicted where (x - 0.5)/(100 + 0.5) > 1.105
    "as_much_as_10_percent": [
        below(
            "the largest gain over the batch sizes is 9.5 to 10.5%",
            1.105 * 100.5e12 + 0.5e12,
            outside=INCONSISTENT,
            paper={"throughput_per_gpu": at(100e12, series=INTERLEAVED, B=36)},
        ),
        # likewise below 9.5%, where (x + 0.5)/(100 - 0.5) < 1.095
        above(
            "more, or less, by more than the rounding of both values contradicts it",
            1.095 * 99.5e12 - 0.5e12,
            outside=INCONSISTENT,
            paper={"throughput_per_gpu": at(100e12, series=INTERLEAVED, B=36)},
        ),
    ],
    "improves_small_batches": [
        over("is above 0 at each of the small batch sizes", 1.0, throughput_per_gpu=small(B)) for B in (12, 24)
    ],
    "interleaved_higher": [
        over("higher at every batch size", 1.0, throughput_per_gpu=interleaved(B, others=2.0)) for B in BATCHES
    ],
    "gap_closes": falls(
        "less 1, falls from each batch size",
        "throughput_per_gpu",
        "B",
        BATCHES,
        among=lambda point: point.series == INTERLEAVED,
        rest=1.0,
    ),
    "reason_a_bubble": [
        *(
            under(
                "fall from each batch size of Figure 12",
                float(5 - i),
                bubble_time=per_sequence(
                    lambda point, x, judged=B: (
                        0.0 if point.series == INTERLEAVED else x if judged == point.B else 5 - BATCHES.index(point.B)
                    )
                ),
            )
            for i, B in enumerate(BATCHES[1:])
        ),
        under(
            "from the first to the last by more than the interleaved schedule's",
            4.0,
            bubble_time=per_sequence(
                lambda point, x: 5 - BATCHES.index(point.B) if point.series == DEFAULT else x if point.B == 12 else 0.0
            ),
        ),
    ],
    "reason_b_communication": [
        *(
            between(
                "are equal over the batch sizes",
                1 / (1 + 1e-9),
                1 + 1e-9,
                step=1e-14,
                pipeline_traffic=per_sequence(bytes_of(series, B)),
            )
            for series, B in ((DEFAULT, 12), (INTERLEAVED, 60))
        ),
        over("more when interleaved", 1.0, pipeline_traffic=per_sequence(interleaved()), pipeline_communication_time=1),
    ],
}
