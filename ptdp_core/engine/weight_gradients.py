"""Computes the gradients of linear layers' weights, in the backward pass or later.

Only the optimizer needs these gradients. So a backward pass may be split (I and W of `ptdp_core.schedules`): within
`defer` a linear layer keeps the two factors of its weight's gradient, and `add` multiplies them later.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ptdp_core.engine.fp8 import Fp8


class DeferredWgrad(NamedTuple):
    """A weight [F, H] and the factors of its gradient: the layer's output gradient [N, F] and its input [N, H].

    Of experts' weights [E, F, H], `counts` has the number of rows that are each expert's, one after the other. With
    `fp8` the factors are rounded before they are multiplied.
    """

    weight: torch.Tensor
    grad: torch.Tensor
    x: torch.Tensor
    counts: Sequence[int] | None = None
    fp8: Fp8 | None = None

    def gradient(self) -> torch.Tensor:
        """The weight's gradient."""
        if self.fp8 is not None:
            return self.fp8.weight_gradient(self.grad, self.x, self.weight.dtype)
        if self.counts is None:
            return self.grad.t() @ self.x
        pairs = zip(self.grad.split(self.counts), self.x.split(self.counts), strict=True)
        return torch.stack([grad.t() @ x for grad, x in pairs])

    def add_to(self, total: torch.Tensor, replace: bool) -> None:
        """Add the gradient to `total`, or write it there (`add_product`)."""
        if self.fp8 is not None:
            gradient = self.fp8.weight_gradient(self.grad, self.x, total.dtype)
            (total.copy_ if replace else total.add_)(gradient)
            return
        if self.counts is None:
            add_product(total, self.grad.t(), self.x, replace)
            return
        parts = total, self.grad.split(self.counts), self.x.split(self.counts)
        for expert_total, grad, x in zip(*parts, strict=True):
            add_product(expert_total, grad.t(), x, replace)


@dataclass
class MainGradient:
    """A weight's main gradient, and whether what is in it is that of the batch before."""

    total: torch.Tensor
    unwritten: bool = False


class WeightGradients:
    """How the linear layers of a rank get the gradients of their weights: by default from autograd.

    Deferring needs `split`. With `overlapped` a weight's gradient is computed while the tensor-parallel ranks sum the
    layer's input gradient.
    """

    def __init__(self, split: bool = False, overlapped: bool = False) -> None:
        self.split, self.overlapped = split, overlapped
        self.linear_weights: list[torch.Tensor] = []  # of the rank's linear layers, the tied embedding not among them
        self.main_grads: Mapping[int, MainGradient] = {}  # by a weight's id: a tensor's hash is computed in Python
        self._added: Callable[[torch.Tensor], None] | None = None
        self._deferred: list[DeferredWgrad] | None = None

    def accumulate_into(
        self, main_grads: Mapping[torch.Tensor, torch.Tensor], added: Callable[[torch.Tensor], None] | None
    ) -> None:
        """Let the GEMMs add to these main gradients, by weight, and call `added(weight)` when they have.

        Autograd then gets no gradient of these weights.
        """
        self.main_grads = {id(weight): MainGradient(total) for weight, total in main_grads.items()}
        self._added = added

    def begin(self) -> None:
        """Begin a batch: the first GEMM of each linear layer's weight writes over what the batch before left."""
        for weight in self.linear_weights:
            self.main_grads[id(weight)].unwritten = True

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

    def compute(
        self,
        weight: torch.Tensor,
        grad: torch.Tensor,
        x: torch.Tensor,
        counts: Sequence[int] | None = None,
        fp8: Fp8 | None = None,
    ) -> torch.Tensor | None:
        """Return the weight's gradient for autograd to add, or None if it is deferred or was added here.

        The arguments are those of `DeferredWgrad`.
        """
        main = self.main_grads.get(id(weight))
        if self._deferred is not None:
            self._deferred.append(DeferredWgrad(weight, grad, x, counts, fp8))
            return None
        if main is None:
            return DeferredWgrad(weight, grad, x, counts, fp8).gradient()
        if counts is None and fp8 is None:
            add_product(main.total, grad.t(), x, main.unwritten)
        else:
            DeferredWgrad(weight, grad, x, counts, fp8).add_to(main.total, main.unwritten)
        main.unwritten = False
        if self._added is not None:
            self._added(weight)
        return None

    def add(self, deferred: Iterable[DeferredWgrad]) -> None:
        """Compute the deferred gradients and add them to the weights', whose hooks run as in a backward pass."""
        with torch.no_grad():
            for wgrad in deferred:
                gradient = self.compute(*wgrad)
                if gradient is not None:
                    torch.autograd.backward(wgrad.weight, gradient)


def add_product(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor, replace: bool = False) -> None:
    """Add the matrix product of `a` and `b` to `total`, in whose precision, which may be higher, it is summed.

    With `replace` the product takes the place of `total`, which is not read.

    On a GPU this is one GEMM, also for 16-bit factors and an fp32 total. (No GPU has run that yet.) A CPU has no such
    GEMM, so it multiplies copies of the factors in the higher precision.
    """
    beta = 0 if replace else 1
    if a.dtype == total.dtype:
        total.addmm_(a, b, beta=beta)
    elif total.is_cuda:
        torch.addmm(total, a, b, beta=beta, out_dtype=total.dtype, out=total)
    else:
        total.addmm_(a.to(total.dtype), b.to(total.dtype), beta=beta)
