"""The parameters of a rank, with initial values that do not depend on the layout.

A parameter is drawn in blocks of 16 rows (columns, if tensor parallelism divides those). Each block's seed is derived
from the parameter's name and the block's number. So a rank draws only the blocks in its slice (`layout.ShardSpec`), and
the initial weights are equal for every (p, t, d, v).
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import nn

from ptdp_core import layout
from ptdp_core.engine.fp8 import Fp8
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.weight_gradients import WeightGradients
from ptdp_core.layout import OUTPUT, WORD_EMBEDDING

# PyTorch's types for the precisions of `ptdp_core.config.DTYPES`.
TORCH_DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
BLOCK = 16  # rows or columns that one generator draws; part of what the initial weights are
THREADED = 1 << 18  # elements of a parameter from which on threads share its blocks


class LocalParameter(NamedTuple):
    """A parameter tensor on this rank, the part of the global parameter that it is, and its model chunk's number."""

    tensor: nn.Parameter
    shard: layout.ShardSpec
    chunk: int


class ParameterStore:
    """Makes the parameters of a rank as the layout says, and keeps them in the order in which they were made.

    `weight_gradients` says how linear layers made with them get their gradients; by default autograd adds them. Tensor
    ranks share each expert, but for `whole_experts`. Linears of layers multiply by `fp8`, if it is given. The ranks of
    `vocabulary` share the embedding and the output layer, if it is given.
    """

    def __init__(
        self,
        seed: int,
        tp: Axis,
        device: torch.device,
        dtype: torch.dtype,
        weight_gradients: WeightGradients | None = None,
        ep: Axis | None = None,
        whole_experts: bool = False,
        fp8: Fp8 | None = None,
        vocabulary: Axis | None = None,
    ) -> None:
        self.seed, self.tp, self.device, self.dtype = seed, tp, device, dtype
        self.ep, self.expert_tp = ep or Axis("ep"), Axis("tp") if whole_experts else tp
        self.vocabulary = vocabulary
        self.weight_gradients, self.fp8 = weight_gradients or WeightGradients(), fp8
        self.parameters: list[LocalParameter] = []
        self._chunk = 0
        self._to_make: dict[str, layout.Parameter] = {}

    def begin_chunk(self, chunk: int, parameters: Iterable[layout.Parameter]) -> None:
        """Begin a model chunk, which has these parameters; its modules then make each of them once."""
        assert not self._to_make, f"chunk {self._chunk} has no module for {list(self._to_make)}"
        self._chunk, self._to_make = chunk, {parameter.name: parameter for parameter in parameters}

    def __call__(self, name: str, *, std: float | None = None, fill: float = 0.0) -> nn.Parameter:
        """Make this tensor rank's part of the global parameter `name`: normal with `std`, or filled with `fill`.

        Padding is zero.
        """
        parameter = self._to_make.pop(name)
        tp = self.expert_tp if parameter.stacked else self.tp
        if self.vocabulary is not None and name in (WORD_EMBEDDING, OUTPUT):
            tp = self.vocabulary
        shard = parameter.shard(tp.size, tp.rank, self.ep.size, self.ep.rank)
        tensor = torch.zeros(shard.shape, dtype=self.dtype, device=self.device)
        split, matrices = shard.parameter.split or 0, {name: tensor}
        if shard.parameter.stacked:  # drawn as if each expert's matrix were a parameter of its own
            matrices = {
                name.replace(".experts.", f".experts.{number}."): matrix
                for number, matrix in enumerate(tensor, shard.first_expert)
            }
        for own_name, matrix in matrices.items():
            rows = matrix.movedim(split, 0)[: shard.stop - shard.start]
            if std is None:
                rows.fill_(fill)
            else:
                self._draw(own_name, shard, rows, std)
        self.parameters.append(LocalParameter(nn.Parameter(tensor), shard, self._chunk))
        return self.parameters[-1].tensor

    def _draw(self, name: str, shard: layout.ShardSpec, rows: torch.Tensor, std: float) -> None:
        """Draw `rows`, which are [shard.start, shard.stop) of `name` along the dimension that is split.

        The values are drawn in fp32 on the CPU, so that every precision and device starts from the same. All of
        torch's threads draw blocks; a block's values depend on none of the others.
        """
        whole, first = shard.parameter.shape[shard.parameter.dimension], shard.start // BLOCK * BLOCK
        drawn = torch.empty(min(-(-shard.stop // BLOCK) * BLOCK, whole) - first, *rows.shape[1:])

        def draw(start: int) -> None:
            generator = named_generator(self.seed, f"{name}/{start // BLOCK}")
            drawn[start - first : start - first + BLOCK].normal_(0.0, std, generator=generator)

        starts = range(first, shard.stop, BLOCK)
        with ThreadPoolExecutor(torch.get_num_threads()) if drawn.numel() >= THREADED else nullcontext() as pool:
            for _ in pool.map(draw, starts) if pool is not None else map(draw, starts):
                pass
        rows.copy_(drawn[shard.start - first : shard.stop - first])


def named_generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator whose stream depends on `seed` and `name` only."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
