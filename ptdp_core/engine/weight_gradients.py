"""Computes the gradients of linear layers' weights, in the backward pass or later.

Only the optimizer needs these gradients. So a backward pass may be split (I and W of `ptdp_core.schedules`): within
`defer` a linear layer keeps the two factors of its weight's gradient, and `add` multiplies them later.
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

    With `accumulate` the GEMM adds to `weight.grad` directly, autograd gets no gradient, and the weight's hooks are not
    called. Deferring needs `split`.
    """

    def __init__(self, accumulate: bool = False, split: bool = False) -> None:
        self.accumulate, self.split = accumulate, split
        self._deferred: list[DeferredWgrad] | None = None

    @contextmanager
    def defer(self) -> Iterator[list[DeferredWgrad]]:
        """Defer the weight gradients of a backward pass run inside; the list yielded collects them."""
        assert self.split
        deferred: list[DeferredWgrad] = []
        self._deferred = deferred
        try:
            yield deferred
        finally:
            self._deferred = None

    def compute(self, wgrad: DeferredWgrad) -> torch.Tensor | None:
        """The weight's gradient [F, H] for autograd to add, or None if it is added here already, or deferred."""
        if self._deferred is not None:
            self._deferred.append(wgrad)
            return None
        if self.accumulate and wgrad.weight.grad is not None:
            wgrad.weight.grad.addmm_(wgrad.grad.t(), wgrad.x)
            return None
        return wgrad.grad.t() @ wgrad.x

    def add(self, deferred: Iterable[DeferredWgrad]) -> None:
        """Compute the deferred gradients and add them to the weights', whose hooks run as in a backward pass."""
        with torch.no_grad():
            for wgrad in deferred:
                gradient = self.compute(wgrad)
                if gradient is not None:
                    torch.autograd.backward(wgrad.weight, gradient)
