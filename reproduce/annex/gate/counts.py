"""What one step of a workload does, in numbers that do not depend on the machine; for `workload.py`.

Counted are calls of the tree's functions, allocations of Python objects, files opened and bytes read and written,
modules that set-up imported, and where torch is loaded its operators, their bytes and what waits for a device. Nothing
but the standard library is imported here. Instructions are not: of a step in Python they differ from run to run.
"""

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Any

UNIT = 16 * 1024  # bytes of memory are counted by, to the nearest: what a few objects need is no regression

CALLS = "calls "  # begins the name of a count of calls
ALLOCATED = f"{UNIT // 1024} KiB allocated"  # and of memory

Step = Callable[[], object]


def counted(step: Step, tree: Path, modules: Iterable[str]) -> dict[str, int]:
    """Counts by name of further runs of `step`; `modules` are those that setting it up imported.

    Those of the tree are left out, as a module that is split is no regression; what they import is there.
    """
    places = {name: getattr(sys.modules.get(name), "__file__", None) or "" for name in modules}
    others = [name for name, file in places.items() if name != "__future__" and not file.startswith(f"{tree}/")]
    counts = Counter(f"imported {name.partition('.')[0]}" for name in others)
    counts.update(_files(step, tree))
    counts.update(_calls(step, tree))
    if "torch" in sys.modules:
        counts.update(_operators(step))
    counts.update(_memory(step))
    return dict(counts)


def _files(step: Step, tree: Path) -> Counter[str]:
    """The files that a step opens, and the bytes that this thread reads and writes, as far as Linux accounts for them.

    The audit hook cannot be removed, but hears only while it listens.
    """
    counts: Counter[str] = Counter()
    account, listens = Path("/proc/thread-self/io"), True

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if listens and event == "open" and isinstance(arguments[0], str):
            counts[f"opened {arguments[0].removeprefix(f'{tree}/')}"] += 1

    before = account.read_bytes() if account.exists() else b""
    sys.addaudithook(audit)
    step()
    listens = False
    if before:
        (read, written), (read_after, written_after) = (
            [int(line.split()[1]) for line in text.splitlines()[:2]] for text in (before, account.read_bytes())
        )
        counts["bytes read"] = read_after - read - len(before)  # without those of the account itself
        counts["bytes written"] = written_after - written
    return counts


def _calls(step: Step, tree: Path) -> Counter[str]:
    """The calls of functions that are defined in the tree, by file and qualified name."""
    codes: Counter[CodeType] = Counter()
    monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.12; before, each call and return costs a Python call
    if monitoring:
        tool, start = monitoring.PROFILER_ID, monitoring.events.PY_START
        monitoring.use_tool_id(tool, "ptdp gate")
        monitoring.register_callback(tool, start, lambda code, offset: codes.update([code]))
        monitoring.set_events(tool, start)
        step()
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    else:
        sys.setprofile(lambda frame, event, argument: codes.update([frame.f_code] if event == "call" else []))
        step()
        sys.setprofile(None)
    counts: Counter[str] = Counter()
    for code, count in codes.items():
        if code.co_filename.startswith(f"{tree}/"):
            counts[f"{CALLS}{code.co_filename.removeprefix(f'{tree}/')}:{code.co_qualname}"] += count
    return counts


def _operators(step: Step) -> Counter[str]:
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
            counts[f"torch {func}"] += 1
            counts["torch bytes of results"] += sum(each.nbytes for each in tensors)
            counts["torch synchronisations"] += to_host or func in waiting
            return result

    with Counting():
        step()
    return counts


def _memory(step: Step) -> dict[str, int]:
    """The memory that a step allocates at its peak, and what of it stays, in units."""
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
    grown = {"at the peak": peak - before, "that stay": max(0, after - before)}
    return {f"{ALLOCATED} {when}": round(size / UNIT) for when, size in grown.items()}
