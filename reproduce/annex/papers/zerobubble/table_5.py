"""Table 5: bubble rates of six schedules, executed with the times of Table 9 and its time of a message.

ZB-1p and ZB-2p, which the authors search, follow a rule each, found by `zero_bubble.search`: `found.json` keeps the
rules and what they cost, which tests execute again.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from ptdp_core.schedules import build
from reproduce.annex.papers.zero_bubble import StageCosts, Times, execute, rate
from reproduce.experiment import published
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.sweep import Point, slug
from reproduce.experiment.told import told

PAPER = "zerobubble"
ZOO = {"1F1B": "1f1b", "1F1B-I": "interleaved", "ZB-H1": "zb-h1", "ZB-H2": "zb-h2", "ZB-V": "zb-v"}
SEARCHED = {"ZB-1p": 1, "ZB-2p": 2}  # how many times p activations they may keep
RATE, FLUSHED, EARLIER = "bubble_rate", "flushed_bubble_rate", "bubble_rate_less_a_ring"


@cache
def found() -> Any:
    """Rules and costs of the searched schedules, and times that follow from printed rates, by model, p and m."""
    return json.loads(Path(__file__).with_name("found.json").read_text(encoding="utf-8"))


def model_of(name: str) -> dict[str, Any]:
    """A model's row of Table 3, with the sequence length and vocabulary of all."""
    (row,) = (row for row in published.rows(f"{PAPER}/table_3") if row["model"] == name)
    return {**row, **published.text_sizes(f"{PAPER}/table_3")}


def key_of(row: dict[str, Any]) -> str:
    """What names a model on p stages with m microbatches."""
    return f"{row['model']}_p{row['p']}_m{row['m']}"


def weight_memory(model: dict[str, Any]) -> float:
    """Activations that W still needs over all of a microbatch's: 32 / (34 + 5as/h) without fused attention."""
    return float(32 / (34 + 5 * model["heads"] * model["seq"] / model["hidden"]))


def times_of(row: dict[str, Any]) -> Times:
    """Table 9's times of a row, in whole microseconds."""
    (times,) = (printed for printed in published.rows(f"{PAPER}/table_9") if key_of(printed) == key_of(row))
    return Times(*(round(1000 * times[name]) for name in Times._fields))


def points() -> tuple[Point, ...]:
    """Every rate of the table."""
    entry = f"{PAPER}/table_5"
    return tuple(point(entry, row, times_of(row)) for row in published.rows(entry))


def point(entry: str, row: dict[str, Any], times: Times) -> Point:
    """The point of a rate, with all that it is derived from among its parameters."""
    parameters = {name: row[name] for name in ("model", "p", "m", "schedule")} | times._asdict()
    if row["schedule"] in SEARCHED:
        kept = found()["searched"][key_of(row)][row["schedule"]]
        parameters |= {"rule": json.dumps(kept["rule"]), "own": kept["own"], "flushed": kept["flushed"]}
    key = slug(f"{key_of(row)}_{row['schedule']}")
    label = f"{row['model']}, p={row['p']}, m={row['m']}"
    paper = published.paper_values(entry, row)
    if row["schedule"] == "1F1B-I":
        paper[EARLIER] = paper[RATE]
    return Point(key, row["schedule"], label, parameters, paper)


def derive(point: Point) -> dict[str, float]:
    """The rate by each rank's own time, with a flush, and, of 1F1B-I, without waiting for one ring of messages.

    The costs of searched schedules are kept ones.
    """
    given = point.parameters
    p, m, name = given["p"], given["m"], given["schedule"]
    times, model = Times(*(given[field] for field in Times._fields)), model_of(given["model"])
    if name in SEARCHED:
        cost = StageCosts(given["own"], given["flushed"])
    else:
        chunks = {"1F1B-I": (model["layers"] + 2) // p, "ZB-V": 2}.get(name, 1)
        cost = execute(build(ZOO[name], p, m, chunks), times)
    less = p * times.message if name == "1F1B-I" else 0
    costs = {RATE: cost.own, FLUSHED: cost.flushed, EARLIER: cost.own - less}
    return {metric: rate(value, m, times) for metric, value in costs.items()}


QUANTITIES = (
    Quantity(RATE, "bubble rate", "1", "", 1, 4),
    Quantity(EARLIER, "with one ring of messages hidden", "1", "", 1, 4),
    Quantity(FLUSHED, "with a flush", "1", "", 1, 4),
)
NOTES = (
    "Cost is the longest time of a stage from its first pass to its last, as no flush is needed; the last column "
    "counts from the first pass of all to the last, as a flush would.",
    "1F1B-I: the published cost is that of our table less p messages, the wait at one change of chunk, in every row; "
    "which order avoids it is not printed.",
)

ARTIFACT = told(__name__, points=points, quantities=QUANTITIES, derive=derive, notes=NOTES)
