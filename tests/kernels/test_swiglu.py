"""SwiGLU against float64, in any strides."""

import pytest
from torch.nn import functional

from tests.kernels.cases import LAYOUTS, compare, each_dtype, operators, random


def exact(x):
    return functional.silu(x[..., 0::2]) * x[..., 1::2]


@each_dtype
@pytest.mark.parametrize("implementation", ["reference", "triton"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 2), (5, 3, 14), (70, 40)])
def test_agrees_with_float64(implementation, dtype, device, layout, shape):
    make = random(7, dtype, device)
    x, grad = make(*shape, layout=layout), make(*shape[:-1], shape[-1] // 2, layout=layout)
    largest = 1.0 + x.abs().max().item() ** 2
    with operators(implementation, device, small_tiles=True) as kernels:
        compare(kernels.swiglu, exact, [x], grad, [largest, 2 * largest * grad.abs().max().item()])
