"""Edges of the claims of Section 5.9."""

from tests.reproduce.tolerances.edges import at, between, edge

SET_WITH = "reproduce.papers.sc21.table_bandwidth.set_with_these"
FACTOR = "within a factor of 2"


EDGES = {
    "pipeline_bisection": between(
        FACTOR, 892e9 / 2, 892e9 * 2, tie=True, bisection_bandwidth=at(key="pipeline"), whole_iteration=1
    ),
    "data_bisection": [
        *between(
            FACTOR,
            12.9e12 / 2,
            12.9e12 * 2,
            tie=True,
            bisection_bandwidth=at(key="data"),
            patch={SET_WITH: lambda x: dict},
        ),
        edge(
            "within a factor of 2 of 12.9 TB/s",
            0.5,
            "below",
            step=0.5,
            outside="inconclusive",
            bisection_bandwidth=12.9e12,
            patch={SET_WITH: lambda x: lambda: {"hca_bandwidth": 25e9} if x else {}},
        ),
    ],
}
