"""What passes PyTorch's dispatcher, below the engine, whatever code issued it.

Every collective and message has its tensor and its process group there, and so has every GEMM that is really executed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from ptdp_core.engine.groups import Groups
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


@contextmanager
def in_threads(counted: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Let `counted` run what is done in other threads: the other pass of a fused pair, what vocab-2 does after S."""
    together, correct = Turns.beside, SharedVocabulary.correct

    def beside(turns: Turns, other: Callable[[], None]) -> Any:
        return together(turns, partial(counted, other))

    def corrected(*args: Any) -> Any:
        made: list[Any] = []
        counted(lambda: made.append(correct(*args)))
        return made[0]

    with patch.object(Turns, "beside", beside), patch.object(SharedVocabulary, "correct", corrected):
        yield


class _Beside(TorchDispatchMode):
    """Counts, in another thread, with these `counts`: a mode is of one thread."""

    def __init__(self, counts: TorchDispatchMode) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.counts.__torch_dispatch__(func, types, args, kwargs)


class Counts(TorchDispatchMode):
    """While `active()`: by group and operator ('dp all_reduce') calls and bytes of this rank's input, `flops` of GEMMs.

    A message is counted once, where it is sent.
    """

    def __init__(self, groups: Groups, vocabulary: SharedVocabulary | None = None) -> None:
        super().__init__()
        self.collectives: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.flops = 0
        self._groups = group_names(groups, vocabulary)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count what is done inside, in whatever thread."""
        with in_threads(self._beside), self:
            yield

    def _beside(self, other: Callable[[], None]) -> None:
        """Count what `other` does, in another thread than that of `active`."""
        with _Beside(self):
            other()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace == "c10d":
            kind, tensors = self._collective(func, args)
            if kind.split()[-1] != "recv":
                count = self.collectives[kind]
                count[0] += 1
                count[1] += sum(x.nbytes for x in tree_leaves(tensors) if isinstance(x, torch.Tensor))
        elif formula := _flops_of(func):
            self.flops += formula(*args, **(kwargs or {}), out_val=out)
        return out

    def _collective(self, func: Any, args: Any) -> tuple[str, Any]:
        """What an operator of c10d is called, such as 'dp all_reduce', and this rank's input to it."""
        operator = func._schema.name.split("::")[1]
        name = NAMES.get(operator, operator.strip("_"))
        return f"{group_of(args, self._groups)} {name}", args[INPUT_ARGUMENT.get(operator, 0)]

    def communication(self) -> dict[str, int]:
        """The calls and bytes as quantities, such as 'tp all_reduce calls'."""
        every = sorted(self.collectives.items())
        return {f"{key} {unit}": n for key, of in every for unit, n in zip(("calls", "bytes"), of, strict=True)}


@cache
def _flops_of(func: Any) -> Callable[..., int] | None:
    """The function that computes an operator's FLOPs; None if it is no GEMM. `addmm_` uses that of `addmm`."""
    return flop_registry.get(getattr(torch.ops.aten, func._overloadpacket.__name__.rstrip("_"), None))
