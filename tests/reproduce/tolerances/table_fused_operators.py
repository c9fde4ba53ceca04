"""Edges of the claims of Section 5.8."""

from tests.reproduce.tolerances.edges import between

EDGES = {
    id: between(
        "the gain within 5 percentage points",
        low,
        high,
        throughput_per_gpu=lambda point, x, series=series: x if point.series == series and point.fused else 1,
    )
    for id, series, low, high in (("fusion_175b", "GPT-3 175B", 1.14, 1.24), ("fusion_530b", "530B", 1.06, 1.16))
}
