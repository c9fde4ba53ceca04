"""Table 10: what post-validation of the optimizer step gains over an all-reduce: the flush's share of an execution."""

from typing import Any

from reproduce.annex.papers.zerobubble import table_5
from reproduce.annex.papers.zerobubble.table_5 import FLUSHED, PAPER, RATE
from reproduce.experiment import published
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from results.records import PaperValue

ENTRY, GAIN = f"{PAPER}/table_10", "post_validation_gain"


def points() -> tuple[Point, ...]:
    """A point for each model, with the ratio of the two published throughputs."""
    rows = published.rows(ENTRY)
    both = zip(rows[::2], rows[1::2], strict=True)
    return tuple(_point(validated, reduced) for validated, reduced in both)


def _point(validated: dict[str, Any], reduced: dict[str, Any]) -> Point:
    row = {**validated, "schedule": "ZB-2p"}
    executed = table_5.point(f"{PAPER}/table_5", row, table_5.times_of(row))
    gain = validated["samples_per_gpu_s"] / reduced["samples_per_gpu_s"] - 1
    return Point(executed.key, "ZB-2p", executed.label, executed.parameters, {GAIN: PaperValue(gain, "1", "table")})


def derive(point: Point) -> dict[str, float]:
    """How much longer an iteration takes if all ranks end together: the cost with a flush over that without, less 1."""
    rates = table_5.derive(point)
    own, flushed = (1 - rates[name] for name in (RATE, FLUSHED))
    return {GAIN: own / flushed - 1}


ARTIFACT = told(__name__, points=points, derive=derive)
