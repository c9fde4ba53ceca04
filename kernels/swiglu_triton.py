"""Triton kernels of SwiGLU over all pairs of a tensor, wherever its rows end."""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels import launch


@triton.jit
def _pairs(x, start, pairs, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The gates and the others of `BLOCK` pairs from number `start` on."""
    inside = start * 2 + tl.arange(0, 2 * BLOCK) < pairs * 2
    both = tl.load(x + start * 2 + tl.arange(0, 2 * BLOCK), mask=inside, other=0.0).to(WIDE)
    return tl.split(tl.reshape(both, (BLOCK, 2)))


@triton.jit
def _forward(x, y, pairs, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    gate, up = _pairs(x, start, pairs, WIDE, BLOCK)
    place = start + tl.arange(0, BLOCK)
    tl.store(y + place, gate / (1.0 + tl.exp(-gate)) * up, mask=place < pairs)


@triton.jit
def _backward(grad, x, grad_x, pairs, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK
    gate, up = _pairs(x, start, pairs, WIDE, BLOCK)
    place = start + tl.arange(0, BLOCK)
    g = tl.load(grad + place, mask=place < pairs, other=0.0).to(WIDE)
    sigmoid = 1.0 / (1.0 + tl.exp(-gate))
    of_gate = g * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
    both = tl.reshape(tl.join(of_gate, g * gate * sigmoid), (2 * BLOCK,))
    inside = start * 2 + tl.arange(0, 2 * BLOCK) < pairs * 2
    tl.store(grad_x + start * 2 + tl.arange(0, 2 * BLOCK), both, mask=inside)


def forward(x: Tensor) -> Tensor:
    """y [..., f] of x [..., 2f]."""
    x = x.contiguous()
    y = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    _launch(_forward, y.numel(), x, y)
    return y


def backward(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x [..., 2f] from that of y."""
    x = x.contiguous()
    grad_x = torch.empty_like(x)
    _launch(_backward, grad.numel(), grad.contiguous(), x, grad_x)
    return grad_x


def _launch(kernel, pairs: int, *tensors: Tensor) -> None:
    block = min(launch.TILE // 2, triton.next_power_of_2(pairs))
    with launch.on_device_of(tensors[0]):
        kernel[(triton.cdiv(pairs, block),)](
            *tensors, pairs, WIDE=launch.wide(tensors[0].dtype), BLOCK=block, num_warps=launch.warps(2 * block)
        )
