"""FP8 for the linears of transformer layers: both factors of a product are rounded to 8 bits, by a recipe's scales.

- 'tensorwise': one scale a tensor, that of its largest element now; gradients are E5M2, all else E4M3 (Micikevicius et
  al. 2022, arXiv:2209.05433). On a GPU with FP8 this is `torch._scaled_mm`.
- 'blockwise': an fp32 scale for 128 elements along the sum, for 128 x 128 of a weight; all E4M3 (DeepSeek-AI 2024,
  arXiv:2412.19437, Section 3.3)
- 'mxfp8': a power of two for 32 elements along the sum; all E4M3 (OCP Microscaling Formats 1.0)

Where no kernel of torch does that, the rounding is emulated: rounded factors are multiplied in fp32. Weights, sums of
gradients, attention, embedding and output keep the run's precision. A tensor rank scales what it holds.
"""

import torch
from torch.nn import functional

from kernels.fp8_cast import fp8_cast

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST_POWER = 2.0**127  # of a scale that is a power of two in 8 bits
ROWS_AT_ONCE = 16  # `torch._scaled_mm` takes sizes that are multiples of it


def is_native(recipe: str, device: torch.device) -> bool:
    """Whether `torch._scaled_mm` multiplies by this recipe on this device. No GPU has run it here yet."""
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


class Fp8:
    """The three products of a linear, by a recipe. With `native` they are `torch._scaled_mm` where sizes allow.

    `kernels` names the implementation of the casts before it.
    """

    def __init__(self, recipe: str, native: bool = False, kernels: str = "reference") -> None:
        whole = 1 << 62
        blocks = {"tensorwise": ((whole,) * 2,) * 2, "blockwise": ((1, 128), (128, 128)), "mxfp8": ((1, 32),) * 2}
        self._block, self._weight_block = blocks[recipe]
        self._power, self._of_gradients = recipe == "mxfp8", E5M2 if recipe == "tensorwise" else E4M3
        self._native, self._kernels = native, kernels

    def forward(self, x: torch.Tensor, weight_FH: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Compute x W^T + bias, [..., F]."""
        out = self._product(x.reshape(-1, x.size(-1)), weight_FH, E4M3, self._weight_block)
        # No view to autograd, as a linear's result is none: g sums it in place.
        out = torch.ops.aten._unsafe_view(out, (*x.shape[:-1], len(weight_FH)))
        return out if bias is None else out + bias

    def input_gradient(self, grad_NF: torch.Tensor, weight_FH: torch.Tensor) -> torch.Tensor:
        """The input's gradient [N, H]."""
        return self._product(grad_NF, weight_FH.t(), self._of_gradients, self._weight_block)

    def weight_gradient(self, grad_NF: torch.Tensor, x_NH: torch.Tensor, out: torch.dtype) -> torch.Tensor:
        """The weight's gradient [F, H], of type `out`."""
        return self._product(grad_NF.t(), x_NH.t(), self._of_gradients, self._block, out)

    def _product(
        self,
        a_MK: torch.Tensor,
        b_NK: torch.Tensor,
        dtype: torch.dtype,
        block: tuple[int, int],
        out: torch.dtype | None = None,
    ) -> torch.Tensor:
        """Compute a b^T, of a's type or `out`, of factors that are rounded: a as `dtype`, b, by `block`, as E4M3."""
        shapes = a_MK.shape, b_NK.shape
        if self._native and not any(size % ROWS_AT_ONCE for shape in shapes for size in shape):
            (a, scale_a), (b, scale_b) = self._in_rows(a_MK, dtype), self._in_rows(b_NK, E4M3)
            return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=out or a_MK.dtype)
        factors = (quantized(a_MK, dtype, self._block, self._power), quantized(b_NK, E4M3, block, self._power))
        a, b = (
            (tiles.float() * scales).view(tiles.size(0) * tiles.size(1), -1)[: shape[0], : shape[1]]
            for (tiles, scales), shape in zip(factors, shapes, strict=True)
        )
        return (a @ b.t()).to(out or a_MK.dtype)

    def _in_rows(self, matrix: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """A matrix, or a transposed one, rounded by one scale and in rows, as `torch._scaled_mm` wants both factors."""
        is_turned = not matrix.is_contiguous()
        x = matrix.t() if is_turned else matrix
        plain, turned, scale = fp8_cast(self._kernels, x, dtype, rows=not is_turned, transposed=is_turned)
        rounded = turned if is_turned else plain
        assert rounded is not None
        return rounded, scale
