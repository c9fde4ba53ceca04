"""Edges of Figure 7's claims."""

from tests.reproduce.tolerances.edges import between

EDGES = {
    "up_to_1_3_times": between(
        "is 1.25 to 1.35", 1.25, 1.35, model_throughput_per_gpu=lambda point, x: {1: 1, 8: x}.get(point.b, 0.9)
    ),
    "a_billion_parameters": between(
        "rounds to one billion",
        0.5e9,
        1.5e9,
        tie=False,
        patch={"reproduce.papers.sc21.fig_microbatch_single_gpu.parameters": lambda x: lambda model: x},
    ),
}
