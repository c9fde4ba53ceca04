"""Counts on one rank what the training of one batch does, at PyTorch's dispatcher, below the engine.

Every collective and message passes the dispatcher with its tensor and its process group, whatever code issued it, and
so does every GEMM that is really executed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kernels import select
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.vocabulary import SharedVocabulary
from ptdp_core.turns import Turns

# The index of a c10d operator's argument that holds this rank's input, if that is not the first one.
INPUT_ARGUMENT = {
    "_allgather_base_": 1,
    "_reduce_scatter_base_": 1,
    "alltoall_base_": 1,
    "allgather_": 1,
    "reduce_scatter_": 1,
}
NAMES = {
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "alltoall_base_": "all_to_all",
}


def group_names(groups: Groups, vocabulary: SharedVocabulary | None = None) -> dict[str, str]:
    """The axis or lane of each process group of a rank, or its use, by the name that PyTorch gave the group."""
    lanes = {"up": groups.up, "down": groups.down}
    named = {axis.name: axis.group for axis in groups.axes} | lanes
    named |= vocabulary.process_groups if vocabulary else {}
    return {group.group_name: name for name, group in named.items() if group is not None}


def group_of(args: Any, names: Mapping[str, str]) -> str:
    """The axis or lane whose process group is among the arguments of an operator."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            return names.get(dist.ProcessGroup.unbox(arg).group_name, "another group's")
    return "no group"


class Counts(TorchDispatchMode):
    """Counts, while it is active, `calls` and `bytes` by group and operator, and the `flops` of GEMMs.

    A mode is of one thread: what a fused pass does in another (`Turns`), and what follows S of a shared vocabulary, is
    counted by a mode of that thread.
    """

    def __init__(self, groups: Groups, vocabulary: SharedVocabulary | None = None) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.flops = 0
        self._formulas: dict[Any, Callable[..., int] | None] = {}
        self._names = group_names(groups, vocabulary)

    def __enter__(self) -> Self:
        self._patches = beside(partial(_counted, self)), after_scores(partial(_counted, self))
        for each in self._patches:
            each.start()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for each in self._patches:
            each.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace == "c10d":
            operator = func._schema.name.split("::")[1]
            if operator != "recv_":  # a message is counted once, where it is sent
                self._count(operator, args)
        elif formula := self._formula(func):
            self.flops += formula(*args, **(kwargs or {}), out_val=out)
        return out

    def _formula(self, func: Any) -> Callable[..., int] | None:
        """The function that computes an operator's FLOPs; None if it is no GEMM. `addmm_` uses that of `addmm`."""
        if func not in self._formulas:
            packet = getattr(torch.ops.aten, func._overloadpacket.__name__.rstrip("_"), None)
            self._formulas[func] = flop_registry.get(packet)
        return self._formulas[func]

    def _count(self, operator: str, args: Any) -> None:
        """Count a collective or message, and the bytes of this rank's input to it."""
        tensors = torch.utils._pytree.tree_leaves(args[INPUT_ARGUMENT.get(operator, 0)])
        key = f"{group_of(args, self._names)} {NAMES.get(operator, operator.strip('_'))}"
        self.calls[key] += 1
        self.bytes[key] += sum(x.numel() * x.element_size() for x in tensors if isinstance(x, torch.Tensor))

    def communication(self) -> dict[str, int]:
        """The calls and bytes as quantities, such as 'tp all_reduce calls'."""
        return {
            f"{key} {unit}": count[key]
            for key in sorted(self.calls)
            for unit, count in (("calls", self.calls), ("bytes", self.bytes))
        }


def beside(counted: Callable[[Callable[[], None]], None]) -> Any:
    """A patch of `Turns`, by which `counted` runs what a fused pass does in another thread."""

    def patched(turns: Turns, other: Callable[[], None], own: Any = Turns.beside) -> Any:
        return own(turns, partial(counted, other))

    return patch.object(Turns, "beside", patched)


def after_scores(counted: Callable[[Callable[[], None]], None]) -> Any:
    """A patch of `SharedVocabulary`, by which `counted` runs what vocab-2 does in another thread."""

    def patched(*args: Any, own: Any = SharedVocabulary.correct) -> Any:
        made: list[Any] = []
        counted(lambda: made.append(own(*args)))
        return made[0]

    return patch.object(SharedVocabulary, "correct", patched)


class Beside(TorchDispatchMode):
    """Counts, in another thread, with these `counts`."""

    def __init__(self, counts: TorchDispatchMode) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.counts.__torch_dispatch__(func, types, args, kwargs)


def _counted(counts: Counts, function: Callable[[], None]) -> None:
    with Beside(counts):
        function()


def count(settings: Settings, beat: Callable[[], None]) -> dict[str, dict[str, Any]]:
    """Train one batch, and return this rank's quantities by kind."""
    parallel = settings.parallel
    groups = Groups.create(parallel)
    trainer = Trainer(settings, groups, select(settings.kernels), record=True)
    tokens = torch.zeros(parallel.b, settings.model.seq, dtype=torch.long)
    with Counts(groups, trainer.vocabulary) as counts:
        run = trainer.step(lambda microbatch: (tokens, tokens)).run
    beat()
    statistics = trainer.p2p.statistics
    return {
        "order": {"executed": " ".join(str(event.action) for event in run.timeline if event.action)},
        "communication": counts.communication()
        | {"messages": statistics.messages, "message bytes": statistics.bytes, "exchanges": statistics.exchanges},
        "work": {"GEMM FLOPs": counts.flops},
        "memory": {"peak stash": run.peak_stash, "peak receive buffers": statistics.peak_receive_buffers},
    }
