"""Edges of the claims of Section 5.8."""

from tests.reproduce.tolerances.edges import between

# Unfused and fused throughput as printed, in teraFLOP/s, and the gain in percent.
PRINTED = {"fusion_175b": ("GPT-3 175B", 113, 135, 19), "fusion_530b": ("530B", 133, 148, 11)}


def edges(series, unfused, fused, gain):
    """Of the gain, where the unfused throughput is as printed; of both levels, with the printed gain."""

    def scaled(point, x):
        return 1e12 * x * (fused if point.fused else unfused) if point.series == series else 1.0

    def fused_only(point, x):
        return 1e12 * unfused * (x if point.fused else 1.0) if point.series == series else 1.0

    low, high = (1 + (gain + sign * 0.5) / 100 for sign in (-1, 1))
    off = 0.5 / fused  # the larger of both is the first to round to another number
    return (
        between(f"the gain rounds to {gain}%", low, high, throughput_per_gpu=fused_only),
        between("both levels round to those printed", 1 - off, 1 + off, throughput_per_gpu=scaled),
    )


EDGES = {id: edges(*printed)[0] for id, printed in PRINTED.items()} | {
    f"{id}_levels": edges(*printed)[1] for id, printed in PRINTED.items()
}
