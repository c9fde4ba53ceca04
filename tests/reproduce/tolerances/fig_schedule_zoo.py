"""Edges of the claim on schedules that stash less."""

from tests.reproduce.tolerances.edges import switch, under

EDGES = {
    "less_memory_pays_off": [
        under(
            "is shorter than the fastest of all with it",
            2.0,
            # the fastest of each series is neither its first nor its last; other batches and clusters do not count
            iteration_time=lambda point, x: {"none_v-half": x, "B48_hanayo": 2.0}.get(
                point.key, 3.0 if point.key.split("_")[0] != "B24" and "h100" not in point.key else 1.0
            ),
        ),
        *(
            switch(
                "of a schedule that stashes less than 1F1B",
                iteration_time=lambda point, x, other=other: (
                    1.0 if point.key == ("none_v-half" if x else f"none_{other}") else 2.0
                ),
            )
            for other in ("1f1b", "zb-v", "zb-h2")
        ),
    ]
}
