"""Edges of Figure 15's claims."""

from tests.reproduce.tolerances.edges import at, between, falls, larger_across_nodes, over, printed_sizes

SIZES = (2, 4, 8, 16, 32)
BATCHES = (32, 128, 512)


def per_sequence(value):
    return lambda point, x: value(point, x) * point.B


EQUAL = "each equal, at every t"
EDGES = {
    "tensor_every_microbatch": [
        between(EQUAL, 1 / (1 + 1e-9), 1 + 1e-9, step=1e-14, tensor_traffic=per_sequence(tensor), data_traffic=data)
        for B, t in ((32, 2), (512, 32))
        for tensor, data in ((at(B=B, t=t), 1.0), (lambda point, x: 1.0, at(B=B, t=t)))
    ],
    "tensor_dominates": [
        over(
            "take more than half of the iteration for every t of Figure 15",
            0.5,
            iteration_time=1,
            tensor_communication_time=at(lambda point: 0.9 if point.B > 32 else 0.1, B=B, t=t),
        )
        for B in BATCHES[1:]
        for t in (2, 32)
    ],
    "tensor_dominates_across_nodes": [
        over(
            "take more than half of the iteration for every t > 8 of Figure 15",
            0.5,
            iteration_time=1,
            tensor_communication_time=at(lambda point: 0.9 if point.t > 8 and point.B > 32 else 0.1, B=B, t=t),
        )
        for B in BATCHES[1:]
        for t in (16, 32)
    ],
    "especially_across_nodes": larger_across_nodes(
        "a larger share of the iteration for every t > 8 (16, 32) than for any t <= 8", BATCHES
    ),
    "smaller_multiplications": falls("fall from each t to the next", "gemm_throughput", "t", SIZES, batches=BATCHES),
    "model_size": printed_sizes(layers_32="5.9"),
}
