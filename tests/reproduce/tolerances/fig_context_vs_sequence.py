"""Edges of the claims on context against tensor parallelism."""

from tests.reproduce.tolerances.edges import over, under

HIGHER = "throughput with c = 8 (t = 1) is higher than with t = 8"


def with_context(judged):
    """x with c = 8 at one length, 2 at the others; 1 with t = 8."""
    return lambda point, x: 1.0 if point.t == 8 else x if point.seq == judged else 2.0


EDGES = {
    "context_first": [over(HIGHER, 1.0, model_throughput_per_gpu=with_context(seq)) for seq in (8192, 65536, 131072)],
    "context_first_gb200": over(HIGHER, 1.0, model_throughput_per_gpu=with_context(8192)),
    "gain_falls": under("falls with the length", 2.0, model_throughput_per_gpu=with_context(131072)),
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
