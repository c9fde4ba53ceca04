"""When the gradients of linear layers' weights are computed: in the backward pass, or in a pass of their own.

Only the optimizer waits for them. So a split backward pass (I and W of `ptdp_core.schedules`) puts their GEMMs off:
within `put_off` a linear layer leaves what its weight's gradient needs, and `add` computes it later.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch


class Owed(NamedTuple):
    """A weight [F, H] and the factors of its gradient: the layer's output gradient [N, F] and its input [N, H]."""

    weight: torch.Tensor
    grad: torch.Tensor
    x: torch.Tensor


class WeightGradients:
    """How the linear layers of a rank get the gradients of their weights.

    With `accumulate` the GEMM adds to `weight.grad` itself and autograd gets none: no hook of the weight is called.
    Only with `split` may they be put off.
    """

    def __init__(self, accumulate: bool = False, split: bool = False) -> None:
        self.accumulate, self.split = accumulate, split
        self._owed: list[Owed] | None = None

    @contextmanager
    def put_off(self) -> Iterator[list[Owed]]:
        """What a backward pass in here owes to its weights is in the list afterwards."""
        assert self.split
        owed: list[Owed] = []
        self._owed = owed
        try:
            yield owed
        finally:
            self._owed = None

    def of(self, owed: Owed) -> torch.Tensor | None:
        """The gradient for autograd to add to the weight's; None if it has been added, or is put off."""
        if self._owed is not None:
            self._owed.append(owed)
            return None
        if self.accumulate and owed.weight.grad is not None:
            owed.weight.grad.addmm_(owed.grad.t(), owed.x)
            return None
        return owed.grad.t() @ owed.x

    def add(self, later: Iterable[Owed]) -> None:
        """Compute what was put off; a weight's hooks are called as in a backward pass."""
        with torch.no_grad():
            for owed in later:
                gradient = self.of(owed)
                if gradient is not None:
                    torch.autograd.backward(owed.weight, gradient)
