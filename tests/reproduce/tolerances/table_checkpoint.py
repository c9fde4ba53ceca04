"""Edges of the claims of Section 5.10."""

from tests.reproduce.tolerances.edges import at, between, not_testable

EDGES = {
    "checkpoint_size": between(
        "13.75 to 13.85", 13.75e12, 13.85e12, outside="inconclusive", checkpoint_size=at(1, key="model_1008b")
    ),
    "load_bandwidth": not_testable(load_time=1, load_time_every_replica=1),
    "save_bandwidth": not_testable(save_time=1),
}
