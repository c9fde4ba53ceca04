"""Table 8: bubble rates beside ZB-V, whose times are not printed: a row's 1F1B and ZB-H1 tell them, the others follow.

The rates of 1F1B and ZB-H1 fix the time of a message and of W over a microbatch's; F and B are taken as equal.
"""

from reproduce.annex.papers.zero_bubble import Times
from reproduce.annex.papers.zerobubble import table_5
from reproduce.annex.papers.zerobubble.table_5 import NOTES, PAPER, QUANTITIES, derive
from reproduce.experiment import published
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told

ENTRY = f"{PAPER}/table_8"
MICROBATCH = 10_000_000  # the unit of the times: F + B + W


def points() -> tuple[Point, ...]:
    """Every rate of the table."""
    return tuple(
        table_5.point(ENTRY, row, times(*table_5.found()["times"][table_5.key_of(row)]))
        for row in published.rows(ENTRY)
    )


def times(message: int, weights: int) -> Times:
    """Times with equal F and B."""
    half = (MICROBATCH - weights) // 2
    return Times(half, MICROBATCH - weights - half, weights, message)


ARTIFACT = told(
    __name__,
    points=points,
    quantities=QUANTITIES,
    derive=derive,
    notes=("The times behind this table are not printed: 1F1B and ZB-H1 are inputs here.", *NOTES[1:]),
)
