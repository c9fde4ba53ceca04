"""Times matrix products: squares, and the products of a transformer layer (Section 2.3), in FLOP/s.

A product [m, k] x [k, n] is 2*m*n*k FLOP. The weight is stored as a linear layer stores it, [n, k].
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import attempted, rate, seconds
from benchmarks.harness.timing import Samples
from benchmarks.harness.timing import measure as time_it
from results.records import Metric, PointResult

LIMIT_S = 2.0


@dataclass(frozen=True)
class GemmShape:
    """A batch of products [m, k] x [k, n]; `name` says what a layer computes with them."""

    series: str
    name: str
    m: int
    n: int
    k: int
    batch: int = 1

    @property
    def flop(self) -> int:
        """The floating-point operations of the whole batch."""
        return 2 * self.batch * self.m * self.n * self.k


def measure(
    m: int, n: int, k: int, dtype: str = "fp32", device: str = "cpu", batch: int = 1, samples: int = 20
) -> Samples:
    """Time a call of `product`, whose arguments these are."""
    call = product(m, n, k, dtype, device, batch)
    return time_it(call, device, samples=samples, limit_s=LIMIT_S)


def product(m: int, n: int, k: int, dtype: str = "fp32", device: str = "cpu", batch: int = 1) -> Callable[[], object]:
    """A function that computes `batch` products [m, k] x [k, n]; `dtype` is fp32, bf16, ...

    It is the engine's product, or of several, or on a GPU, PyTorch's into an existing tensor.
    """
    import torch

    from kernels.products import products_with
    from ptdp_core.engine.parameters import TORCH_DTYPES

    kind = TORCH_DTYPES[dtype]
    lead = (batch,) if batch > 1 else ()
    x = torch.randn(*lead, m, k, device=device).to(kind)
    weight = torch.randn(*lead, n, k, device=device).to(kind)
    if batch == 1 and device == "cpu":
        multiply = products_with(weight).linear
        return lambda: multiply(x, weight, None)
    out = torch.empty(*lead, m, n, device=device, dtype=kind)
    return lambda: torch.matmul(x, weight.mT, out=out)


def layer_shapes(s: int, b: int, h: int, heads: int, t: int = 1) -> list[GemmShape]:
    """The products of one layer's forward pass on one of `t` tensor-parallel ranks (Section 2.3)."""
    tokens, d, batch = s * b, h // heads, b * heads // t
    return [
        GemmShape("layer", "QKV", tokens, 3 * h // t, h),
        GemmShape("layer", "scores", s, s, d, batch),
        GemmShape("layer", "context", s, d, s, batch),
        GemmShape("layer", "projection", tokens, h, h // t),
        GemmShape("layer", "MLP up", tokens, 4 * h // t, h),
        GemmShape("layer", "MLP down", tokens, h, 4 * h // t),
    ]


def shapes(setup: Setup) -> list[GemmShape]:
    """Squares, and the products of a layer: on a GPU the 175B model's at t=8, on a CPU one that takes milliseconds."""
    if setup.quick:
        largest, layer = 256, layer_shapes(s=64, b=1, h=128, heads=4)
    elif setup.on_gpu:
        largest, layer = 8192, layer_shapes(s=2048, b=1, h=12288, heads=96, t=8)
    else:
        largest, layer = 2048, layer_shapes(s=256, b=1, h=1024, heads=16)
    sizes = [64 * 2**i for i in range((largest // 64).bit_length())]
    return [GemmShape("square", str(size), size, size, size) for size in sizes] + layer


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point per shape."""
    for shape in shapes(setup):
        parameters = {name: getattr(shape, name) for name in ("name", "m", "n", "k", "batch")}
        yield attempted(
            setup, shape.series, shape.name, {**parameters, "dtype": setup.dtype}, partial(_metrics, setup, shape)
        )


def _metrics(setup: Setup, shape: GemmShape) -> dict[str, Metric]:
    samples = measure(shape.m, shape.n, shape.k, setup.dtype, setup.device, shape.batch, setup.samples)
    work = Metric(shape.flop, "FLOP", "derived")
    return {"time": seconds(samples), "speed": rate(shape.flop, samples, "FLOP/s"), "work": work}
