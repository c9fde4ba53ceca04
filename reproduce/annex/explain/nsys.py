"""Traces of Nsight Systems, as `nsys export --type sqlite` writes them: the events of each process with kernels.

Times are nanoseconds of one clock for all processes. Ranges are NVTX's, of the program or of PyTorch's `emit_nvtx`;
without those of autograd what a process launches from another thread than its first counts as backward passes, as
autograd has a thread of its own for each device.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from reproduce.annex.explain.kineto import BACKWARD, STEP, Event, TraceFile
from results.records.errors import UsageError

HEADER = b"SQLite format 3\0"
THREADS = 1 << 24  # of a global thread number, the lowest bits are the thread's in its process
OPERATORS = ("aten::", "autograd::", "c10d::", "nccl:", "torch::")
SEQUENCE = re.compile(r", seq = (\d{1,15})")
KERNELS = {"KERNEL": "kernel", "MEMCPY": "gpu_memcpy", "MEMSET": "gpu_memset"}
NO_AUTOGRAD = (
    "no NVTX ranges of autograd: what a process launches from another thread than its first is taken as backward passes"
)
LEAST_SHARE = 0.1  # of a process' launches, that make a thread autograd's


def read(path: Path) -> list[TraceFile]:
    """The traces in a file, one for each process with kernels. Raises `UsageError` for one that holds none."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            by_process = _events(database)
    except (sqlite3.Error, TypeError, ValueError) as error:
        raise UsageError(f"{path} is no trace: {error}; needs what nsys export --type sqlite writes") from None
    if not by_process:
        raise UsageError(f"{path}: no kernels; needs nsys profile --trace=cuda,nvtx, of training steps")
    number = re.search(r"rank[-_]?(\d{1,9})", path.name)
    ranks = [int(number[1]) if number and len(by_process) == 1 else None] * len(by_process)
    world = len(by_process) if len(by_process) > 1 else None
    return [
        _trace(path, rank, world, events) for rank, (_, events) in zip(ranks, sorted(by_process.items()), strict=True)
    ]


def _trace(path: Path, rank: int | None, world: int | None, events: list[Event]) -> TraceFile:
    notes: tuple[str, ...] = ()
    if not any(event.name.startswith(BACKWARD) for event in events):
        events, notes = [*events, *_by_thread(events)], (NO_AUTOGRAD,)
    steps = {int(match[1]): event.span for event in events if (match := STEP.match(event.name))}
    whole = min(event.start for event in events), max(event.end for event in events)
    return TraceFile(path, rank, world, tuple(events), steps or {0: whole}, notes)


def _events(database: sqlite3.Connection) -> dict[int, list[Event]]:
    """The events by process; only of those that have kernels."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    names = dict(database.execute("SELECT id, value FROM StringIds")) if "StringIds" in tables else {}
    found: dict[int, list[Event]] = {}
    for kind, category in KERNELS.items():
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if table not in tables:
            continue
        known = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
        name = next((column for column in ("demangledName", "shortName") if column in known), "NULL")
        process = "globalPid" if "globalPid" in known else "0"
        rows = database.execute(
            f"SELECT start, end, correlationId, {process}, {name} FROM {table} WHERE end IS NOT NULL"
        )
        for start, end, correlation, pid, text in rows:
            event = _event(start, end, category, str(names.get(text, kind.lower())), "gpu", correlation)
            found.setdefault(pid // THREADS, []).append(event)
    if not any(event.category == "kernel" for events in found.values() for event in events):
        return {}
    only = next(iter(found)) if len(found) == 1 else None
    for thread, event in _of_host(database, tables, names):
        number = thread // THREADS if only is None else only
        if number in found:
            found[number].append(event)
    return found


def _of_host(database: sqlite3.Connection, tables: set[str], names: dict[int, str]) -> Iterator[tuple[int, Event]]:
    """What the host did, with the thread that did it: calls of CUDA, and NVTX ranges that have ended."""
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
        rows = database.execute("SELECT start, end, globalTid, correlationId, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        for start, end, thread, correlation, name in rows:
            yield thread, _event(start, end, "cuda_runtime", str(names.get(name, "")), str(thread), correlation)
    if "NVTX_EVENTS" in tables:
        rows = database.execute("SELECT start, end, globalTid, text, textId FROM NVTX_EVENTS WHERE end IS NOT NULL")
        for start, end, thread, text, name in rows:
            said = str(text or names.get(name, ""))
            category = "cpu_op" if said.startswith(OPERATORS) else "user_annotation"
            sequence = SEQUENCE.search(said)
            graph = int(sequence[1]) if sequence else None
            yield thread, _event(start, end, category, said, str(thread), None)._replace(graph=graph)


def _event(start: Any, end: Any, category: str, name: str, thread: str, correlation: int | None) -> Event:
    return Event(start / 1e9, end / 1e9, category, name, thread, correlation, None, "", "")


def _by_thread(events: list[Event]) -> Iterator[Event]:
    """A range of autograd for each launch from another thread than the first that launches."""
    kernels = {event.correlation for event in events if event.category == "kernel"}
    launches = sorted(event for event in events if event.category == "cuda_runtime" and event.correlation in kernels)
    counts = Counter(event.thread for event in launches)
    first = launches[0].thread if launches else ""
    for event in launches:
        if event.thread != first and counts[event.thread] > LEAST_SHARE * len(launches):
            yield event._replace(category="cpu_op", name=f"{BACKWARD}: of its thread", correlation=None)
