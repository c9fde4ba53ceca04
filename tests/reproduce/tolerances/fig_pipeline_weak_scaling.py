"""Edges of Figure 11's claims."""

from tests.reproduce.tolerances.edges import INCONSISTENT, PARAMETERS, between, over

PRINTED = {3: 15, 24: 121}  # billions, by layers


def size(model):
    return PRINTED[model.layers] * 1e9


EDGES = {
    "higher_batch_scales_better": over(
        "is higher with the larger batch size",
        0.5,
        throughput_per_gpu=lambda point, x: {1: 1.0, 8: x if point.B == 128 else 0.5}.get(point.p, point.B / 128),
    ),
    "bubble_behaves_as_formula": [
        between(
            "within 10% of (p-1)/m at every point",
            0.9,
            1.1,
            bubble_fraction=lambda point, x, B=B, p=p: (
                0.3 if point.p == 1 else (point.p - 1) / point.B * (x if (point.B, point.p) == (B, p) else 1)
            ),
        )
        for B, p in ((8, 8), (128, 4))
    ],
    "model_sizes": [
        between(
            "within 10% of each number printed",
            0.9 * billions * 1e9,
            1.1 * billions * 1e9,
            outside=INCONSISTENT,
            patch={PARAMETERS: lambda x, judged=judged: lambda model: x if model.layers == judged else size(model)},
        )
        for judged, billions in PRINTED.items()
    ],
}
