"""Edges of Figure 13's claims."""

from tests.reproduce.tolerances.edges import (
    INCONSISTENT,
    above,
    at,
    at_least,
    at_most,
    below,
    between,
    falls,
    larger_across_nodes,
    printed_sizes,
    rises,
    under,
    within,
)

SIZES = (2, 4, 8, 16, 32)
BATCHES = (32, 128)
MODULE = "reproduce.papers.sc21.fig_tensor_vs_pipeline"
COUNT = "reproduce.papers.sc21.fig_tensor_vs_pipeline.parameters"


def bubble(schedule, x):
    """(p-1)/m, with x more for one schedule."""
    p, m = schedule.placement.p, schedule.m
    return (p - 1) / m + (x if (p, m) == (8, 32) else 0.0)


def fastest(B, other):
    """x at t = 8 and a batch size, 1 at another t, less elsewhere."""
    return lambda point, x: (x if point.B == B else 2.0) if point.t == 8 else 1.0 if point.t == other else 0.5


EDGES = {
    "best_at_node_size": [
        above("is the fastest", 1.0, throughput_per_gpu=fastest(B, t)) for B in BATCHES for t in SIZES if t != 8
    ],
    "up_to_two_times_lower": [
        at_least("less is too near to call", 1.95, outside="inconclusive", throughput_per_gpu=at(B=128, t=8)),
        at_most("more contradicts it", 2.05, throughput_per_gpu=at(B=128, t=8)),
    ],
    "tensor_best_within_node": [
        larger_across_nodes(
            "every t > 8 (16, 32) spends a larger share of its iteration in tensor all-reduces than any t <= 8",
            BATCHES,
            throughput_per_gpu=lambda point, x: 1 / point.t,
        ),
        *(
            under(
                "slower than t = 8, at both batch sizes",
                1.0,
                iteration_time=1,
                tensor_communication_time=lambda point, x: point.t / 64,
                throughput_per_gpu=at(lambda point: 1.0 if point.t <= 8 else 0.5, B=B, t=t),
            )
            for B in BATCHES
            for t in (16, 32)
        ),
    ],
    "pipeline_messages_cheap": [
        at_most("at most 10% of an iteration", 0.10, iteration_time=1, pipeline_communication_time=at(0.0, B=B, t=t))
        for B in BATCHES
        for t in SIZES
    ],
    "bubble_falls_with_t": falls(
        "falls from each t to the next, at both batch sizes", "bubble_fraction", "t", SIZES, batches=BATCHES
    ),
    "both_in_conjunction": [
        under(
            "are slower than its best at both batch sizes",
            1.0,
            throughput_per_gpu=at(lambda point: 1.0 if point.t == 8 else 0.5, B=B, t=t),
        )
        for B in BATCHES
        for t in (2, 32)
    ],
    "model_size_in_caption": printed_sizes(layers_32="162.2"),
    "model_size_in_text": between(
        "rounded to the digits printed, is 161 billion",
        160.5,
        161.5,
        tie=False,
        outside=INCONSISTENT,
        patch={COUNT: lambda x: lambda model: x * 1e9},
    ),
    "bubble_in_terms_of_t": within(
        "(n/t-1)/m",
        0.0,
        1e-9,
        step=1e-15,
        patch={f"{MODULE}.bubble_fraction": lambda x: lambda schedule, t_f, t_b: bubble(schedule, x)},
    ),
    "communication_rises_with_t": [
        rises("rise from each t to the next, at both batch sizes", one, "t", SIZES, batches=BATCHES, **{other: 1.0})
        for one, other in (("tensor_traffic", "pipeline_traffic"), ("pipeline_traffic", "tensor_traffic"))
    ],
    "stages_should_be_limited": [
        at_least(
            "where m = p (p=32, B=32) the bubble takes at least a quarter of the iteration",
            0.25,
            iteration_time=1,
            bubble_time=at(0.0, B=32, p=32),
            throughput_per_gpu=lambda point, x: 1.0 if point.p == 8 else 0.5,
        ),
        below(
            "the fastest combination at either batch size has m of at least 4p",
            1.0,
            iteration_time=1,
            bubble_time=0.5,
            throughput_per_gpu=at(lambda point: 1.0 if point.p == 8 else 0.5, B=32, p=16),
        ),
    ],
}
