"""Products with large fp32 matrices on a CPU are oneDNN's, all others PyTorch's; both agree with fp64."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernels import products
from kernels.products import LEAST, ONEDNN, PYTORCH, products_with

BIT = torch.finfo(torch.float32).eps


@pytest.mark.parametrize("rows", [1, 37, 64])
@pytest.mark.parametrize("turned", [False, True])
def test_onednn_agrees_with_fp64_in_any_strides(rows, turned):
    generator = torch.Generator().manual_seed(rows)
    x, weight, bias = (torch.randn(*shape, generator=generator) for shape in ((rows, 129), (520, 129), (520,)))
    if turned:
        x, weight = x.t().contiguous().t(), weight.t().contiguous().t()
    assert products_with(weight) is ONEDNN
    exact = x.double() @ weight.double().t()
    atol = 64 * BIT * float(exact.abs().max())
    for got, wanted in (
        (ONEDNN.linear(x, weight, bias), exact + bias.double()),
        (ONEDNN.linear(x, weight, None), exact),
        (ONEDNN.product(x, weight.t()), exact),
    ):
        assert got.is_contiguous()
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=atol)


def test_what_is_not_onednn_s(monkeypatch):
    assert products_with(torch.empty(LEAST, 1)) is ONEDNN
    assert products_with(torch.empty(LEAST - 1, 1)) is PYTORCH
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        assert products_with(torch.empty(LEAST, 1, dtype=dtype)) is PYTORCH
    assert products_with(torch.empty(LEAST, 1, device="meta")) is PYTORCH
    with FakeTensorMode():
        assert products_with(torch.empty(LEAST, 1, device="cuda")) is PYTORCH
    monkeypatch.setattr(products.torch.backends.mkldnn, "is_available", lambda: False)
    assert products_with(torch.empty(LEAST, 1)) is PYTORCH
