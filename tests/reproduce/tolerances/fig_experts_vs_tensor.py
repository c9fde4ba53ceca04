"""Edges of the claims on expert against tensor parallelism."""

from tests.reproduce.tolerances.edges import over, under

EDGES = {
    "experts_first": [
        over(
            "throughput with e = 8, t = 1 is higher",
            1.0,
            model_throughput_per_gpu=lambda point, x, key=key: 1.0 if point.e != 8 else x if point.key == key else 2.0,
        )
        for key in ("h100_mixtral_e8", "h100_qwen3_e8")
    ],
    "experts_first_gb200": [
        over(
            "throughput with e = 8, t = 1 is higher",
            1.0,
            model_throughput_per_gpu=lambda point, x, key=key: 1.0 if point.e != 8 else x if point.key == key else 2.0,
        )
        for key in ("gb200_mixtral_e8", "gb200_qwen3_e8")
    ],
    "not_across_nodes": under(
        "is lower than with e = 8", 1.0, model_throughput_per_gpu=lambda point, x: x if point.e == 64 else 1.0
    ),
}
