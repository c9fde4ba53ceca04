"""What `torch.compile` makes of the formulas: compiled, run, and compared with the formulas."""

import pytest
import torch

from kernels import select, why_unavailable
from tests.kernels.cases import each_dtype, epsilon

SHAPES = [(3, 17), (6, 64), (2, 3, 33)]


@pytest.fixture(autouse=True)
def _compiler(device):
    if reason := why_unavailable("compiled", device):
        pytest.skip(f"compiled on {device} {reason}")


def calls(kernels, dtype, device, shape):
    make = lambda *shape: torch.randn(shape, device=device).to(dtype).requires_grad_()  # noqa: E731
    h = shape[-1]
    mask = torch.rand(h, h, device=device) > 0.6
    scores = (*shape[:-1], h, h)
    return {
        "causal_softmax": (lambda x: kernels.causal_softmax(x, 0.4), [make(*scores)]),
        "masked_softmax": (lambda x: kernels.masked_softmax(x, mask, 0.4), [make(*scores)]),
        "bias_gelu": (kernels.bias_gelu, [make(*shape), make(h)]),
        "dropout": (lambda x: kernels.dropout(x, 0.3), [make(*shape)]),
        "bias_dropout_add": (
            lambda *xs: kernels.bias_dropout_add(*xs, 0.3, True),
            [make(*shape), make(h), make(*shape)],
        ),
    }


def results(call, inputs, grad=None):
    torch.manual_seed(4)
    y = call(*inputs)
    grad = torch.linspace(-1, 1, y.numel(), device=y.device).view(y.shape).to(y.dtype)
    return [y, *torch.autograd.grad(y, inputs, grad)]


def check(name, dtype, device, shape):
    kernels = select("compiled", device)
    call, inputs = calls(kernels, dtype, device, shape)[name]
    with torch.compiler.set_stance("force_eager"):
        wanted = results(call, inputs)
    for x, y in zip(results(call, inputs), wanted, strict=True):
        torch.testing.assert_close(x.double(), y.double(), rtol=2 * epsilon(dtype), atol=8 * epsilon(dtype))


@pytest.mark.slow
@each_dtype
@pytest.mark.parametrize("name", ["causal_softmax", "masked_softmax", "bias_gelu", "dropout", "bias_dropout_add"])
def test_compiles_to_the_formula_in_every_dtype_and_shape(name, dtype, device):
    for shape in SHAPES:
        check(name, dtype, device, shape)


@pytest.mark.slow
def test_works_inside_a_compiled_model(device):
    kernels = select("compiled", device)
    x, bias = torch.randn(5, 24, device=device, requires_grad=True), torch.randn(24, device=device)

    def model(x):
        return kernels.bias_dropout_add(kernels.bias_gelu(x, bias), bias, x, 0.5, True).square().sum()

    torch.manual_seed(6)
    wanted = model(x)
    torch.manual_seed(6)
    output = torch.compile(model, fullgraph=True, options={"fallback_random": True})(x)  # the same seeds
    torch.testing.assert_close(output, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(loss, x)[0] for loss in (output, wanted)))
