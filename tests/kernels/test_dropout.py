"""Dropout: its mask, the same in backward and after the generator is restored."""

import pytest
import torch
from hypothesis import strategies as st

from tests.kernels.cases import (
    any_input,
    compare,
    each_implementation,
    kept,
    operators,
    random,
    seeded,
)

leading = st.lists(st.integers(1, 5), max_size=3)


@any_input(leading=leading, h=st.integers(1, 200), p=st.sampled_from([0.1, 0.5, 0.99]))
def test_agrees_with_float64(implementation, dtype, device, leading, h, p, layout, seed, small):
    make = random(seed, dtype, device)
    x, grad = make(*leading, h, layout=layout), make(*leading, h, layout=layout)
    with operators(implementation, device, small) as kernels:
        keep = kept(kernels, x, p, seed)
        sizes = [t.abs().max().item() / (1 - p) for t in (x, grad)]
        compare(seeded(seed, lambda x: kernels.dropout(x, p)), lambda x: x * keep / (1 - p), [x], grad, sizes)


@each_implementation
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5])
def test_the_share_that_survives(implementation, p, device):
    n = 50_000
    x = torch.ones(10, n // 10, device=device)
    with operators(implementation, device) as kernels:
        kept = (kernels.dropout(x, p) != 0).sum().item()
    assert abs(kept - n * (1 - p)) <= 5 * (n * p * (1 - p)) ** 0.5


@each_implementation
def test_backward_has_the_mask_of_forward(implementation, device):
    x = torch.ones(7, 33, device=device, requires_grad=True)
    with operators(implementation, device) as kernels:
        y = kernels.dropout(x, 0.4)
        y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@each_implementation
def test_calls_differ_until_the_generator_is_restored(implementation, device):
    x = torch.ones(1000, device=device)
    with operators(implementation, device) as kernels:
        module = torch.cuda if device == "cuda" else torch
        state = module.get_rng_state()
        first, second = kernels.dropout(x, 0.5), kernels.dropout(x, 0.5)
        module.set_rng_state(state)
        again = kernels.dropout(x, 0.5)
        torch.manual_seed(99)
        seeded = kernels.dropout(x, 0.5)
        torch.manual_seed(99)
        assert torch.equal(seeded, kernels.dropout(x, 0.5))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, seeded)


@each_implementation
def test_without_training_or_probability_it_is_the_identity(implementation, device):
    x = torch.randn(3, device=device)
    with operators(implementation, device) as kernels:
        state = torch.get_rng_state()
        assert kernels.dropout(x, 0.5, training=False) is x
        assert kernels.dropout(x, 0.0) is x
        assert torch.equal(torch.get_rng_state(), state)
