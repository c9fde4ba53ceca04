"""Edges of the claims of Section 5.10."""

from tests.reproduce.tolerances.edges import at, between, not_testable

EDGES = {
    "checkpoint_size": between(
        "within 5%",
        0.95 * 13.8e12,
        1.05 * 13.8e12,
        checkpoint_size=at(1, key="model_1008b"),
    ),
    "load_bandwidth": not_testable(load_time=1, load_time_every_replica=1),
    "save_bandwidth": not_testable(save_time=1),
}
