"""Edges of the claim on schedules that stash less."""

from tests.reproduce.tolerances.edges import below

EDGES = {
    "less_memory_pays_off": [
        below(
            "is shorter than the fastest of all with it",
            2.0,
            tie=False,
            # the fastest of each series is neither its first nor its last; other batches and clusters do not count
            iteration_time=lambda point, x: {"none_zb-v": x, "B48_hanayo": 2.0}.get(
                point.key, 3.0 if point.key.split("_")[0] != "B24" and "h100" not in point.key else 1.0
            ),
        )
    ]
}
