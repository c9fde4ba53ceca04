"""Counts on one rank what a training step makes the machine do, by the function of the project that asks for it.

Nothing here is timed. `Profile` sees every operator at PyTorch's dispatcher, whatever code issued it, and walks up the
Python stack to the function that is responsible. Views are left out: they start no kernel and move no bytes.
"""

import gc
import sys
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial
from itertools import takewhile
from types import FrameType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ptdp_core.engine.groups import Groups
from ptdp_core.engine.zero3 import Zero3Trainer
from reproduce.annex.exact import watched
from reproduce.annex.exact.dispatched import Counts as Dispatched
from reproduce.annex.exact.entries import OURS
from results import ROOT

# A function of these files, or of these names, is named together with its caller: its own name would not say who asked
# for the work.
HELPERS = (f"{ROOT / 'kernels'}/", f"{ROOT / 'ptdp_core' / 'engine' / 'groups.py'}")
HELPING = ("tensor_parallel._gathered", "param_and_grad_buffer.Bucket.wait_for_parameters")
# For these a host waits for its GPU. On a CPU some of them never come to the dispatcher.
SYNCHRONISING = {"tolist", "cpu", "numpy"}
DTYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "int64",
    torch.bool: "bool",
}

# Seconds in which gloo's threads release a tensor, which they hold for a moment after its collective.
RELEASE = 0.001

Counts = defaultdict[str, Counter[str]]  # by function, by what is counted


def function_name(frame: FrameType) -> str:
    """The name of a frame's function of the project, such as 'optimizer.Optimizer.step'; empty for other code.

    Also empty for comprehensions, which are functions of their own on some versions of Python only.
    """
    code = frame.f_code
    return watched.name(frame) if code.co_filename.startswith(OURS) and not code.co_name.startswith("<") else ""


SHARDING = watched.name_of(Zero3Trainer._shard.__code__, Zero3Trainer.__module__)


def responsible(frame: FrameType | None) -> str:
    """The innermost function of the project on the stack; for a helper also the function that called it."""
    helper = ""
    for each in watched.outwards(frame):
        if name := function_name(each):
            if not each.f_code.co_filename.startswith(HELPERS) and name not in HELPING:
                return f"{name} > {helper}" if helper else name
            helper = helper or name
    return helper or "outside the project"


def _is_in_fsdp(frame: FrameType | None) -> bool:
    """Whether FSDP was called by the innermost function of the project on the stack, or by a hook below it."""
    below = takewhile(lambda each: not function_name(each), watched.outwards(frame))
    return any("/distributed/fsdp/" in each.f_code.co_filename for each in below)


class _Synchronisations(TorchFunctionMode):
    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in SYNCHRONISING:
            self.counts[responsible(sys._getframe(1))][f"host synchronisation .{name}()"] += 1
        return func(*args, **(kwargs or {}))


