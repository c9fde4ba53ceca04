"""Edges of Figure 18's claims."""

from tests.reproduce.tolerances.edges import at, between, only, over, under

OFF, ON = "Unoptimized", "Scatter/gather optimization"
DEFAULT_OFF, DEFAULT_ON = "Default schedule, unoptimized", "Default schedule, scatter/gather"
BATCHES = (12, 24, 36, 48, 60)


AHEAD = "faster than the interleaved schedule without it at the largest batch size of the figure, 60"

EDGES = {
    "up_to_11_percent": [
        between(
            "is 10.5% to 11.5%",
            1.105,
            1.115,
            throughput_per_gpu=at(lambda point: 1.3 if point.series == ON and point.B < 36 else 1.0, series=ON, B=B),
        )
        for B in (36, 60)
    ],
    "larger_batches_gain_more": over(
        "is larger at the largest batch size",
        1.05,
        throughput_per_gpu=at(lambda point: 1.05 if point.series == ON else 1.0, series=ON, B=60),
    ),
    "makes_interleaving_feasible": [
        *(
            over(
                "the interleaved schedule is faster with scatter/gather than the default one at every batch size",
                1.0,
                throughput_per_gpu=at(lambda point: {ON: 2.0, OFF: 0.5}.get(point.series, 1.0), series=ON, B=B),
            )
            for B in (12, 60)
        ),
        under(
            "and slower without it at the largest, 60",
            1.0,
            throughput_per_gpu=at(lambda point: 2.0 if point.series in (ON, OFF) else 1.0, series=OFF, B=60),
        ),
    ],
    "communication_intensive": [
        over(
            "is larger with the interleaved than with the default schedule, at every batch size",
            1.05,
            throughput_per_gpu=at(lambda point: {ON: 1.5, DEFAULT_ON: 1.05}.get(point.series, 1.0), series=ON, B=B),
        )
        for B in BATCHES
    ],
    "bytes_reduced_by_t": [
        only(
            "fall to 1/t of what they are without, at every batch size",
            8.0,
            step=1e-14,
            pipeline_traffic=at(lambda point: 8.0 if point.series == OFF else 1.0, series=OFF, B=B),
        )
        for B in BATCHES
    ],
    **{
        id: [
            over(
                AHEAD,
                1.0,
                throughput_per_gpu=at(
                    lambda point, series=series: 0.5 if point.series == series else 1.0, series=series, B=60
                ),
            )
        ]
        for id, series in (("default_ahead_both_without", DEFAULT_OFF), ("default_ahead_of_unoptimized", DEFAULT_ON))
    },
}
