"""FP8 for the linears of transformer layers: both factors of a product are rounded to 8 bits, by a recipe's scales.

- 'tensorwise': one scale a tensor, that of its largest element now; gradients are E5M2, all else E4M3 (Micikevicius et
  al. 2022, arXiv:2209.05433). On a GPU with FP8 this is `torch._scaled_mm`.
- 'blockwise': an fp32 scale for 128 elements along the sum, for 128 x 128 of a weight; all E4M3 (DeepSeek-AI 2024,
  arXiv:2412.19437, Section 3.3)
- 'mxfp8': a power of two for 32 elements along the sum; all E4M3 (OCP Microscaling Formats 1.0)

Where no kernel of torch does that, the rounding is emulated: rounded factors are multiplied in fp32. Weights, sums of
gradients, attention, embedding and output keep the run's precision. A tensor rank scales what it holds.
"""

from typing import Any, NamedTuple

import torch
from torch.nn import functional

from kernels.fp8_cast import fp8_cast

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST_POWER = 2.0**127  # of a scale that is a power of two in 8 bits
ROWS_AT_ONCE = 16  # `torch._scaled_mm` takes sizes that are multiples of it


def is_native(recipe: str, device: torch.device) -> bool:
    """Whether `torch._scaled_mm` multiplies by this recipe on this device."""
    return recipe == "tensorwise" and device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def quantized(x: torch.Tensor, dtype: torch.dtype, block: tuple[int, int], power: bool) -> tuple[torch.Tensor, ...]:
    """The tiles [R, r, C, c] of a matrix, rounded to FP8, and their scales [R, 1, C, 1] in fp32.

    A tile is `block` rows and columns, or all of them where there are fewer; the last ones are filled up with zeros.
    The largest element of a tile becomes the type's largest; with `power` it becomes that or up to half of it. An
    overflow is never hidden: an infinity stays one with `power`, and its tile is not a number without.
    """
    rows, columns = (min(size, most) for size, most in zip(x.shape, block, strict=True))
    padded = functional.pad(x.float(), (0, -x.size(1) % columns, 0, -x.size(0) % rows))
    tiles = padded.view(padded.size(0) // rows, rows, padded.size(1) // columns, columns)
    most = torch.finfo(dtype).max
    # No smaller scale than the least that fp32 has in full: below it a division gives infinities, and zeros nothing.
    scales = (tiles.abs().amax((1, 3), keepdim=True) / most).clamp(min=torch.finfo(torch.float32).tiny)
    if power:
        mantissa, exponent = torch.frexp(scales.clamp(max=LARGEST_POWER))
        scales = torch.ldexp(torch.ones_like(scales), exponent - (mantissa == 0.5).int())
    return (tiles / scales).clamp(-most, most).to(dtype), scales


class Factor(NamedTuple):
    """A matrix and its transpose, each in rows and where it is wanted. Without a scale they are not rounded yet."""

    rows: Any
    turned: Any
    scale: torch.Tensor | None = None


class Fp8:
    """The three products of a linear, by a recipe. With `native` they are `torch._scaled_mm` where sizes allow.

    `kernels` names the implementation of the casts before it. Native, a linear's input is cast once, in its forward
    pass, and the transposed form is kept for the weight's gradient; the output's gradient is cast once; and a weight is
    cast once a batch, into memory that stays where it is.
    """

    def __init__(self, recipe: str, native: bool = False, kernels: str = "reference") -> None:
        whole = 1 << 62
        blocks = {"tensorwise": ((whole,) * 2,) * 2, "blockwise": ((1, 128), (128, 128)), "mxfp8": ((1, 32),) * 2}
        self._block, self._weight_block = blocks[recipe]
        self._power, self._of_gradients = recipe == "mxfp8", E5M2 if recipe == "tensorwise" else E4M3
        self._native, self._kernels = native, kernels
        self._weights: dict[int, tuple[torch.Tensor, Factor]] = {}  # by id: a tensor's hash is computed in Python
        self._fresh: set[int] = set()

    def begin(self, ready: bool) -> None:
        """Begin a batch: weights may have changed. Those used before are cast now if they are `ready`, else at use."""
        self._fresh.clear()
        for weight, cast in list(self._weights.values()) if ready else ():
            self._weight(weight, cast)

    def input(self, x_NH: torch.Tensor, weight_FH: torch.Tensor, *, rows: bool = True, turned: bool = True) -> Factor:
        """The input of a linear with this weight: cast in these forms, if sizes allow."""
        return self._factor(x_NH, len(weight_FH), E4M3, rows, turned)

    def gradient(self, grad_NF: torch.Tensor, weight_FH: torch.Tensor) -> Factor:
        """The gradient of its output, in both forms."""
        return self._factor(grad_NF, weight_FH.size(1), self._of_gradients)

    def forward(self, x: Factor, weight_FH: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute x W^T + bias, [N, F]."""
        weight, dtype = self._weight(weight_FH, x), weight_FH.dtype
        added = None if x.scale is None or dtype == torch.float32 else bias  # inside of `torch._scaled_mm`
        out = self._product((x.rows, x.scale), (weight.rows, weight.scale), E4M3, self._weight_block, dtype, added)
        return out if bias is None or added is not None else out + bias

    def input_gradient(self, grad: Factor, weight_FH: torch.Tensor) -> torch.Tensor:
        """The input's gradient [N, H]."""
        weight = self._weight(weight_FH, grad)
        sides = (grad.rows, grad.scale), (weight.turned, weight.scale)
        return self._product(*sides, self._of_gradients, self._weight_block, weight_FH.dtype)

    def weight_gradient(self, grad: Factor, x: Factor, out: torch.dtype) -> torch.Tensor:
        """The weight's gradient [F, H], of type `out`."""
        return self._product((grad.turned, grad.scale), (x.turned, x.scale), self._of_gradients, self._block, out)

    def add_weight_gradient(self, total: torch.Tensor, grad: Factor, x: Factor, replace: bool) -> None:
        """Add the weight's gradient to `total`, or write it there. What is added is of 16 bits before, if native."""
        is_aligned = total.storage_offset() % ROWS_AT_ONCE == 0
        if replace and is_aligned and grad.scale is not None and x.scale is not None:
            sides = grad.turned, x.turned.t()
            torch._scaled_mm(*sides, scale_a=grad.scale, scale_b=x.scale, out_dtype=total.dtype, out=total)
            return
        gradient = self.weight_gradient(grad, x, total.dtype if grad.scale is None else torch.bfloat16)
        (total.copy_ if replace else total.add_)(gradient)

    def _factor(
        self, matrix: torch.Tensor, other: int, dtype: torch.dtype, rows: bool = True, turned: bool = True
    ) -> Factor:
        """A matrix, cast if `torch._scaled_mm` takes its sizes and the linear's third one, `other`."""
        if not self._native or any(size % ROWS_AT_ONCE for size in (*matrix.shape, other)):
            return Factor(matrix, matrix.t())
        return Factor(*fp8_cast(self._kernels, matrix, dtype, rows=rows, transposed=turned))

    def _weight(self, weight: torch.Tensor, other: Factor) -> Factor:
        """A weight's two forms, cast if the other factor is."""
        if other.scale is None:
            return Factor(weight, weight.t())
        known = self._weights.get(id(weight))
        if known is not None and id(weight) in self._fresh:
            return known[1]
        cast = Factor(*fp8_cast(self._kernels, weight, E4M3, rows=True, transposed=True, into=known and known[1]))
        self._weights[id(weight)] = weight, cast
        self._fresh.add(id(weight))
        return cast

    def _product(
        self,
        a: tuple[torch.Tensor, torch.Tensor | None],
        b: tuple[torch.Tensor, torch.Tensor | None],
        dtype: torch.dtype,
        block: tuple[int, int],
        out: torch.dtype,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute a b^T, of type `out`, of factors [M, K] and [N, K] with their scales.

        Those without are rounded here: a as `dtype`, b, by `block`, as E4M3.
        """
        (a_MK, scale_a), (b_NK, scale_b) = a, b
        if scale_a is not None and scale_b is not None:
            return torch._scaled_mm(a_MK, b_NK.t(), scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=out)
        factors = (quantized(a_MK, dtype, self._block, self._power), quantized(b_NK, E4M3, block, self._power))
        wide_MK, wide_NK = (
            (tiles.float() * scales).view(tiles.size(0) * tiles.size(1), -1)[: len(matrix), : matrix.size(1)]
            for (tiles, scales), matrix in zip(factors, (a_MK, b_NK), strict=True)
        )
        return (wide_MK @ wide_NK.t()).to(out)
