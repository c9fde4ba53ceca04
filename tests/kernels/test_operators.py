"""The operators as PyTorch sees them: `opcheck`, gradcheck, `torch.compile` around them, recomputation."""

import importlib
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import kernels
from kernels import bias_dropout_add, bias_gelu, causal_softmax, dropout, masked_softmax
from kernels.registration import IMPLEMENTATIONS
from tests.kernels.cases import each_fused, each_implementation, operators, seeded, triton_slow

OPERATORS = {
    "causal_softmax": causal_softmax.OPERATOR,
    "masked_softmax": masked_softmax.OPERATOR,
    "bias_gelu": bias_gelu.OPERATOR,
    "dropout": dropout.OPERATOR,
    "bias_dropout_add": bias_dropout_add.OPERATOR,
}
RANDOM = ("dropout", "bias_dropout_add")
each_operator = pytest.mark.parametrize("name", OPERATORS)


def test_every_operator_of_the_package_is_here_in_every_implementation():
    files = [path for path in Path(kernels.__file__).parent.glob("*.py") if "OPERATOR = " in path.read_text()]
    modules = [importlib.import_module(f"kernels.{path.stem}") for path in files]
    there = {module.OPERATOR.name: module.OPERATOR for module in modules}
    assert there == OPERATORS, "needs OPERATORS, arguments and backward_arguments of this file"
    assert {name: tuple(operator.forward) for name, operator in there.items()} == dict.fromkeys(there, IMPLEMENTATIONS)


def arguments(name, implementation, device, dtype=torch.float32):
    """Arguments of an operator, differentiable where it is; small, for the interpreter's sake."""

    def make(*shape):
        return torch.randn(shape, device=device, dtype=dtype, requires_grad=True)

    seed = () if implementation == "reference" else (torch.tensor([77], device=device),)
    return {
        "causal_softmax": lambda: (make(2, 2, 3, 3), 0.5),
        "masked_softmax": lambda: (make(2, 2, 3, 3), torch.rand(2, 1, 3, 3, device=device) > 0.5, 0.5),
        "bias_gelu": lambda: (make(2, 2, 3), make(3)),
        "dropout": lambda: (make(2, 2, 3), *seed, 0.3),
        "bias_dropout_add": lambda: (make(2, 2, 3), make(3), make(2, 2, 3), *seed, 0.3),
    }[name]()


def backward_arguments(name, device):
    """Arguments of the backward operator of a fused implementation."""
    grad, probs = torch.randn(2, 2, 3, 3, device=device), torch.rand(2, 2, 3, 3, device=device)
    seed = torch.tensor([77], device=device)
    return {
        "causal_softmax": (grad, probs, 0.5),
        "masked_softmax": (grad, probs, 0.5),
        "bias_gelu": (grad, probs, probs[0, 0, 0].clone()),
        "dropout": (grad, seed, 0.3),
        "bias_dropout_add": (grad, seed, 0.3),
    }[name]


@each_operator
@each_implementation
def test_opcheck(name, implementation, device):
    tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
    if implementation != "reference" or name not in RANDOM:
        tests.append("test_aot_dispatch_dynamic")  # compares two calls, which are to differ if they draw numbers
    with operators(implementation, device):
        operator = OPERATORS[name].forward[implementation]
        torch.library.opcheck(operator, arguments(name, implementation, device), test_utils=tests)


@each_operator
@each_fused
def test_opcheck_of_backward(name, implementation, device):
    with operators(implementation, device):
        torch.library.opcheck(OPERATORS[name].backward[implementation], backward_arguments(name, device))


@each_fused
def test_opcheck_without_dropout(implementation, device):
    x, bias, residual, *_ = arguments("bias_dropout_add", implementation, device)
    with operators(implementation, device):
        torch.library.opcheck(OPERATORS["bias_dropout_add"].forward[implementation], (x, bias, residual, None, 0.0))


@each_operator
@triton_slow
def test_gradcheck(name, implementation, device):
    operator = OPERATORS[name].forward[implementation]
    with operators(implementation, device):
        inputs = arguments(name, implementation, device, torch.float64)
        assert torch.autograd.gradcheck(seeded(3, lambda *inputs: operator(*inputs)), inputs)


@pytest.mark.parametrize("name", RANDOM)
@each_fused
def test_nothing_but_the_seed_is_kept_for_backward(name, implementation, device):
    kept, inputs = [], [x for x in arguments(name, implementation, device) if getattr(x, "requires_grad", False)]
    with (
        operators(implementation, device) as kernels,
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t),
    ):
        getattr(kernels, name)(*inputs, 0.5)
    assert [(t.dtype, t.numel()) for t in kept] == [(torch.int64, 1)]


@each_implementation
def test_a_model_compiles_around_them_without_graph_breaks(implementation, device):
    """Through AOTAutograd with both passes, the operators opaque; eager execution of the graphs it makes."""
    x = torch.randn(4, 4, 8, device=device, requires_grad=True)
    bias, scores = torch.randn(8, device=device), torch.randn(2, 4, 4, device=device)

    def model(kernels, x):
        y = kernels.bias_gelu(x, bias)
        y = kernels.bias_dropout_add(y, bias, x, 0.5, True)
        probs = kernels.dropout(kernels.causal_softmax(scores, 0.5), 0.1)
        return (torch.einsum("bij,jkh->bkh", probs, y) ** 2).sum()

    with operators(implementation, device) as kernels:
        if implementation == "compiled":
            pytest.skip("a compiler in a compiler: test_compiled.py")
        compiled = torch.compile(lambda x: model(kernels, x), fullgraph=True, backend="aot_eager")
        torch.manual_seed(8)
        wanted = model(kernels, x)
        torch.manual_seed(8)
        output = compiled(x)
        torch.testing.assert_close(output, wanted)
        grads = [torch.autograd.grad(loss, x)[0] for loss in (output, wanted)]
    torch.testing.assert_close(*grads)


@each_implementation
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_gives_the_same_gradients(implementation, reentrant, device):
    x = torch.randn(6, 2, 8, device=device, requires_grad=True)
    bias = torch.randn(8, device=device, requires_grad=True)
    with operators(implementation, device) as kernels:

        def block(x, bias):
            y = kernels.bias_gelu(x, bias)
            return kernels.bias_dropout_add(y, bias, x, 0.5, True)

        torch.manual_seed(8)
        plain = torch.autograd.grad(block(x, bias).square().sum(), (x, bias))
        torch.manual_seed(8)
        loss = checkpoint(block, x, bias, use_reentrant=reentrant).square().sum()
        x.grad = bias.grad = None
        loss.backward()
    assert torch.equal(plain[0], x.grad)
    assert torch.equal(plain[1], bias.grad)


@each_implementation
def test_under_autocast_dtypes_may_differ(implementation, device):
    """As PyTorch's own operators: a bias in float32 beside a product in bfloat16 gives float32."""
    x, bias, residual = torch.randn(2, 3, 4, device=device), torch.randn(4, device=device), torch.randn(2, 3, 4)
    x, residual = x.bfloat16(), residual.to(device)
    with operators(implementation, device) as kernels, torch.autocast(device, torch.bfloat16):
        y = kernels.bias_gelu(x, bias)
        z = kernels.bias_dropout_add(x, bias, residual, 0.0)
    exact = torch.nn.functional.gelu(x.float() + bias, approximate="tanh")
    torch.testing.assert_close(y, exact)
    torch.testing.assert_close(z, residual + x.float() + bias)
    with operators(implementation, device) as kernels, pytest.raises(TypeError, match="needs equal dtypes"):
        kernels.bias_gelu(x, bias)
