"""Registers plain functions as `torch.library` operators.

An operator of this package is registered once per implementation, as `ptdp::<operator>_<implementation>`. That makes it
well-behaved for everything around it: autograd, `torch.compile`, activation recomputation, `torch.library.opcheck`.

The reference is registered as a composite of PyTorch's own operators, which bring their derivatives along: it is
exactly what eager PyTorch does, and independent of the backward passes written here. The fused implementations are
opaque operators with a fake kernel, and a second one, `..._backward`, for their gradient. Outputs are always new and
contiguous, whatever the strides of the inputs. Eager code calls the functions without the operators.
"""

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

IMPLEMENTATIONS = ("reference", "compiled", "triton")

Function = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """One operator in its implementations, each a differentiable function of tensors.

    `schema` and `backward_schema` are what the fused implementations share, in the syntax of `torch.library`. `fake`
    and `backward_fake` return empty outputs of the right shape. `save(ctx, inputs, output)` keeps what the backward
    pass needs; `gradients(backward, ctx, *grads)` calls `backward` with it, and returns one gradient (or None) per
    input.
    """

    name: str
    schema: str
    backward_schema: str
    fake: Function
    backward_fake: Function
    save: Callable[[Any, tuple[Any, ...], Any], None]
    gradients: Function
    forward: dict[str, Function] = field(default_factory=dict)
    backward: dict[str, Function] = field(default_factory=dict)
    eager: dict[str, Function] = field(default_factory=dict)

    def reference(self, function: Function, schema: str | None = None) -> None:
        """Register `function`, a composite of PyTorch operators; its `schema` if it takes other arguments."""
        name = f"{self.name}_reference"
        torch.library.define(f"ptdp::{name}", schema or self.schema)
        torch.library.impl(f"ptdp::{name}", "CompositeImplicitAutograd", function)
        self.forward["reference"] = getattr(torch.ops.ptdp, name).default
        self.eager["reference"] = function

    def fused(self, implementation: str, forward: Function, backward: Function) -> None:
        """Register `forward` and `backward` under the name of `implementation`."""
        name = f"ptdp::{self.name}_{implementation}"
        operator = torch.library.custom_op(name, forward, mutates_args=(), schema=self.schema)
        gradient = torch.library.custom_op(f"{name}_backward", backward, mutates_args=(), schema=self.backward_schema)
        operator.register_fake(self.fake)
        gradient.register_fake(self.backward_fake)
        operator.register_autograd(
            functools.partial(self.gradients, gradient),
            setup_context=lambda ctx, inputs, output: self.save(ctx, inputs, output),
        )
        self.forward[implementation] = operator
        self.backward[implementation] = gradient
        self.eager[implementation] = functools.partial(_apply, self, forward, backward)

    def __call__(self, implementation: str, *arguments: Any) -> Any:
        """Run one implementation; the arguments are those of its schema.

        Eagerly its functions are called by autograd alone: a call of an operator of `torch.library` that is written in
        Python takes the host several times as long.
        """
        known = self.forward if implementation != "reference" and torch.compiler.is_compiling() else self.eager
        return known[implementation](*arguments)


def direct(function: type[torch.autograd.Function]) -> Function:
    """The function's `apply` without its steps for `torch.func`, of which each call would take a dozen in Python."""
    apply: Function = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


class _Eager(torch.autograd.Function):
    """The forward and the backward function of a fused implementation, called directly."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, forward: Function, backward: Function, *arguments: Any) -> Any:
        output = forward(*arguments)
        operator.save(ctx, arguments, output)
        ctx.gradients, ctx.function = operator.gradients, backward
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, None, *ctx.gradients(ctx.function, ctx, *grads)


_apply = direct(_Eager)


def compiled(function: Function) -> Function:
    """Wrap `function` so that its first call compiles it with `torch.compile`, whose import takes seconds.

    Gradients are off inside, because the operator around it brings its own: for inputs that require a gradient the
    compiler would trace a backward pass that nobody runs.
    """

    @functools.cache
    def build() -> Function:
        return torch.compile(function)

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with torch.no_grad():
            return build()(*arguments)

    return run


def triton(module: str, function: str) -> Function:
    """Wrap `function` of `kernels.<module>`, which is imported at its first call, because Triton is optional."""

    @functools.cache
    def load() -> Function:
        loaded: Function = getattr(importlib.import_module(f"kernels.{module}"), function)
        return loaded

    def run(*arguments: Any) -> Any:
        return load()(*arguments)

    return run
