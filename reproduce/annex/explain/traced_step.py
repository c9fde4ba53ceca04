"""What one rank did in a training step, from its trace: passes, messages, collectives.

A pass is found by the name of the range around it: `PP:2F0` (of this engine, and of torch.distributed.pipelining's
schedules), `Forward 3` and `Backward 3` (its simpler ones). In a trace without such ranges a pass is what a rank does
between two messages, in autograd's backward functions or outside of them.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from ptdp_core.schedules import Action, TimelineEvent
from reproduce.annex.explain.kineto import (
    BACKWARD,
    ON_GPU,
    RECORDED,
    DeviceWork,
    Event,
    Span,
    TraceFile,
    merged,
    on_cpu,
    on_gpu,
)
from reproduce.annex.explain.traced_communication import COMMUNICATION, communication
from results.records.errors import UsageError

NAMED = re.compile(r"(?:PP:)?(\d{1,6})([FBIW])(\d{1,6})$")
COUNTED = re.compile(r"(?P<kind>Forward|Backward) \d+$")
OPTIMIZER = "Optimizer.step"
UNLINKED = (
    "no trace links forward to backward passes: a forward pass is all that ran before a backward pass, with the "
    "loading of its data"
)


@dataclass(frozen=True)
class RankStep:
    """What one rank did in a step. Spans are (begin, end) in seconds, in order, and merged but for messages.

    `passes` are in their order, without an action where only their order tells it. `compute` is all that ran and is no
    communication; `step` is the step on the host. `axes` are the `collectives` by what they are for, as
    `traced_communication.Communication` has them; `notes` say what had to be inferred.
    """

    rank: int
    step: Span
    passes: tuple[TimelineEvent[float], ...]
    messages: tuple[Span, ...]
    collectives: tuple[Span, ...]
    compute: tuple[Span, ...]
    optimizer: tuple[Span, ...]
    axes: Mapping[str, tuple[Span, ...]]
    notes: tuple[str, ...]


def rank_step(trace: TraceFile, rank: int, step: int, pipelined: bool = True) -> RankStep:
    """What a trace's rank did in one of its steps; not `pipelined` where the pipeline is known to have one rank.

    Raises `UsageError` if no pass can be found there.
    """
    span = trace.steps[step]
    inside = [event for event in trace.events if span[0] <= event.start <= span[1]]
    device = any(event.category in ON_GPU for event in trace.events)
    work = sorted(on_gpu(trace.events, span) if device else on_cpu(inside))
    within = _backward_functions(inside)
    optimizer = merged(event.span for event in inside if event.name.startswith(OPTIMIZER))
    last = max((spans[-1][1] for spans in within.values()), default=0.0)

    named = sorted((*event.span, kind) for event in inside if (kind := _kind(event)))

    def pass_of(item: DeviceWork) -> str:
        if named:
            place = bisect_right(named, item.asked, key=itemgetter(0)) - 1
            return named[place][2] if place >= 0 and item.asked <= named[place][1] else ""
        if _covers(within.get(item.thread, ()), item.asked):
            return "B"
        return "F" if item.asked < last and not _covers(optimizer, item.asked) else ""

    talks = communication(work, inside, pass_of, lambda item: pipelined and not (named and pass_of(item)))
    computes = [item for item in work if not COMMUNICATION.match(item.name)]
    passes, notes = _ranges(inside, computes, device), [*trace.notes, *talks.notes]
    if not passes:
        flows = sorted(event.start for event in inside if event.category == RECORDED)
        own = [item for item in computes if not _covers(optimizer, item.asked)]
        breaks = sorted([*(message.asked for message in talks.messages), *_next_graphs(inside)])
        passes = _runs(own, pass_of, breaks, flows)
        if passes and not flows:
            notes.append(UNLINKED)
    if not passes:
        raise UsageError(
            f"{trace.path}: no forward or backward pass in step {step}; needs a trace of training steps with CPU "
            "activities (torch.profiler.ProfilerActivity.CPU)"
        )
    return RankStep(
        rank=rank,
        step=span,
        passes=passes,
        messages=tuple(sorted((item.start, item.end) for item in talks.messages)),
        collectives=talks.collectives,
        compute=merged((item.start, item.end) for item in computes),
        optimizer=merged((item.start, item.end) for item in computes if _covers(optimizer, item.asked)),
        axes=talks.axes,
        notes=tuple(notes),
    )


def _backward_functions(events: Sequence[Event]) -> dict[str, tuple[Span, ...]]:
    """When autograd's functions ran, by thread."""
    backward: dict[str, list[Span]] = {}
    for event in events:
        if event.name.startswith(BACKWARD):
            backward.setdefault(event.thread, []).append(event.span)
    return {thread: merged(spans) for thread, spans in backward.items()}


def _kind(event: Event) -> str:
    """'F' or 'B', of forward and of backward passes, if a range names one; or ''."""
    named, counted = NAMED.match(event.name), COUNTED.match(event.name)
    if event.category != "user_annotation" or not (named or counted):
        return ""
    return "F" if (named[2] if named else event.name[0]) == "F" else "B"


def _ranges(events: Sequence[Event], work: Sequence[DeviceWork], device: bool) -> tuple[TimelineEvent[float], ...]:
    """The passes that ranges name; on a GPU from the first kernel launched inside to the end of the last."""
    passes = []
    for event in events:
        if not _kind(event):
            continue
        named = NAMED.match(event.name)
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
    work: Sequence[DeviceWork], pass_of: Callable[[DeviceWork], str], breaks: Sequence[float], recorded: Sequence[float]
) -> tuple[TimelineEvent[float], ...]:
    """The passes of a trace without ranges: runs of one kind of work, in the host's order, between messages.

    Work outside of autograd's backward functions is a forward pass only if autograd has recorded something in it, where
    a trace says so at all, and if a backward pass follows.
    """
    runs: list[tuple[tuple[str, int], list[DeviceWork]]] = []
    for item in work:
        key = pass_of(item), bisect_right(breaks, item.asked)
        if not runs or runs[-1][0] != key:
            runs.append((key, []))
        runs[-1][1].append(item)
    passes: list[TimelineEvent[float]] = []
    last: tuple[str, int] | None = None
    returned = 0.0
    for key, items in runs:
        place, returned = bisect_left(recorded, returned), items[-1].returned
        if not key[0]:
            continue
        if key[0] == "F" and recorded:
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
