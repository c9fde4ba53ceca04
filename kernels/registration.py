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
from collections.abc import Callable, Mapping
from typing import Any

import torch

IMPLEMENTATIONS = ("reference", "compiled", "triton")

Function = Callable[..., Any]


class Operator:
    """One operator in its implementations, each a differentiable function of tensors.

    `fused` are the forward and the backward function of each other implementation, all with the arguments of the
    compiled ones. Outputs are shaped as the first argument; a second one of the backward function is a bias's gradient.
    `save(ctx, inputs, output)` keeps what the backward pass needs; `gradients(backward, ctx, *grads)` calls `backward`
    with it, and returns the gradients of the first inputs; the others have none.
    """

    def __init__(
        self,
        name: str,
        reference: Function,
        fused: Mapping[str, tuple[Function, Function]],
        save: Callable[[Any, tuple[Any, ...], Any], None],
        gradients: Function,
    ) -> None:
        self.name, self.save, self.gradients = name, save, gradients
        schema = torch.library.infer_schema(reference, mutates_args=())
        torch.library.define(f"ptdp::{name}_reference", schema)
        torch.library.impl(f"ptdp::{name}_reference", "CompositeImplicitAutograd", reference)
        self.forward: dict[str, Function] = {"reference": getattr(torch.ops.ptdp, f"{name}_reference").default}
        self.backward: dict[str, Function] = {}
        self.eager: dict[str, Function] = {"reference": reference}
        schemas = [torch.library.infer_schema(function, mutates_args=()) for function in fused["compiled"]]
        for implementation, functions in fused.items():
            names = f"ptdp::{name}_{implementation}", f"ptdp::{name}_{implementation}_backward"
            forward, backward = (
                torch.library.custom_op(named, function, mutates_args=(), schema=schema)
                for named, function, schema in zip(names, functions, schemas, strict=True)
            )
            forward.register_fake(_like_the_first)
            backward.register_fake(_with_a_bias if "(Tensor, Tensor)" in schemas[1] else _like_the_first)
            forward.register_autograd(functools.partial(self._backward, backward), setup_context=self._set_up)
            self.forward[implementation], self.backward[implementation] = forward, backward
            self.eager[implementation] = functools.partial(_apply, self, *functions)

    def _set_up(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.inputs = len(inputs)
        self.save(ctx, inputs, output)

    def _backward(self, function: Function, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        gradients = self.gradients(function, ctx, *grads)
        return (*gradients, *[None] * (ctx.inputs - len(gradients)))

    def __call__(self, implementation: str, *arguments: Any) -> Any:
        """Run one implementation; the arguments are those of its function.

        Eagerly its functions are called by autograd alone: a call of an operator of `torch.library` that is written in
        Python takes the host several times as long.
        """
        known = self.forward if implementation != "reference" and torch.compiler.is_compiling() else self.eager
        return known[implementation](*arguments)


def _like_the_first(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _with_a_bias(x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[-1])


def direct(function: type[torch.autograd.Function]) -> Function:
    """The function's `apply` without its steps for `torch.func`, of which each call would take a dozen in Python."""
    apply: Function = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


class _Eager(torch.autograd.Function):
    """The forward and the backward function of a fused implementation, called directly."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, forward: Function, backward: Function, *arguments: Any) -> Any:
        output = forward(*arguments)
        operator._set_up(ctx, arguments, output)
        ctx.operator, ctx.function = operator, backward
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None, None, *ctx.operator._backward(ctx.function, ctx, *grads)


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
