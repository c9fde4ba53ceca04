"""Edges of the claims on expert against tensor parallelism."""

from tests.reproduce.tolerances.edges import over, under

EDGES = {
    claim: [
        over(
            "throughput with e = 8, t = 1 is higher",
            1.0,
            model_throughput_per_gpu=lambda point, x, key=key: 1.0 if point.e != 8 else x if point.key == key else 2.0,
        )
        for key in (f"{cluster}_mixtral_e8", f"{cluster}_qwen3_e8")
    ]
    for claim, cluster in (("experts_first", "h100"), ("experts_first_gb200", "gb200"))
} | {
    "not_across_nodes": under(
        "is lower than with e = 8", 1.0, model_throughput_per_gpu=lambda point, x: x if point.e == 64 else 1.0
    ),
}
