"""When the gradients of linear layers' weights are computed: in the backward pass, or in a pass of their own.

Only the optimizer waits for them. So a split backward pass (I and W of `ptdp_core.schedules`) defers their GEMMs:
within `defer` a linear layer leaves what its weight's gradient needs, and `add` computes it later.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch


class DeferredWgrad(NamedTuple):
    """A weight [F, H] and the factors of its gradient: the layer's output gradient [N, F] and its input [N, H]."""

    weight: torch.Tensor
    grad: torch.Tensor
    x: torch.Tensor


class WeightGradients:
    """How the linear layers of a rank get the gradients of their weights.

    With `accumulate` the GEMM adds to `weight.grad` itself and autograd gets none: no hook of the weight is called.
    Only with `split` may they be deferred.
    """

    def __init__(self, accumulate: bool = False, split: bool = False) -> None:
        self.accumulate, self.split = accumulate, split
        self._deferred: list[DeferredWgrad] | None = None

    @contextmanager
    def defer(self) -> Iterator[list[DeferredWgrad]]:
        """The weight gradients that a backward pass in here defers are in the list afterwards."""
        assert self.split
        deferred: list[DeferredWgrad] = []
        self._deferred = deferred
        try:
            yield deferred
        finally:
            self._deferred = None

    def compute(self, wgrad: DeferredWgrad) -> torch.Tensor | None:
        """The gradient for autograd to add to the weight's; None if it has been added, or is deferred."""
        if self._deferred is not None:
            self._deferred.append(wgrad)
            return None
        if self.accumulate and wgrad.weight.grad is not None:
            wgrad.weight.grad.addmm_(wgrad.grad.t(), wgrad.x)
            return None
        return wgrad.grad.t() @ wgrad.x

    def add(self, deferred: Iterable[DeferredWgrad]) -> None:
        """Compute what was deferred; a weight's hooks are called as in a backward pass."""
        with torch.no_grad():
            for wgrad in deferred:
                gradient = self.compute(wgrad)
                if gradient is not None:
                    torch.autograd.backward(wgrad.weight, gradient)
