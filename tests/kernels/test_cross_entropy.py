"""The loss: PyTorch's in value and gradient, in one block of rows or many, and what it keeps and writes."""

import pytest
import torch
import torch.distributed as dist
from torch.nn import functional

from kernels import cross_entropy as module
from tests.kernels.cases import operators

S, B, V, PADDED = 7, 3, 50, 64
each = pytest.mark.parametrize("implementation", ["reference", "triton"])


class PendingError(Exception):
    """A reduction that needs the other ranks."""


class Rank:
    """Rank i of several, to whom earlier runs say what reductions give."""

    def __init__(self, rank=0, size=1, reduced=()):
        self.rank, self.size, self.reduced = rank, size, list(reduced)

    def all_reduce(self, x, op=dist.ReduceOp.SUM):
        if self.size == 1:
            return x
        if not self.reduced:
            raise PendingError(x.clone(), op)
        return x.copy_(self.reduced.pop(0))


def together(function, size):
    """What `function(rank)` returns on each of several ranks, and the sizes of their reductions."""
    reduced = []
    while True:
        asked, results = [], []
        for rank in range(size):
            try:
                results.append(function(Rank(rank, size, reduced)))
            except PendingError as pending:
                asked.append(pending.args)
        if results:
            return results, [x.numel() for x in reduced]
        parts = torch.stack([x for x, _ in asked])
        reduced.append(parts.sum(0) if asked[0][1] == dist.ReduceOp.SUM else parts.amax(0))


def cross_entropy(implementation, logits, labels, tp):
    with operators(implementation, "cpu", small_tiles=True) as kernels:
        return kernels.cross_entropy(logits, labels, V, tp)


def data(dtype):
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(S, B, PADDED, generator=generator, dtype=torch.float64) * 8).to(dtype)
    return logits, torch.randint(0, V, (S, B), generator=generator), torch.rand(S, B, generator=generator).double()


@each
@pytest.mark.parametrize("rows", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
def test_it_is_pytorch_s(implementation, rows, dtype, tolerance, monkeypatch):
    wide = torch.promote_types(dtype, torch.float32)
    if implementation == "triton" and rows > 1:
        pytest.skip("has no blocks of rows")
    monkeypatch.setattr(module, "CPU_BLOCK", rows * PADDED * wide.itemsize)
    logits, labels, weights = data(dtype)
    exact = logits[..., :V].double().requires_grad_()
    expected = functional.cross_entropy(exact.flatten(0, 1), labels.flatten(), reduction="none").view(S, B)
    (gradient,) = torch.autograd.grad(expected, exact, weights)
    ours = logits.clone().requires_grad_()
    losses = cross_entropy(implementation, ours * 1, labels, Rank())
    assert losses.dtype == wide
    with operators(implementation, "cpu", small_tiles=True):
        losses.backward(weights.to(wide))
    torch.testing.assert_close(losses.double(), expected, rtol=0, atol=8 * tolerance)
    torch.testing.assert_close(ours.grad[..., :V].double(), gradient, rtol=0, atol=tolerance)
    assert not ours.grad[..., V:].any()  # padding


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_block_without_padding_is_left_to_pytorch_and_is_the_same_in_several(dtype, monkeypatch):
    logits, labels, weights = data(dtype)
    results = []
    for block in (module.CPU_BLOCK, 2 * V * dtype.itemsize):
        monkeypatch.setattr(module, "CPU_BLOCK", block)
        whole = logits[..., :V].clone().requires_grad_()
        losses = cross_entropy("reference", whole * 1, labels, Rank())
        results.append((losses.detach(), *torch.autograd.grad(losses, whole, weights.to(dtype))))
        names = str(losses.grad_fn.next_functions[0][0])
        assert ("NllLoss" in names) is (len(results) == 1)
    for one, several in zip(*results, strict=True):
        torch.testing.assert_close(one, several)


@each
@pytest.mark.parametrize("size", [2, 4, 8])
def test_ranks_that_share_the_vocabulary_get_the_loss_and_each_its_part_of_the_gradient(implementation, size):
    """Of 8 ranks the last one has padding only."""
    logits, labels, weights = data(torch.float64)
    exact = logits[..., :V].clone().requires_grad_()
    expected = functional.cross_entropy(exact.flatten(0, 1), labels.flatten(), reduction="none").view(S, B)
    (gradient,) = torch.autograd.grad(expected, exact, weights)

    def of_rank(rank):
        part = logits.chunk(size, -1)[rank.rank].clone().requires_grad_()
        losses = cross_entropy(implementation, part * 1, labels, rank)
        return losses.detach(), *torch.autograd.grad(losses, part, weights)

    results, reduced = together(of_rank, size)
    for losses, _ in results:
        torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)
    whole = torch.cat([part for _, part in results], -1)
    torch.testing.assert_close(whole[..., :V], gradient, rtol=1e-12, atol=1e-12)
    assert not whole[..., V:].any()
    assert reduced == ([S * B, 2 * S * B] if implementation == "triton" else [S * B] * 3)


@each
def test_it_keeps_only_the_logits_and_writes_the_gradient_over_them(implementation):
    """In bf16: 2 bytes a logit are kept, where an fp32 softmax would be 4, and no tensor of their size is made."""
    logits, labels, weights = data(torch.bfloat16)
    kept = []

    def pack(x):
        kept.append(x)
        return x

    leaf = logits.requires_grad_()
    product = leaf * 1
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        losses = cross_entropy(implementation, product, labels, Rank())
    assert [x.data_ptr() for x in kept if x.numel() == product.numel()] == [product.data_ptr()]
    (gradient,) = torch.autograd.grad(losses, product, weights.float(), retain_graph=True)
    assert gradient.data_ptr() == product.data_ptr()
