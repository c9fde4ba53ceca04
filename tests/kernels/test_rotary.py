"""Rotary positions against a product of complex numbers in float64, with queries that share a key and without."""

import pytest
import torch

from kernels.rotary import rotary
from tests.kernels.cases import each_dtype, epsilon, operators, random

S, D = 5, 12


def angles(dtype, device):
    angle = torch.outer(torch.arange(S), torch.logspace(0, -3, D // 2))
    return (each.to(device, dtype).unsqueeze(1) for each in (angle.cos(), angle.sin()))


def exact(heads, cos, sin):
    turn = torch.complex(cos, sin)

    def turned(x):
        y = torch.complex(x[..., : D // 2], x[..., D // 2 :]) * turn
        return torch.cat((y.real, y.imag), -1)

    return turned(heads[:, :, :-2].flatten(1, 2)), turned(heads[:, :, -2]), heads[:, :, -1]


@each_dtype
@pytest.mark.parametrize("implementation", ["reference", "triton"])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_agrees_with_float64(implementation, dtype, device, queries, layout):
    make = random(3, dtype, device)
    heads = make(S, 4, queries + 2, D).requires_grad_()
    cos, sin = angles(dtype, device)
    grads = [make(S, n, D, layout=layout) for n in (4 * queries, 4, 4)]
    with operators(implementation, device, small_tiles=True) as kernels:
        outputs = kernels.rotary(heads, cos, sin)
        (gradient,) = torch.autograd.grad(outputs, heads, grads)
    wide = heads.detach().double().requires_grad_()
    wanted = exact(wide, cos.double(), sin.double())
    (expected,) = torch.autograd.grad(wanted, wide, [grad.double() for grad in grads])
    for x, y in zip((*outputs, gradient), (*wanted, expected), strict=True):
        assert x.dtype == dtype
        torch.testing.assert_close(x.double(), y, rtol=0, atol=24 * epsilon(dtype))
    assert outputs[2].data_ptr() == heads.detach()[:, :, -1].data_ptr()  # values stay where they are


def test_a_head_is_as_long_as_before():
    heads = torch.randn(S, 2, 3, D)
    q, _, _ = rotary("reference", heads, *angles(torch.float32, "cpu"))
    torch.testing.assert_close(q.norm(dim=-1), heads[:, :, 0].norm(dim=-1))
