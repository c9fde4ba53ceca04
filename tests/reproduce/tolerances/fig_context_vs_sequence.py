"""Edges of the claims on context against tensor parallelism."""

from tests.reproduce.tolerances.edges import over, under

EDGES = {
    "context_first": [
        over(
            "throughput with c = 8 (t = 1) is higher than with t = 8",
            1.0,
            model_throughput_per_gpu=lambda point, x, seq=seq: 1.0 if point.t == 8 else x if point.seq == seq else 2.0,
        )
        for seq in (8192, 65536, 131072)
    ],
    "context_first_gb200": over(
        "throughput with c = 8 (t = 1) is higher than with t = 8",
        1.0,
        model_throughput_per_gpu=lambda point, x: 1.0 if point.t == 8 else x if point.seq == 8192 else 2.0,
    ),
    "gain_falls": under(
        "falls with the length",
        2.0,
        model_throughput_per_gpu=lambda point, x: 1.0 if point.t == 8 else x if point.seq == 131072 else 2.0,
    ),
    "context_before_pipeline": [
        over(
            "throughput with c = 8 is higher than with p = 8",
            1.0,
            model_throughput_per_gpu=lambda point, x, edge=edge: (
                (x if (point.seq, point.cluster) == edge else 2.0) if point.c == 8 else 1.0
            ),
        )
        for edge in ((8192, "h100"), (65536, "h100"), (65536, "gb200"))
    ],
}
