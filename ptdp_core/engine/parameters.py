"""The parameters of a rank, with initial values that do not depend on the layout.

The values of a whole parameter come from a seed derived from its name; a rank then takes its slice of them
(`layout.ShardSpec`). So the initial weights are equal for every (p, t, d, v).
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from ptdp_core import layout
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.weight_gradients import WeightGradients


class LocalParameter(NamedTuple):
    """A parameter tensor on this rank, the part of the global parameter that it is, and its model chunk's number."""

    tensor: nn.Parameter
    shard: layout.ShardSpec
    chunk: int


class ParameterStore:
    """Makes the parameters of a rank as the layout says, and keeps them in the order in which they were made.

    `weight_gradients` says how linear layers made with them get their gradients; by default autograd adds them.
    """

    def __init__(
        self,
        seed: int,
        tp: Axis,
        device: torch.device,
        dtype: torch.dtype,
        weight_gradients: WeightGradients | None = None,
    ) -> None:
        self.seed, self.tp, self.device, self.dtype = seed, tp, device, dtype
        self.weight_gradients = weight_gradients or WeightGradients()
        self.parameters: list[LocalParameter] = []
        self._chunk = 0
        self._to_make: dict[str, layout.Parameter] = {}

    def begin_chunk(self, chunk: int, parameters: Iterable[layout.Parameter]) -> None:
        """Begin a model chunk, which has these parameters; its modules then make each of them once."""
        assert not self._to_make, f"chunk {self._chunk} has no module for {list(self._to_make)}"
        self._chunk, self._to_make = chunk, {parameter.name: parameter for parameter in parameters}

    def __call__(self, name: str, *, std: float | None = None, fill: float = 0.0) -> nn.Parameter:
        """This tensor rank's part of the global parameter `name`: normal with `std`, or filled with `fill`.

        Padding is zero.
        """
        parameter = self._to_make.pop(name)
        full = torch.full(parameter.shape, fill)  # drawn in fp32, so that every precision starts from the same values
        if std is not None:
            full.normal_(0.0, std, generator=named_generator(self.seed, name))
        shard = parameter.shard(self.tp.size, self.tp.rank)
        if parameter.split is not None:
            part = full.narrow(parameter.split, shard.start, shard.stop - shard.start)
            full = part.new_zeros(shard.shape)
            full.narrow(parameter.split, 0, shard.stop - shard.start).copy_(part)
        tensor = nn.Parameter(full.to(self.device, self.dtype))
        self.parameters.append(LocalParameter(tensor, shard, self._chunk))
        return tensor


def named_generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator whose stream depends on `seed` and `name` only."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
