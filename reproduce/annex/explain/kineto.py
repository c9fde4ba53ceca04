"""Traces of torch.profiler (Kineto's Chrome traces), one file per rank: passes, messages and collectives of a step.

A pass is found by the name of the range around it: `PP:2F0` (of this engine, and of torch.distributed.pipelining's
schedules), `Forward 3` and `Backward 3` (its simpler ones). In a trace without such ranges a pass is what a rank does
between two messages, in autograd's backward functions or outside of them. Of a GPU the times are those of its kernels,
which belong to the range in which they were launched. Imports no torch.
"""

import gzip
import json
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.schedules import Action, TimelineEvent
from results.records.errors import UsageError

Span = tuple[float, float]

NAMED = re.compile(r"(?:PP:)?(\d{1,6})([FBIW])(\d{1,6})$")
COUNTED = re.compile(r"(?P<kind>Forward|Backward) \d+$")
STEP = re.compile(r"ProfilerStep#(\d{1,9})")
COMMUNICATION = re.compile(r"(?:nccl(?:Dev)?Kernel_?|rccl\w*Kernel_?|gloo:)(\w+)")
MESSAGE = re.compile(r"SendRecv|send|recv", re.IGNORECASE)
LATEST = 1 << 63  # of the trace's microseconds and numbers
ON_GPU, LAUNCHES = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
RECORDED = "fwdbwd"  # category of what autograd notes in a forward pass for the backward pass
BACKWARD, OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step"


class Event(NamedTuple):
    """An event of a trace, in seconds.

    `correlation` tells which kernel a call launched, `graph` where in autograd's graph a backward function is; None
    where there is none.
    """

    start: float
    end: float
    category: str
    name: str
    thread: str
    correlation: int | None
    graph: int | None

    @property
    def span(self) -> Span:
        """Begin and end."""
        return self.start, self.end


@dataclass(frozen=True)
class TraceFile:
    """A trace as it was read: its events with times in seconds, the rank that it is of, and how many there are.

    `steps` are the spans of the profiler's steps on the host, by number; a trace that marks none has one, 0.
    """

    path: Path
    rank: int | None
    world: int | None
    events: tuple[Event, ...]
    steps: Mapping[int, Span]


@dataclass(frozen=True)
class RankStep:
    """What one rank did in a step. Spans are (begin, end) in seconds, in order, and merged but for messages.

    `passes` are in their order, without an action where only their order tells it. `compute` is all that ran and is no
    communication; `step` is the step on the host.
    """

    rank: int
    step: Span
    passes: tuple[TimelineEvent[float], ...]
    messages: tuple[Span, ...]
    collectives: tuple[Span, ...]
    compute: tuple[Span, ...]
    optimizer: tuple[Span, ...]


class _Work(NamedTuple):
    """Something that the device did: when the host asked for it, and on which thread, when it ran, and what it is.

    On a CPU it runs while the host asks for it.
    """

    asked: float
    returned: float
    thread: str
    start: float
    end: float
    name: str


def read(path: Path) -> TraceFile:
    """The trace in a file, which may be packed with gzip. Raises `UsageError` for a file that holds none."""
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, RecursionError, zlib.error) as error:
        raise UsageError(
            f"{path} is no trace: no valid JSON ({error}); needs what torch.profiler's export_chrome_trace writes"
        ) from None
    about = document if isinstance(document, dict) else {"traceEvents": document}
    if not isinstance(about.get("traceEvents"), list):
        raise UsageError(f"{path} is no trace: no traceEvents; needs what torch.profiler's export_chrome_trace writes")
    base = _whole(about.get("baseTimeNanoseconds")) or 0
    events = tuple(event for entry in about["traceEvents"] if (event := _event(entry, base / 1e9)))
    if not events:
        raise UsageError(f"{path}: a trace without events; needs at least one step of training under torch.profiler")
    steps = {int(match[1]): event.span for event in events if (match := STEP.match(event.name))}
    whole = min(event.start for event in events), max(event.end for event in events)
    info = about.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    number = re.search(r"rank[-_]?(\d{1,9})", path.name)
    rank = _whole(info.get("rank"))
    if rank is None and number:
        rank = int(number[1])
    return TraceFile(path, rank, _whole(info.get("world_size")), events, steps or {0: whole})


def _event(entry: Any, base: float) -> Event | None:
    """An entry of a trace; None if it is of a kind that is not read, or in no form to be."""
    if not isinstance(entry, dict) or entry.get("ph") not in ("X", "s"):
        return None
    args: Any = entry.get("args")
    start: Any = entry.get("ts")
    length: Any = entry.get("dur", 0)
    if not all(isinstance(time, int | float) and 0 <= time < LATEST for time in (start, length)):
        return None
    category, name = entry.get("cat"), entry.get("name")
    if not isinstance(category, str) or not isinstance(name, str) or (entry["ph"] == "s") != (category == RECORDED):
        return None
    args = args if isinstance(args, dict) else {}
    begin = base + start / 1e6
    thread = f"{entry.get('pid')}/{entry.get('tid')}"
    numbers = (_whole(args.get(key)) for key in ("correlation", "Sequence number"))
    return Event(begin, begin + length / 1e6, category, name, thread, *numbers)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LATEST else None


