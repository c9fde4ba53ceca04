"""Edges of the claims that the paper's sentences hold today: those of the sentences, on the points of today."""

from dataclasses import replace

from reproduce.annex.papers.beyond import fig_what_still_holds
from tests.reproduce.tolerances.edges import altered, below, between, blanks, edges_in

THEN, TODAY = "a100", "h100"


def today(row):
    """Edges of a figure's claim: x in today's points, and in those of 2021 a value inside.

    The judge is the figure's, whose other edges are looked at there.
    """
    points = blanks(row.points)

    def of_era(era, results):
        return tuple(altered(point, key=f"{era}_{row.artifact.id}_{point.key}") for point in results)

    for edge in edges_in(row.artifact.id)[row.claim][:2]:
        inside = next(x for x, holds in edge.probes() if holds)
        then = of_era(THEN, edge.lay(points, inside, False))
        yield replace(
            edge, lay=lambda _, x, papers, edge=edge, then=then: then + of_era(TODAY, edge.lay(points, x, papers))
        )


def rates(tensor=0.4, pipeline=0.1):
    """Sequences/s on 8 and 16 GPUs, with these losses (None: x) of what each GPU does."""

    def value(point, x):
        loss = {"public_t16": tensor, "public_p16": pipeline}.get(point.key, 0.0)
        return (2.0 if point.key.endswith("16") else 1.0) * (1 - (x if loss is None else loss))

    return value


EDGES = {row.claim: list(today(row)) for row in fig_what_still_holds.ROWS} | {
    "public_measurements": [
        *between(
            "from t = 8 to 16, m = 8 both times, throughput per GPU falls by 30% to 55%",
            0.30,
            0.55,
            sequences_per_s=rates(tensor=None),
        ),
        below("from p = 8 to 16, m = p-1, by less than half of that", 0.2, sequences_per_s=rates(pipeline=None)),
    ]
}
