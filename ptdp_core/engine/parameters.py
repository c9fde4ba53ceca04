"""Parameters by global name: how the whole tensor is initialised, and which part of it this rank holds.

A parameter's values come from a seed derived from its name, and are then sliced. So weights are equal for every
(p, t, d, v), and a checkpoint can be read at another one.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import nn

from ptdp_core.engine.groups import Axis
from ptdp_core.engine.weight_gradients import WeightGradients


@dataclass(frozen=True)
class Placement:
    """Which part of which global tensor a local parameter is.

    `shape` is the global shape without padding; the part starts at `offset` along `dim` (None: replicated over the
    tensor ranks) and its first `valid` rows along it are real, the rest padding. `tied` marks the
    embedding that is also the output layer, `copy` its second copy on the last pipeline stage: that is neither counted
    nor saved.
    """

    name: str
    shape: tuple[int, ...]
    dim: int | None
    offset: int
    valid: int
    decay: bool
    tied: bool = False
    copy: bool = False

    def counts(self, tp_rank: int) -> bool:
        """Whether this rank answers for the parameter in sums over ranks (gradient norm, parameter count)."""
        return not self.copy and (self.dim is not None or tp_rank == 0)


class Parameters:
    """Makes the parameters of a rank, and remembers them with their placement, by global name and model chunk.

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
        self.chunk = 0
        self.made: list[tuple[nn.Parameter, Placement, int]] = []

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        dim: int | None = None,
        std: float | None = None,
        fill: float = 0.0,
        padded: int | None = None,
        tied: bool = False,
        copy: bool = False,
    ) -> nn.Parameter:
        """A parameter: the part of the global tensor `name` along `dim` that is this tensor rank's.

        Normal with `std`, or filled with `fill`. `padded` is the global size along `dim` with padding, of zeros.
        Matrices decay, biases and layer norms do not.
        """
        full = torch.full(shape, fill)  # drawn in fp32, so that every precision starts from the same values
        if std is not None:
            full.normal_(0.0, std, generator=named_generator(self.seed, name))
        offset, valid = 0, full.size(dim or 0)
        if dim is not None:
            size = (padded or shape[dim]) // self.tp.size
            offset = min(size * self.tp.rank, shape[dim])
            valid = min(size, shape[dim] - offset)
            part = full.narrow(dim, offset, valid)
            full = part.new_zeros((*shape[:dim], size, *shape[dim + 1 :]))
            full.narrow(dim, 0, valid).copy_(part)
        parameter = nn.Parameter(full.to(self.device, self.dtype))
        placement = Placement(name, shape, dim, offset, valid, len(shape) > 1, tied, copy)
        self.made.append((parameter, placement, self.chunk))
        return parameter


def named_generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator whose stream depends on `seed` and `name` only."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
