"""What the communication in a trace is for: messages of a pipeline, exchanges, collectives by the axis of their group.

NCCL runs an all-to-all, a message and a step of a ring as the same kernel, `SendRecv`. Newer traces say which of them
it is among the kernel's arguments; else the range in which the host asked for it does (`nccl:all_to_all`). Whose group
it is, is said by the group's description ('DATA_PARALLEL_GROUP', 'mesh_tp'), else by where it was asked for: where
gradients are accumulated it is data-parallel. What nothing names is told by the forward passes: tensor parallelism
communicates in them, the reduction of gradients does not.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reproduce.annex.explain.kineto import DeviceWork, Event, Span, merged

COMMUNICATION = re.compile(r"(?:nccl(?:Dev)?Kernel_?|rccl\w*Kernel_?|gloo:)(\w+)")
MESSAGE = re.compile(r"SendRecv|send|recv", re.IGNORECASE)
ALL_TO_ALL = re.compile(r"all_?to_?all", re.IGNORECASE)
COLLECTIVE = re.compile(r"reduce|gather|scatter|broadcast", re.IGNORECASE)
ASKS = ("nccl:", "c10d::")  # begin the ranges in which a host asks for communication
BARRIER = "barrier"
# Where parameters and gradients are exchanged: PyTorch's own hooks.
REDUCES = re.compile(r"\S*evaluate_function: torch::autograd::AccumulateGrad|torch\S+reducer::|FSDP::")
BROADCAST = re.compile("broadcast", re.IGNORECASE)  # of buffers, by DistributedDataParallel
TENSOR, DATA, EXCHANGE = "tensor", "data", "exchange"
# The axis of a group by the words of its description, the first that fits.
AXES: Mapping[str, frozenset[str]] = {
    DATA: frozenset({"data", "dp", "edp", "fsdp", "replicate", "shard"}),
    TENSOR: frozenset({"tensor", "tp", "etp"}),
    EXCHANGE: frozenset({"expert", "ep", "context", "cp"}),
}


@dataclass(frozen=True)
class Communication:
    """What a rank communicated in a step: messages as they are, all else merged; of that, what passes wait for by axis.

    `exchange` is for experts, or for a sequence that ranks share. `notes` say what no name told.
    """

    messages: tuple[DeviceWork, ...]
    collectives: tuple[Span, ...]
    axes: Mapping[str, tuple[Span, ...]]
    notes: tuple[str, ...]


def communication(
    work: Sequence[DeviceWork],
    events: Sequence[Event],
    pass_of: Callable[[DeviceWork], str],
    may_be_message: Callable[[DeviceWork], bool],
) -> Communication:
    """Tell a step's communication apart; `pass_of` says which kind of pass asked for something: 'F', 'B' or ''.

    What is sent and received is an exchange where it may be no message of a pipeline: where that has one rank, and in
    the midst of a pass, as in a ring.
    """
    asked, reduces = _Ranges(events, lambda name: name.startswith(ASKS)), _Ranges(events, REDUCES.match)
    messages, collectives, unnamed = [], [], []
    axes: dict[str, list[DeviceWork]] = {TENSOR: [], DATA: [], EXCHANGE: []}
    unknown = 0  # messages that nothing but the kernel's name says to be some
    for item in work:
        if not (match := COMMUNICATION.match(item.name)) or match[1] == BARRIER:
            continue
        said = f"{item.collective}{asked.at(item)}"
        sent = bool(MESSAGE.search(match[1])) and not COLLECTIVE.search(said)
        exchanged = bool(ALL_TO_ALL.search(f"{said} {match[1]}"))
        if sent and not exchanged and may_be_message(item):
            messages.append(item)
            unknown += not said and match[1].startswith("SendRecv")
            continue
        collectives.append(item)
        if sent or exchanged:
            axes[EXCHANGE].append(item)
        elif (axis := _axis(item, reduces)) is not None:
            axes[axis].append(item)
        elif pass_of(item):
            unnamed.append(item)
    in_forward = any(pass_of(item) == "F" for item in unnamed)
    axes[TENSOR if in_forward else DATA] += unnamed
    notes = []
    if unnamed:
        why = "as forward passes have some, too" if in_forward else "as no forward pass has any"
        parallel = TENSOR if in_forward else DATA
        notes.append(f"collectives that name no group ({len(unnamed)} of a rank): taken as {parallel}-parallel, {why}")
    if unknown:
        notes.append(
            f"SendRecv kernels that name no operation ({unknown} of a rank): taken as messages of the pipeline"
        )
    spans = {axis: merged((item.start, item.end) for item in items) for axis, items in axes.items()}
    return Communication(tuple(messages), merged((item.start, item.end) for item in collectives), spans, tuple(notes))


def _axis(item: DeviceWork, reduces: "_Ranges") -> str | None:
    """The axis of the group of a collective; None if nothing says it."""
    words = set(re.findall(r"[a-z]+", item.group.lower()))
    named = next((axis for axis, ours in AXES.items() if words & ours), None)
    return named or (DATA if reduces.at(item) or BROADCAST.search(item.name) else None)


class _Ranges:
    """The outermost ranges of the host, by thread, whose names are wanted."""

    def __init__(self, events: Iterable[Event], wanted: Callable[[str], object]) -> None:
        self._by_thread: dict[str, list[Event]] = {}
        for event in sorted(events, key=lambda event: (event.start, -event.end)):
            if event.category in ("cpu_op", "user_annotation") and wanted(event.name):
                ranges = self._by_thread.setdefault(event.thread, [])
                if not ranges or event.end > ranges[-1].end:
                    ranges.append(event)

    def at(self, item: DeviceWork) -> str:
        """The name of the range in which the host asked for something; '' if there is none."""
        ranges = self._by_thread.get(item.thread, [])
        place = bisect_right(ranges, item.asked, key=lambda event: event.start) - 1
        return ranges[place].name if place >= 0 and item.asked <= ranges[place].end else ""
