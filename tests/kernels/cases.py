"""What the tests of all operators share: random inputs of any layout, and the comparison with float64.

The compiled implementation is tested here with the compiler switched off, that is, its formulas are: compiling takes
seconds per shape. `test_compiled.py` compiles.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels import select, why_unavailable
from kernels.dropout_mask import draw_seed, keep_mask, mask_keys
from kernels.registration import IMPLEMENTATIONS
from kernels.selection import Kernels
from tests.marks import by_default

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
EXAMPLES = settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
LAYOUTS = ("contiguous", "transposed", "sliced", "expanded")

each_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
each_dtype = pytest.mark.parametrize(
    "dtype", by_default(DTYPES, torch.float32, torch.bfloat16), ids=lambda dtype: str(dtype).removeprefix("torch.")
)
each_fused = pytest.mark.parametrize("implementation", IMPLEMENTATIONS[1:])
# Triton's interpreter takes seconds for what the others do in milliseconds.
triton_slow = pytest.mark.parametrize("implementation", by_default(IMPLEMENTATIONS, "reference", "compiled"))
layouts = st.sampled_from(LAYOUTS)
seeds = st.integers(0, 2**31)
small = st.booleans()  # whether Triton works in small tiles, so that small shapes take several


def any_input(**shapes: st.SearchStrategy) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test in each implementation and precision, of inputs of these shapes in any layout, also in small tiles."""
    drawn = given(**shapes, layout=layouts, seed=seeds, small=small)
    return lambda test: each_dtype(each_implementation(drawn(EXAMPLES(test))))


def epsilon(dtype: torch.dtype) -> float:
    """Twice the rounding error of `dtype`, for values near 1; Triton's interpreter truncates to bfloat16."""
    return torch.finfo(dtype).eps


def random(seed: int, dtype: torch.dtype, device: str) -> Callable[..., Tensor]:
    """A maker of normal tensors: shape, layout -> tensor."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int, layout: str = "contiguous") -> Tensor:
        x = torch.randn(shape, generator=generator).to(device, dtype)
        return laid_out(x, layout)

    return make


def laid_out(x: Tensor, layout: str) -> Tensor:
    """The values of `x` in other strides; expanded: those of its first entry, repeated with stride 0."""
    if layout == "transposed":
        return x.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "sliced":
        wider = x.new_full((*x.shape[:-1], 2 * x.shape[-1] + 1), 7.0)
        wider[..., 1::2] = x
        return wider[..., 1::2]
    return x[:1].expand(x.shape) if layout == "expanded" else x


@contextmanager
def operators(implementation: str, device: str, small_tiles: bool = False) -> Iterator[Kernels]:
    """The operators in `implementation` as tests run them; skips if they cannot run here."""
    if reason := why_unavailable(implementation, device):
        pytest.skip(f"{implementation} on {device} {reason}")
    with ExitStack() as stack:
        if implementation == "compiled":
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if implementation == "triton" and small_tiles:
            from kernels import launch

            for name, value in {"TILE": 256, "MAX_BLOCK": 16, "CHUNK": 8}.items():
                stack.enter_context(mock.patch.object(launch, name, value))
        yield select(implementation, device)


def seeded(seed: int, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function` after setting the default generators to `seed`, at every call."""

    def run(*arguments: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return function(*arguments)

    return run


def kept(kernels: Kernels, x: Tensor, p: float, seed: int) -> Tensor:
    """What `kernels` keep of a tensor like `x` at `seed`, as ones and zeros in float64, and independent of them."""
    ones = torch.ones(x.shape, dtype=x.dtype, device=x.device)
    torch.manual_seed(seed)
    if p == 0.0:
        return ones.double()
    if kernels.name == "reference":
        return (torch.nn.functional.dropout(ones, p) != 0).double()
    columns = x.shape[-1]
    return keep_mask(mask_keys(draw_seed(x), x.numel() // columns, columns), p).view(x.shape).double()


def run(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    """The output of `function` and the gradients of all inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    output = function(*leaves)
    gradients = torch.autograd.grad(output, leaves, grad)
    return [output.detach(), *gradients]


def compare(
    function: Callable[..., Tensor],
    exact: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    grad: Tensor,
    magnitudes: Sequence[float | Tensor],
) -> None:
    """`function` agrees with `exact` in float64: the output and each gradient, in units of their magnitudes.

    `magnitudes` bound the terms that are rounded on the way; each result may be off by four roundings of that size. In
    float64 `exact` is rounded as often, which doubles what they may differ by.
    """
    roundings = 8 if inputs[0].dtype == torch.float64 else 4
    result = run(function, inputs, grad)
    wanted = run(exact, [x.double() for x in inputs], grad.double())
    assert result[0].is_contiguous()
    for x, like in zip(result, [grad, *inputs], strict=True):
        assert (x.shape, x.dtype) == (like.shape, like.dtype)
    for name, x, y, size in zip(["output", *map(str, range(len(inputs)))], result, wanted, magnitudes, strict=True):
        error = ((x.double() - y).abs() / (roundings / 2 * epsilon(inputs[0].dtype) * size)).max().item()
        assert error <= 1.0, f"{name}: {error:.2f} times the tolerance"
