"""Timelines as Chrome trace events, the JSON that Perfetto (https://ui.perfetto.dev) opens.

`trace` makes one process per timeline, one thread per pipeline rank, and an arrow (flow) per message.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from ptdp_core.schedules import message_into, message_out_of
from reproduce.output.timeline import Timeline
from reproduce.output.timeline_colours import PASSES

# What the trace format counts in microseconds: one t_f becomes a millisecond.
_NANOSECONDS = {"t_f": 1_000_000, "s": 1_000_000_000}
_CATEGORIES = {kind: text.lower().removesuffix(" pass") for kind, text in PASSES.items()}
_TENSORS = {"F": "activations", "B": "gradients"}


def trace(timelines: Sequence[Timeline]) -> bytes:
    """The Chrome trace of the timelines, one process each, as JSON. In units of t_f, one t_f becomes 1 ms."""
    ids = count(1)  # plain integers, unique in the file: what every reader of the format takes
    events = [event for pid, timeline in enumerate(timelines, 1) for event in _events(pid, timeline, ids)]
    document = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "origin": "; ".join(dict.fromkeys(timeline.origin for timeline in timelines)),
            "time": "1 ms stands for one t_f" if timelines[0].unit == "t_f" else "in real units",
        },
    }
    return (json.dumps(document, separators=(",", ":"), allow_nan=False) + "\n").encode()


def _events(pid: int, timeline: Timeline, ids: Iterator[int]) -> Iterator[dict[str, Any]]:
    whence = f", {timeline.origin}" if timeline.unit == "s" else ""
    sizes = f"p={timeline.p} m={timeline.m} v={timeline.v}"
    yield _name("process_name", pid, 0, f"{timeline.schedule} {sizes}{whence}")
    for rank in range(timeline.p):
        yield _name("thread_name", pid, rank + 1, f"Device {rank + 1} (pipeline rank {rank})")
    # The messages of which the timeline shows both ends.
    arrivals = {message_into(action, timeline.placement) for _, _, action in timeline.passes}
    departures = (message_out_of(action, timeline.placement) for _, _, action in timeline.passes)
    flows = dict(zip((message for message in departures if message and message in arrivals), ids, strict=False))
    for rank, box, action in timeline.passes:
        where = {"pid": pid, "tid": rank + 1}
        start, end = (round(time * _NANOSECONDS[timeline.unit]) for time in (box.start, box.end))
        yield {
            "ph": "X",
            "name": str(action),
            "cat": _CATEGORIES[box.kind],
            **where,
            "ts": start / 1000,
            "dur": (end - start) / 1000,
            "args": {
                "action": str(action),
                "stage": action.stage,
                "chunk": timeline.chunk_of(action),
                "microbatch": action.microbatch,
            },
        }
        for message, flow_end in (
            (message_into(action, timeline.placement), {"ph": "f", "bp": "e", "ts": start / 1000}),
            # The last nanosecond still belongs to the slice; its end is the next one's begin.
            (message_out_of(action, timeline.placement), {"ph": "s", "ts": max(start, end - 1) / 1000}),
        ):
            if message in flows:
                flow = {"name": _TENSORS[message.kind], "cat": "message", "id": flows[message]}
                yield {**flow, **where, **flow_end}


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