class Profile(Dispatched):
    """While `active()`: operators, new bytes, live bytes and their peak, waits for collectives, and Python calls.

    - `operators[function]`: operators with the dtype of their result ('mm bf16'), collectives with their group
      ('dp all_reduce fp32'), host synchronisations, and the 'bytes' of all new storages. FSDP's collectives count once
      more, for the function that shards the model: which function happens to run FSDP's hooks does not say who asked
    - `waits[function]`: 'waits' for collectives and messages, and the 'operators under way' meanwhile: those dispatched
      since the collective was started. With 0 of them nothing overlaps
    - `calls[module]`: calls of the module's functions
    - `gradients[function]`: 'calls without gradients' by one that was itself called with them, unless it is autograd
      that calls, which turns gradients off for every forward, backward and hook
    - `peak`, `alive`: bytes of storages at their peak and now, by the function that made them; storages that were made
      before are not counted

    `pending` is that of the batch before, some of whose collectives may go on.
    """

    def __init__(self, groups: Groups, pending: Iterable[int] = ()) -> None:
        super().__init__(groups)
        self.operators: Counts = defaultdict(Counter)
        self.waits: Counts = defaultdict(Counter)
        self.calls: Counts = defaultdict(Counter)
        self.gradients: Counts = defaultdict(Counter)
        self.alive: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self._storages: dict[int, weakref.ref[Any]] = {}
        self._dispatched = 0
        self._started = list(pending)  # `_dispatched` at the start of collectives that nobody has waited for

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count what is done inside. Garbage collection is off: memory that only it would free counts as alive."""
        wait = dist.Work.wait
        gc.collect()
        gc.disable()
        with ExitStack() as stack:
            stack.callback(gc.enable)
            # Whether a message has arrived depends on time. Each is waited for, so that counts do not depend on it.
            stack.enter_context(patch.object(dist.Work, "is_completed", lambda work: False))
            stack.enter_context(patch.object(dist.Work, "wait", self._waiting(wait)))
            stack.enter_context(_Synchronisations(self.operators))
            stack.enter_context(super().active())
            stack.enter_context(self._calling())
            yield

    def _beside(self, other: Callable[[], None]) -> None:
        with _Synchronisations(self.operators), self._calling():
            super()._beside(other)

    def _calling(self) -> AbstractContextManager[None]:
        """Count the calls of this thread."""
        # Of each function of the project on the stack: whether gradients were on at its call.
        return watched.calling(partial(self._call, [True]))

    def pending(self) -> list[int]:
        """For every collective that nobody has waited for: minus the operators dispatched since it was started."""
        return [start - self._dispatched for start in self._started]

    def _waiting(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """`Work.wait`, counted with the operators that were dispatched since the collective was started."""

        def counted(work: Any, *args: Any, **options: Any) -> Any:
            function = self.waits[responsible(sys._getframe(1))]
            function["waits"] += 1
            # PyTorch does not say which collective this is. It is taken to be the newest one if nothing else was
            # dispatched since that started, and otherwise the oldest one.
            if self._started:
                newest = self._started[-1] == self._dispatched
                function["operators under way"] += self._dispatched - self._started.pop(-1 if newest else 0)
            result = wait(work, *args, **options)
            time.sleep(RELEASE)
            return result

        return counted

    def _call(self, modes: list[bool], frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return") or not (name := function_name(frame)):
            return
        if event == "return":
            modes.pop()
            return
        module, function = name.split(".", 1)
        self.calls[module][function] += 1
        enabled = torch.is_grad_enabled()
        caller = frame.f_back.f_code.co_filename if frame.f_back is not None else ""
        if modes[-1] and not enabled and "/torch/autograd/" not in caller:
            self.gradients[name]["calls without gradients"] += 1
        modes.append(enabled)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {x.untyped_storage()._cdata for x in _tensors((args, kwargs))}
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if not _is_view(func) and func.namespace != "profiler":
            function = responsible(sys._getframe(1))
            self.operators[function][self._name(func, args, out)] += 1
            self._allocate(function, out, before)
        return out

    def _name(self, func: Any, args: Any, out: Any) -> str:
        """The name that an operator is counted by, such as 'mm bf16'; notes the start of a collective."""
        if func.namespace == "c10d":
            self._started.append(self._dispatched)
            kind, tensors = self._collective(func, args)
            if _is_in_fsdp(sys._getframe(2)):
                self.operators[SHARDING][f"FSDP's {kind.rpartition(' ')[2]} {_dtype(tensors)}"] += 1
            return f"{kind} {_dtype(tensors)}"
        self._dispatched += 1
        if (operator := func._schema.name.split("::")[1]) == "_local_scalar_dense":
            return "host synchronisation .item()"
        return f"{operator} {_dtype((out, args))}"

    def _allocate(self, function: str, out: Any, before: set[int]) -> None:
        """Count the storages of a result that neither the operator's arguments (`before`) nor earlier results have."""
        for tensor in _tensors(out):
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key in before or key in self._storages or not size:
                continue
            self.operators[function]["bytes"] += size
            self.alive[function] += size
            self._storages[key] = weakref.ref(storage, self._free(key, function, size))
            if self.alive.total() > self.peak.total():
                self.peak = +self.alive

    def _free(self, key: int, function: str, size: int) -> Callable[[Any], None]:
        """What is called when a storage dies: its bytes are no longer alive."""

        def free(reference: Any) -> None:
            del self._storages[key]
            self.alive[function] -= size

        return free


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The plain tensors in a nested structure; those of subclasses, such as DTensor, have no storage of their own."""
    return [x for x in tree_leaves(tree) if type(x) in (torch.Tensor, torch.nn.Parameter)]


def _dtype(tree: Any) -> str:
    """The dtype of the first tensor of a nested structure."""
    dtype = next((x.dtype for x in tree_leaves(tree) if isinstance(x, torch.Tensor)), None)
    return DTYPES.get(dtype, str(dtype).removeprefix("torch.")) if dtype else "no tensor"


@cache
def _is_view(func: Any) -> bool:
    """Whether an operator only gives its input another shape."""
    aliases = [result.alias_info for result in func._schema.returns]
    return func._schema.name == "aten::_unsafe_view" or any(alias and not alias.is_write for alias in aliases)


def as_text(counts: Mapping[str, int]) -> str:
    """Counts as text, such as '4 clone bf16, 12 mm bf16', which is how the reference's files have them."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if count)


def by_function(counts: Counts) -> dict[str, str]:
    """Counts by function, each as text."""
    return {function: as_text(of_function) for function, of_function in sorted(counts.items())}