def rank_step(trace: TraceFile, rank: int, step: int) -> RankStep:
    """What a trace's rank did in one of its steps. Raises `UsageError` if no pass can be found there."""
    span = trace.steps[step]
    inside = [event for event in trace.events if span[0] <= event.start <= span[1]]
    device = any(event.category in ON_GPU for event in trace.events)
    work = sorted(_on_gpu(trace.events, span) if device else _on_cpu(inside))
    talks = [(item, match[1]) for item in work if (match := COMMUNICATION.match(item.name))]
    messages = [item for item, what in talks if MESSAGE.search(what)]
    computes = [item for item in work if not COMMUNICATION.match(item.name)]
    optimizer = merged(event.span for event in inside if event.name.startswith(OPTIMIZER))
    passes = _ranges(inside, computes, device) or _runs(inside, computes, messages, optimizer)
    if not passes:
        raise UsageError(
            f"{trace.path}: no forward or backward pass in step {step}; needs a trace of training steps with CPU "
            "activities (torch.profiler.ProfilerActivity.CPU)"
        )
    return RankStep(
        rank=rank,
        step=span,
        passes=passes,
        messages=tuple(sorted((item.start, item.end) for item in messages)),
        collectives=merged((i.start, i.end) for i, what in talks if not MESSAGE.search(what) and what != "barrier"),
        compute=merged((item.start, item.end) for item in computes),
        optimizer=merged((item.start, item.end) for item in computes if _covers(optimizer, item.asked)),
    )


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of spans, as spans that do not touch, in order."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((begin, end))
    return tuple(union)


def _on_gpu(events: Sequence[Event], span: Span) -> Iterator[_Work]:
    """The kernels and copies that the host launched in a span of time."""
    launches = {event.correlation: event for event in events if event.category in LAUNCHES}
    launches.pop(None, None)
    for event in events:
        if event.category in ON_GPU:
            launch = launches.get(event.correlation, event)
            if span[0] <= launch.start <= span[1]:
                yield _Work(*launch.span, launch.thread, *event.span, event.name)


def _on_cpu(events: Sequence[Event]) -> Iterator[_Work]:
    """The outermost operators of each thread, and gloo's communication. c10d's operators only ask for it."""
    ends: dict[str, float] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        is_operator = event.category == "cpu_op" and event.start >= ends.get(event.thread, 0.0)
        if is_operator:
            ends[event.thread] = event.end
        if (is_operator and not event.name.startswith("c10d::")) or event.name.startswith("gloo:"):
            yield _Work(*event.span, event.thread, *event.span, event.name)


def _ranges(events: Sequence[Event], work: Sequence[_Work], device: bool) -> tuple[TimelineEvent[float], ...]:
    """The passes that ranges name; on a GPU from the first kernel launched inside to the end of the last."""
    passes = []
    for event in events:
        named, counted = NAMED.match(event.name), COUNTED.match(event.name)
        if event.category != "user_annotation" or not (named or counted):
            continue
        start, end = event.span
        if device:
            ran = work[bisect_right(work, (start,)) : bisect_right(work, (end,))]
            if not ran:
                continue
            start, end = min(item.start for item in ran), max(item.end for item in ran)
        action = Action(named[2], int(named[1]), int(named[3])) if named else None
        passes.append(TimelineEvent(action.kind if action else event.name[0], action, start, end))
    return tuple(sorted(passes, key=lambda event: event.start))


def _runs(
    events: Sequence[Event], work: Sequence[_Work], messages: Sequence[_Work], optimizer: Sequence[Span]
) -> tuple[TimelineEvent[float], ...]:
    """The passes of a trace without ranges: runs of one kind of work, in the host's order, between messages.

    Work outside of autograd's backward functions is a forward pass only if autograd has recorded something in it.
    """
    backward: dict[str, list[Span]] = {}
    for event in events:
        if event.name.startswith(BACKWARD):
            backward.setdefault(event.thread, []).append(event.span)
    within = {thread: merged(spans) for thread, spans in backward.items()}
    recorded = sorted(event.start for event in events if event.category == RECORDED)
    breaks = sorted([*(message.asked for message in messages), *_next_graphs(events)])
    runs: list[tuple[tuple[str, int], list[_Work]]] = []
    for item in work:
        if _covers(optimizer, item.asked):
            continue
        kind = "B" if _covers(within.get(item.thread, ()), item.asked) else "F"
        key = kind, bisect_right(breaks, item.asked)
        if not runs or runs[-1][0] != key:
            runs.append((key, []))
        runs[-1][1].append(item)
    passes: list[TimelineEvent[float]] = []
    last: tuple[str, int] | None = None
    returned = 0.0
    for key, items in runs:
        place, returned = bisect_left(recorded, returned), items[-1].returned
        if key[0] == "F":
            if place == len(recorded) or recorded[place] > returned:
                continue
            items = [item for item in items if item.returned >= recorded[place]]
        start, end = min(item.start for item in items), max(item.end for item in items)
        if key == last:  # what was left out was between two parts of one pass
            start = passes.pop().start
        passes.append(TimelineEvent(key[0], None, start, end))
        last = key
    return tuple(passes)


def _next_graphs(events: Sequence[Event]) -> Iterator[float]:
    """When each backward pass begins on its thread: autograd goes back through a graph's numbers, which then rise.

    What adds a gradient up, at any time, has no number.
    """
    latest: dict[str, tuple[float, int]] = {}  # by thread the end and the number of the function before
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        if event.graph is None or not event.name.startswith(BACKWARD):
            continue
        end, before = latest.get(event.thread, (0.0, event.graph))
        if event.start >= end:
            if event.graph > before:
                yield event.start
            latest[event.thread] = event.end, event.graph


def _covers(spans: Sequence[Span], time: float) -> bool:
    """Whether one of the spans, which are in order, covers a time."""
    place = bisect_right(spans, (time, float("inf"))) - 1
    return place >= 0 and time <= spans[place][1]
