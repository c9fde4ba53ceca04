"""Computes the gradients of linear layers' weights, in the backward pass or later.

Only the optimizer needs these gradients. So a backward pass may be split (I and W of `ptdp_core.schedules`): within
`defer` a linear layer keeps the two factors of its weight's gradient, and `add` multiplies them later.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kernels.products import LEAST, PYTORCH, products_with
from ptdp_core.engine.fp8 import Fp8

BLOCK = 1 << 20  # elements of a product that are added to another tensor while they are in a CPU's cache


class Grouped(NamedTuple):
    """How many rows are each expert's, one expert after the other: `counts` and their sums, `stops` in int32, [E].

    Both are on the device. `listed` are the counts on the host, which waits for them there.
    """

    counts: torch.Tensor
    stops: torch.Tensor

    @classmethod
    def of(cls, counts: torch.Tensor) -> "Grouped":
        """Rows of these counts, without a wait of the host."""
        return cls(counts, counts.cumsum(0, dtype=torch.int32))

    @property
    def listed(self) -> list[int]:
        """The counts on the host."""
        numbers: list[int] = self.counts.tolist()
        return numbers


@functools.cache
def has_grouped_gemm(device: torch.device) -> bool:
    """Whether `torch._grouped_mm` is a grouped GEMM here: on GPUs of compute capability 9.0 and newer."""
    there = device.type == "cuda" and hasattr(torch, "_grouped_mm")
    return there and torch.cuda.get_device_capability(device) >= (9, 0)


def is_grouped(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether one grouped GEMM multiplies rows and a stack of matrices: bf16, in rows of whole 16 bytes."""
    aligned = all(size % 8 == 0 for size in weight.shape[1:])
    return x.dtype == torch.bfloat16 and aligned and has_grouped_gemm(x.device)


class DeferredWgrad(NamedTuple):
    """A weight [F, H] and the factors of its gradient: the layer's output gradient [N, F] and its input [N, H].

    Of experts' weights [E, F, H], `rows` says which are each expert's. With `fp8` the factors are rounded or will be.
    A grouped GEMM rounds a gradient to bf16 before it is added to a main gradient in fp32.
    """

    weight: torch.Tensor
    grad: Any  # tensors; with `fp8` a `Factor` each
    x: Any
    rows: Grouped | None = None
    fp8: Fp8 | None = None

    def gradient(self) -> torch.Tensor:
        """The weight's gradient."""
        if self.fp8 is not None:
            return self.fp8.weight_gradient(self.grad, self.x, self.weight.dtype)
        if self.rows is None:
            multiply = torch.mm if self.x.numel() < LEAST else products_with(self.x).product
            return multiply(self.grad.t(), self.x)
        if is_grouped(self.x, self.weight):
            return torch._grouped_mm(self.grad.t(), self.x, offs=self.rows.stops)
        counts = self.rows.listed
        pairs = zip(self.grad.split(counts), self.x.split(counts), strict=True)
        return torch.stack([grad.t() @ x for grad, x in pairs])

    def add_to(self, total: torch.Tensor, replace: bool) -> None:
        """Add the gradient to `total`, or write it there (`add_product`)."""
        if self.fp8 is not None:
            self.fp8.add_weight_gradient(total, self.grad, self.x, replace)
            return
        if self.rows is None:
            add_product(total, self.grad.t(), self.x, replace)
            return
        if is_grouped(self.x, self.weight):
            (total.copy_ if replace else total.add_)(self.gradient())
            return
        counts = self.rows.listed
        parts = total, self.grad.split(counts), self.x.split(counts)
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
        self._written: list[MainGradient] = []
        self._added: Callable[[torch.Tensor], None] | None = None
        self._deferred: list[DeferredWgrad] | None = None

    def accumulate_into(
        self,
        main_grads: Mapping[torch.Tensor, torch.Tensor],
        added: Callable[[torch.Tensor], None] | None,
        written: Iterable[torch.Tensor] = (),
    ) -> None:
        """Let the GEMMs add to these main gradients, by weight, and call `added(weight)` when they have.

        Autograd then gets no gradient of these weights. Nothing else adds to those of the weights `written`, so that
        the first GEMM of a batch writes over what the batch before left.
        """
        self.main_grads = {id(weight): MainGradient(total) for weight, total in main_grads.items()}
        self._written = [self.main_grads[id(weight)] for weight in written]
        self._added = added

    def begin(self) -> None:
        """Begin a batch: the first GEMM of each weight `written` writes over what the batch before left."""
        for main in self._written:
            main.unwritten = True

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
        self, weight: torch.Tensor, grad: Any, x: Any, rows: Grouped | None = None, fp8: Fp8 | None = None
    ) -> torch.Tensor | None:
        """Return the weight's gradient for autograd to add, or None if it is deferred or was added here.

        The arguments are those of `DeferredWgrad`.
        """
        main = self.main_grads.get(id(weight))
        if self._deferred is not None:
            self._deferred.append(DeferredWgrad(weight, grad, x, rows, fp8))
            return None
        if main is None:
            return DeferredWgrad(weight, grad, x, rows, fp8).gradient()
        if rows is None and fp8 is None:
            add_product(main.total, grad.t(), x, main.unwritten)
        else:
            DeferredWgrad(weight, grad, x, rows, fp8).add_to(main.total, main.unwritten)
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

    On a GPU this is one GEMM, also for 16-bit factors and an fp32 total. A CPU has no such
    GEMM, so it multiplies copies of the factors in the higher precision.
    """
    beta = 0 if replace else 1
    if a.dtype != total.dtype:
        if total.is_cuda:
            torch.addmm(total, a, b, beta=beta, out_dtype=total.dtype, out=total)
            return
        a, b = a.to(total.dtype), b.to(total.dtype)
    if total.numel() < LEAST or (products := products_with(total)) is PYTORCH:
        total.addmm_(a, b, beta=beta)
        return
    rows = max(1, BLOCK // total.size(1))
    for part, factor in zip(total.split(rows), a.split(rows), strict=True):
        (part.copy_ if replace else part.add_)(products.product(factor, b))
