"""Records of version 1, which had no timelines and other words in places: read as records of version 2.

In version 1 a timeline was two metrics for each pipeline rank: the samples of `begins_rank_0` and `ends_rank_0` were
the seconds at which the passes of rank 0 began and ended, in the order of the point's schedule. Those of a simulated
timeline beside an emulated one had the prefix `predicted_`.
"""

import re
from collections.abc import Mapping
from typing import Any

from results.records.validation import RecordError, check

SCHEMA = "ptdp-record/1"
_TIMES = re.compile(r"(?P<prefix>|predicted_)(?P<side>begins|ends)_rank_(?P<rank>\d+)")


def to_version_2(document: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A document of version 1 (parsed JSON) as one of version 2.

    Raises `RecordError`, naming `source`, for one that its schema refuses, and for times that do not belong to the
    passes of the point's schedule.
    """
    from ptdp_core.config import in_todays_words  # here: most records are of version 2

    check(document, "record-1", source)
    points = []
    for index, point in enumerate(document["points"]):
        try:
            points.append(_with_timelines({**point, "parameters": in_todays_words(point["parameters"])}))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"{source}: /points/{index}/metrics: found begins and ends of other passes than the schedule's "
                f"({error}); needs one of each for every pass"
            ) from None
    return {**document, "schema": "ptdp-record/2", "points": points}


def _with_timelines(point: Mapping[str, Any]) -> Mapping[str, Any]:
    times = {name: metric for name, metric in point["metrics"].items() if _TIMES.fullmatch(name)}
    if not times:
        return point
    others = {name: metric for name, metric in point["metrics"].items() if name not in times}
    prefixes = [prefix for prefix in ("", "predicted_") if f"{prefix}begins_rank_0" in times]
    timelines = [_timeline(point["parameters"], times, prefix) for prefix in prefixes]
    return {**point, "metrics": others, "timelines": timelines}


def _timeline(parameters: Mapping[str, Any], times: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    from ptdp_core.schedules import build  # here: only a record with a timeline needs it

    schedule = build(*(parameters[name] for name in ("schedule", "p", "m", "v")))
    ranks = []
    for rank, actions in enumerate(schedule.ranks):
        begins, ends = (times[f"{prefix}{side}_rank_{rank}"]["samples"] for side in ("begins", "ends"))
        ranks.append(
            [
                {**action._asdict(), "start": start, "end": end}
                for action, start, end in zip(actions, begins, ends, strict=True)
            ]
        )
    return {"origin": times[f"{prefix}begins_rank_0"]["origin"], "ranks": ranks}
