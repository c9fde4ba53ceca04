"""Edges of Figure 18's claims."""

from tests.reproduce.tolerances.edges import above, between, only

OFF, ON = "Unoptimized", "Scatter/gather optimization"
DEFAULT_OFF, DEFAULT_ON = "Default schedule, unoptimized", "Default schedule, scatter/gather"
BATCHES = (12, 24, 36, 48, 60)


def at(series, B, otherwise):
    """x for a series at a batch size, elsewhere a value for each series, 1 if it has none."""
    return lambda point, x: x if (point.series, point.B) == (series, B) else otherwise.get(point.series, 1.0)


AHEAD = "faster than the interleaved schedule without it at the largest batch size of the figure, 60"

EDGES = {
    "up_to_11_percent": [
        edge
        for B in (12, 60)
        for edge in between(
            "the largest gain over the batch sizes is between 8% and 14%",
            1.08,
            1.14,
            throughput_per_gpu=at(ON, B, {}),
        )
    ],
    "communication_intensive": [
        above(
            "a larger gain with the interleaved than with the default schedule, at every batch size",
            1.05,
            tie=False,
            throughput_per_gpu=at(ON, B, {ON: 1.5, DEFAULT_ON: 1.05}),
        )
        for B in BATCHES
    ],
    "bytes_reduced_by_t": [
        only(
            "by the factor t at every batch size, exactly",
            8.0,
            step=1e-14,
            pipeline_traffic=at(OFF, B, {OFF: 8.0}),
        )
        for B in BATCHES
    ],
    **{
        id: [above(AHEAD, 1.0, tie=False, throughput_per_gpu=at(series, 60, {series: 0.5}))]
        for id, series in (("default_ahead_both_without", DEFAULT_OFF), ("default_ahead_of_unoptimized", DEFAULT_ON))
    },
}
