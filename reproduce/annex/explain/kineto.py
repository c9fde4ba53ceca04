"""Traces of torch.profiler (Kineto's Chrome traces), one file per rank, as they are read: events, and what ran when.

Of a GPU the times are those of its kernels, which belong to where the host launched them. Imports no torch.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from results import opening
from results.records.errors import UsageError

Span = tuple[float, float]

STEP = re.compile(r"ProfilerStep#(\d{1,9})")
BACKWARD = "autograd::engine::evaluate_function"
LATEST = 1 << 63  # of the trace's microseconds and numbers
ON_GPU, LAUNCHES = ("kernel", "gpu_memcpy", "gpu_memset"), ("cuda_runtime", "cuda_driver")
RECORDED = "fwdbwd"  # category of what autograd notes in a forward pass for the backward pass


class Event(NamedTuple):
    """An event of a trace, in seconds.

    `correlation` tells which kernel a call launched, `graph` where in autograd's graph a backward function is; None
    where there is none. `collective` and `group` are what newer traces say of communication: its operation, and what
    its group of ranks is for.
    """

    start: float
    end: float
    category: str
    name: str
    thread: str
    correlation: int | None
    graph: int | None
    collective: str
    group: str

    @property
    def span(self) -> Span:
        """Begin and end."""
        return self.start, self.end


@dataclass(frozen=True)
class TraceFile:
    """A trace as it was read: its events with times in seconds, the rank that it is of, and how many there are.

    `steps` are the spans of the profiler's steps on the host, by number; a trace that marks none has one, 0. `notes`
    say what had to be inferred.
    """

    path: Path
    rank: int | None
    world: int | None
    events: tuple[Event, ...]
    steps: Mapping[int, Span]
    notes: tuple[str, ...] = ()


class DeviceWork(NamedTuple):
    """Something that the device did: when the host asked for it, and on which thread, when it ran, and what it is.

    On a CPU it runs while the host asks for it.
    """

    asked: float
    returned: float
    thread: str
    start: float
    end: float
    name: str
    collective: str = ""
    group: str = ""


def read(path: Path) -> TraceFile:
    """The trace in a file, which may be packed with gzip. Raises `UsageError` for a file that holds none."""
    try:
        document = json.loads(opening.read_packed(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError, zlib.error) as error:
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
    correlation, graph = (_whole(args.get(key)) for key in ("correlation", "Sequence number"))
    collective, group = (str(args.get(key, "")) for key in ("Collective name", "Process Group Description"))
    return Event(begin, begin + length / 1e6, category, name, thread, correlation, graph, collective, group)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LATEST else None


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The union of spans, as spans that do not touch, in order."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = union[-1][0], max(end, union[-1][1])
        else:
            union.append((begin, end))
    return tuple(union)


def on_gpu(events: Sequence[Event], span: Span) -> Iterator[DeviceWork]:
    """The kernels and copies that the host launched in a span of time."""
    launches = {event.correlation: event for event in events if event.category in LAUNCHES}
    launches.pop(None, None)
    for event in events:
        if event.category in ON_GPU:
            launch = launches.get(event.correlation, event)
            if span[0] <= launch.start <= span[1]:
                yield DeviceWork(*launch.span, launch.thread, *event.span, event.name, event.collective, event.group)


def on_cpu(events: Sequence[Event]) -> Iterator[DeviceWork]:
    """The outermost operators of each thread, and gloo's communication. c10d's operators only ask for it."""
    ends: dict[str, float] = {}
    for event in sorted(events, key=lambda event: (event.start, -event.end)):
        is_operator = event.category == "cpu_op" and event.start >= ends.get(event.thread, 0.0)
        if is_operator:
            ends[event.thread] = event.end
        if (is_operator and not event.name.startswith("c10d::")) or event.name.startswith("gloo:"):
            yield DeviceWork(*event.span, event.thread, *event.span, event.name)
