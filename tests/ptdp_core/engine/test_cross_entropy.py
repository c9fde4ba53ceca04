"""The loss: PyTorch's in value and gradient, in one block of rows or many, and what it keeps and writes."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from ptdp_core.engine import tensor_parallel
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.tensor_parallel import cross_entropy

S, B, V, PADDED = 7, 3, 50, 64


def data(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(S, B, PADDED, generator=generator, dtype=torch.float64) * 8).to(dtype)
    return logits, torch.randint(0, V, (S, B), generator=generator), torch.rand(S, B, generator=generator).double()


@pytest.mark.parametrize("rows", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
def test_it_is_pytorch_s(rows: int, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = torch.promote_types(dtype, torch.float32)
    monkeypatch.setattr(tensor_parallel, "CPU_BLOCK", rows * PADDED * wide.itemsize)
    logits, labels, weights = data(dtype)
    exact = logits[..., :V].double().requires_grad_()
    expected = functional.cross_entropy(exact.flatten(0, 1), labels.flatten(), reduction="none").view(S, B)
    (gradient,) = torch.autograd.grad(expected, exact, weights)
    ours = logits.clone().requires_grad_()
    losses = cross_entropy(ours * 1, labels, V, Axis("tp"))
    assert losses.dtype == wide
    losses.backward(weights.to(wide))
    assert ours.grad is not None
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=8 * tolerance)
    torch.testing.assert_close(ours.grad[..., :V].double(), gradient, rtol=0, atol=tolerance)
    assert not ours.grad[..., V:].any()  # padding


def test_it_keeps_only_the_logits_and_writes_the_gradient_over_them() -> None:
    """In bf16: 2 bytes a logit are kept, where an fp32 softmax would be 4, and no tensor of their size is made."""
    logits, labels, weights = data(torch.bfloat16)
    kept: list[torch.Tensor] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x

    leaf = logits.requires_grad_()
    product: Any = leaf * 1
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        losses = cross_entropy(product, labels, V, Axis("tp"))
    assert [x.data_ptr() for x in kept if x.numel() == product.numel()] == [product.data_ptr()]
    (gradient,) = torch.autograd.grad(losses, product, weights.float(), retain_graph=True)
    assert gradient.data_ptr() == product.data_ptr()
