"""What one step of a workload does, in numbers that do not depend on the machine; for `workload.py`.

Counted are calls of the tree's functions, allocations of Python objects, files opened, modules that set-up imported,
and where torch is loaded its operators. Nothing but the standard library is imported here.
"""

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any


def counted(step: Callable[[], object], tree: Path, modules: Iterable[str]) -> dict[str, int]:
    """Counts by name of one more run of `step`; `modules` are those that setting it up imported."""
    names = list(modules)
    counts: Counter[str] = Counter({f"imported {name.partition('.')[0]}": 0 for name in names})
    counts.update(f"imported {name.partition('.')[0]}" for name in names)
    with _files() as opened:
        step()
    counts.update(f"opened {_short(name, tree)}" for name in opened)
    with _calls(tree) as calls:
        step()
    counts.update({f"calls {name}": count for name, count in calls.items()})
    if "torch" in sys.modules:
        counts.update({f"torch {name}": count for name, count in _operators(step).items()})
    tracemalloc.start()
    step()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    step()
    counts["allocated bytes at the peak"] = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
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


def _operators(step: Callable[[], object]) -> Counter[str]:
    """The operators of torch that a step dispatches."""
    from torch.utils._python_dispatch import TorchDispatchMode

    counts: Counter[str] = Counter()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            counts[str(func)] += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        step()
    return counts


def _short(name: str, tree: Path) -> str:
    return name.removeprefix(f"{tree}/")
