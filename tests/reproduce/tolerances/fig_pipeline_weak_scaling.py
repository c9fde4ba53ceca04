"""Edges of Figure 11's claims."""

from tests.reproduce.tolerances.edges import above, printed_sizes, within

EDGES = {
    "higher_batch_scales_better": [
        above(
            "throughput at the largest p over that at p=1 is higher with the larger batch size",
            0.5,
            tie=False,
            throughput_per_gpu=lambda point, x: {1: 1.0, 8: x if point.B == 128 else 0.5}.get(point.p, point.B / 128),
        )
    ],
    "bubble_behaves_as_formula": [
        edge
        for B, p in ((8, 8), (128, 4), (8, 1))
        for edge in within(
            "within 0.10 of (p-1)/m at every point",
            0.0,
            0.10,
            bubble_fraction=lambda point, x, B=B, p=p: (
                (point.p - 1) / point.B + (x if (point.B, point.p) == (B, p) else 0)
            ),
        )
    ],
    "model_sizes": printed_sizes(layers_3="15", layers_24="121"),
}
