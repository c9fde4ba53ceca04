"""Checks the operators' inputs before anything runs: a function for each rule, with its error message.

Messages read `<field>=<value> ...; needs <rule>; try <fix>`. Wrong types and dtypes are a TypeError, wrong
shapes, devices and numbers a ValueError.
"""

import math

import torch
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_DTYPE_NAMES = "float64, float32, bfloat16 or float16"


def floating(field: str, x: Tensor, device: torch.device) -> None:
    """Require that `x` is a tensor of a supported dtype, not empty, on a device of the type that was selected."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{field}={x!r} is a {type(x).__name__}; needs a tensor; try torch.as_tensor({field})")
    if x.dtype not in DTYPES:
        raise TypeError(f"{field}={describe(x)}; needs dtype {_DTYPE_NAMES}; try {field}.float()")
    if x.device.type != device.type:
        raise ValueError(
            f"{field}={describe(x)}; needs device {device.type}, which these kernels were selected for; "
            f"try select(name, {str(x.device)!r})"
        )
    if x.ndim == 0 or x.numel() == 0:
        raise ValueError(
            f"{field}={describe(x)}; needs at least one dimension and one element; try skipping empty input"
        )


def operands(device: torch.device, x: Tensor, vectors: dict[str, Tensor], **alike: Tensor) -> None:
    """Require that `x` [..., h] is `floating`, and `like` it the `vectors` [h] and the tensors `alike`, by field.

    It is one call where nothing is wrong.
    """
    if not isinstance(x, Tensor) or x.dtype not in DTYPES or x.device.type != device.type or not x.ndim * x.numel():
        floating("x", x, device)
    shape, dtype, where = x.shape, x.dtype, x.device
    for expected, others in ((shape[-1:], vectors), (shape, alike)):
        for field, other in others.items():
            fits = isinstance(other, Tensor) and other.dtype is dtype and other.device == where
            if not fits or other.shape != expected:
                like(field, other, "x", x, tuple(expected))


def like(field: str, x: Tensor, other_field: str, other: Tensor, shape: tuple[int, ...]) -> None:
    """Require that `x` has `shape`, and the dtype and device of `other`, which was checked before."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{field}={x!r} is a {type(x).__name__}; needs a tensor; try torch.as_tensor({field})")
    if x.dtype != other.dtype:
        raise TypeError(
            f"{field}={describe(x)} beside {other_field}={describe(other)}; needs equal dtypes; "
            f"try {field}.to({other.dtype})"
        )
    if x.device != other.device:
        raise ValueError(
            f"{field}={describe(x)} beside {other_field}={describe(other)}; needs one device; "
            f"try {field}.to({str(other.device)!r})"
        )
    if tuple(x.shape) != shape:
        raise ValueError(
            f"{field}={describe(x)} beside {other_field}={describe(other)}; needs shape {list(shape)}; "
            f"try one that fits the last dimension of {other_field}"
            if len(shape) == 1
            else f"{field}={describe(x)} beside {other_field}={describe(other)}; needs shape {list(shape)}; "
            f"try {field}.expand_as({other_field})"
        )


def square(field: str, x: Tensor) -> None:
    """Require that the last two dimensions of `x` are equal: a position attends to itself and to those before it."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(
            f"{field}={describe(x)}; needs shape [..., s, s] for an implicit causal mask; "
            "try masked_softmax with a mask of your own"
        )


def mask(field: str, x: Tensor, other_field: str, other: Tensor) -> None:
    """Require that `x` is a bool tensor that broadcasts to the shape of `other`, which was checked before."""
    if not isinstance(x, Tensor) or x.dtype != torch.bool:
        shown = describe(x) if isinstance(x, Tensor) else repr(x)
        raise TypeError(f"{field}={shown}; needs a bool tensor (True: masked out); try {field}.bool()")
    if x.device != other.device:
        raise ValueError(
            f"{field}={describe(x)} beside {other_field}={describe(other)}; needs one device; "
            f"try {field}.to({str(other.device)!r})"
        )
    if other.ndim < 2:
        raise ValueError(f"{other_field}={describe(other)}; needs shape [..., q, k]; try adding a dimension")
    fits = x.ndim <= other.ndim and all(
        size in (1, wanted) for size, wanted in zip(reversed(x.shape), reversed(other.shape), strict=False)
    )
    if not fits:
        raise ValueError(
            f"{field}={describe(x)} beside {other_field}={describe(other)}; needs a shape that broadcasts to "
            f"{list(other.shape)}; try [b, 1, q, k]"
        )


def scale(value: float) -> None:
    """Require that the factor on the scores is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"scale={value!r} is a {type(value).__name__}; needs a number; try 1 / sqrt(head size)")
    if not math.isfinite(value):
        raise ValueError(f"scale={value} is not finite; needs a finite number; try 1 / sqrt(head size)")


def probability(p: float) -> None:
    """Require 0 <= p < 1: with p = 1 nothing would be kept, and the scale 1 / (1 - p) has no value."""
    if isinstance(p, bool) or not isinstance(p, int | float):
        raise TypeError(f"p={p!r} is a {type(p).__name__}; needs a number; try 0.1")
    if not 0.0 <= p < 1.0:
        raise ValueError(f"p={p} is not a dropout probability; needs 0 <= p < 1; try 0.1, or 0 for none")


def describe(x: Tensor) -> str:
    """The shape, dtype and device of `x` as text, such as `[2, 3] float32 on cpu`."""
    return f"{list(x.shape)} {str(x.dtype).removeprefix('torch.')} on {x.device}"
