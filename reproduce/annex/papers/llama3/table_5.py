"""Table 5 and Section 3.3.4: what interrupted 54 days on 16,384 GPUs, counted again."""

from math import fsum

from reproduce.experiment import published
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told

ID, SECTION = "llama3/table_5", "llama3/section_3_3_4"
TEXT, ROWS = "Section 3.3.4", "Table 5"
UNEXPECTED, DAYS, GPUS = 419, 54, 16384
SHARE, COUNT, AS_PRINTED = "share", "interruptions", "share_as_printed"
BETWEEN, GPU_BETWEEN = "time_between", "gpu_time_between"
# The categories that a sentence of the text is about; none: all.
SAID: dict[str, tuple[str, ...]] = {
    "all": (),
    "unexpected": (),
    "gpu": ("GPU",),
    "hardware": ("GPU", "Host", "Unplanned maintenance"),
}


def points() -> tuple[Point, ...]:
    """The rows of the table, and what the text says of their sums."""
    text = {row["key"]: row for row in published.rows(SECTION)}
    said = [
        Point(
            f"text_{key}",
            TEXT,
            key,
            {"which": key, "interruptions": text[key].get(COUNT)},
            published.paper_values(SECTION, text[key]),
        )
        for key in SAID
    ]
    rows = [
        Point(
            f"row_{number}",
            ROWS,
            row["component"],
            published.parameters_of(ID, row) | {"count": row["interruptions"]},
            published.paper_values(ID, row),
        )
        for number, row in enumerate(published.rows(ID))
    ]
    return (*rows, *said)


def derive(point: Point) -> dict[str, float]:
    """The share of 419 of a row, or of all rows of some categories; and the time from one interruption to the next."""
    if "count" in point.parameters:
        return {SHARE: point.parameters["count"] / UNEXPECTED}
    which = point.parameters["which"]
    if which == "all":
        seconds = DAYS * 86400 / point.parameters["interruptions"]
        return {BETWEEN: seconds, GPU_BETWEEN: seconds * GPUS}
    held = [row for row in published.rows(ID) if not SAID[which] or row["category"] in SAID[which]]
    count = sum(row["interruptions"] for row in held)
    return {
        COUNT: count,
        SHARE: count / UNEXPECTED,
        AS_PRINTED: fsum(row["share"] for row in held) / 100,
    }


ARTIFACT = told(__name__, points=points, derive=derive)
