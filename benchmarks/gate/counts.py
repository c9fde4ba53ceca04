"""What one step of a workload does, in numbers that do not depend on the machine; for `workload.py`.

Counted are calls of the tree's functions, allocations of Python objects, files opened and bytes read and written,
modules that set-up imported, and where torch is loaded its operators, their bytes and what waits for a device. Nothing
but the standard library is imported here. Instructions are not: of a step in Python they differ from run to run.
"""

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from types import CodeType
from typing import Any

UNIT = 16 * 1024  # bytes of memory are counted by, rounded up: an int more is no regression


def counted(step: Callable[[], object], tree: Path, modules: Iterable[str]) -> dict[str, int]:
    """Counts by name of one more run of `step`; `modules` are those that setting it up imported."""
    names = list(modules)
    counts: Counter[str] = Counter({f"imported {name.partition('.')[0]}": 0 for name in names})
    counts.update(f"imported {name.partition('.')[0]}" for name in names)
    with _files() as opened, _traffic() as traffic:
        step()
    counts.update(f"opened {_short(name, tree)}" for name in opened)
    counts.update(traffic)
    with _calls(tree) as calls:
        step()
    counts.update({f"calls {name}": count for name, count in calls.items()})
    if "torch" in sys.modules:
        counts.update({f"torch {name}": count for name, count in _operators(step).items()})
    tracemalloc.start()
    step()
    gc.collect()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    step()
    peak = tracemalloc.get_traced_memory()[1]
    gc.collect()  # what waits for the collector does not stay
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    counts[f"{UNIT // 1024} KiB allocated at the peak"] = ceil((peak - before) / UNIT)
    counts[f"{UNIT // 1024} KiB allocated that stay"] = ceil(max(0, after - before) / UNIT)
    return dict(counts)


@contextmanager
def _calls(tree: Path) -> Iterator[Counter[str]]:
    """The calls of functions that are defined in the tree, by file and qualified name."""
    codes: Counter[CodeType] = Counter()
    named: Counter[str] = Counter()
    monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.12; before, each call and return costs a Python call
    if monitoring:
        tool, start = monitoring.PROFILER_ID, monitoring.events.PY_START
        monitoring.use_tool_id(tool, "ptdp gate")
        monitoring.register_callback(tool, start, lambda code, offset: codes.update([code]))
        monitoring.set_events(tool, start)
    else:
        sys.setprofile(lambda frame, event, argument: codes.update([frame.f_code] if event == "call" else []))
    try:
        yield named
    finally:
        if monitoring:
            monitoring.set_events(tool, 0)
            monitoring.free_tool_id(tool)
        else:
            sys.setprofile(None)
        for code, count in codes.items():
            if code.co_filename.startswith(f"{tree}/"):
                named[f"{_short(code.co_filename, tree)}:{code.co_qualname}"] += count


@contextmanager
def _files() -> Iterator[list[str]]:
    """The names of the files that are opened; an audit hook cannot be removed, but hears only while it listens."""
    opened: list[str] = []
    listens = True

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if listens and event == "open" and isinstance(arguments[0], str):
            opened.append(arguments[0])

    sys.addaudithook(audit)
    try:
        yield opened
    finally:
        listens = False


@contextmanager
def _traffic() -> Iterator[dict[str, int]]:
    """The bytes that this thread reads and writes, as Linux accounts for them; nothing where it does not."""
    found: dict[str, int] = {}
    account = Path("/proc/thread-self/io")
    before = account.read_bytes() if account.exists() else b""
    yield found
    if before:
        (read, written), (read_after, written_after) = (
            [int(line.split()[1]) for line in text.splitlines()[:2]] for text in (before, account.read_bytes())
        )
        found["bytes read"] = read_after - read - len(before)  # without those of the account itself
        found["bytes written"] = written_after - written


def _operators(step: Callable[[], object]) -> Counter[str]:
    """The operators of torch that a step dispatches, the bytes of their results, and what waits for a device."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts: Counter[str] = Counter()
    waiting = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            results = result if isinstance(result, tuple | list) else [result]
            tensors = [each for each in results if isinstance(each, torch.Tensor)]
            to_host = any(each.is_cpu for each in tensors) and any(
                isinstance(each, torch.Tensor) and not each.is_cpu for each in args
            )
            counts[str(func)] += 1
            counts["bytes of results"] += sum(each.nbytes for each in tensors)
            counts["synchronisations"] += to_host or func in waiting
            return result

    with Counting():
        step()
    return counts


def _short(name: str, tree: Path) -> str:
    return name.removeprefix(f"{tree}/")
