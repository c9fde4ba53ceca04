"""Edges of Figure 14's claims."""

from tests.reproduce.tolerances.edges import INCONSISTENT, above, falls, only, over, printed_sizes, rises, switch, under

SIZES = (2, 4, 8, 16, 32)
BATCHES = (32, 512)
ROWS = "reproduce.experiment.published.rows"


EDGES = {
    "throughput_falls_with_p": falls(
        "falls from each p to the next", "throughput_per_gpu", "p", SIZES, batches=BATCHES
    ),
    "matches_analytical_model": [
        *rises(
            "the executed bubble rises from each p to the next",
            "bubble_fraction",
            "p",
            SIZES,
            batches=BATCHES,
            throughput_per_gpu=lambda point, x: 1 / point.p,
        ),
        *falls(
            "while throughput falls",
            "throughput_per_gpu",
            "p",
            SIZES,
            batches=BATCHES,
            bubble_fraction=lambda point, x: float(point.p),
        ),
    ],
    "larger_batch_faster": [
        over(
            "is higher with the larger batch size",
            1.0,
            throughput_per_gpu=lambda point, x, p=p: 1.0 if point.B == 32 else x if point.p == p else 2.0,
        )
        for p in SIZES
    ],
    "fits_model_parallel_2": [
        switch(
            "with p=2, t=1 fits in memory at both batch sizes",
            peak_memory=1,
            out=lambda point, x, B=B: point.p > 2 or (point.B == B and not x),
        )
        for B in BATCHES
    ],
    "three_batch_sizes": only(
        "three in each",
        3,
        step=1,
        outside=INCONSISTENT,
        patch={ROWS: lambda x: lambda id: [{"B": B} for B in range(x)] * 2},
    ),
    "model_size": printed_sizes(layers_32="5.9"),
    "all_reduce_more_infrequent": [
        under(
            "data-parallel bytes per sequence (counted)",
            1.0,
            data_traffic=lambda point, x, p=p: point.B * (1.0 if point.B == 32 else x if point.p == p else 0.1),
            iteration_time=1,
            data_parallel_time=lambda point, x: 1 / point.B,
        )
        for p in (2, 32)
    ]
    + [
        under(
            "share of the iteration are both smaller with the larger batch size",
            0.5,
            data_traffic=1.0,
            iteration_time=1,
            data_parallel_time=lambda point, x, p=p: 0.5 if point.B == 32 else x if point.p == p else 0.1,
        )
        for p in (2, 32)
    ],
    "data_parallelism_to_scale": [
        above(
            "and the largest d (32) is the fastest, at both batch sizes",
            1.0,
            throughput_per_gpu=lambda point, x, B=B, p=p: (
                (x if point.B == B else 2.0) if point.p == 2 else 1.0 if point.p == p else 0.5
            ),
        )
        for B in BATCHES
        for p in (4, 32)
    ],
}
