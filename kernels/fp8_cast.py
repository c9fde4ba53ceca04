"""A matrix rounded to FP8 by one scale, that of its largest element, in rows, transposed, or both.

    q = x / scale,   scale = max(|x|) / largest number of the type

Fused, x is read twice, and each form of q is written once: 5 bytes of a 16-bit element for one form, 6 for both, where
PyTorch's operators move more than 30. Shapes: x [n, m]; q [n, m] and [m, n], contiguous; scale [] in fp32.
"""

import torch
from torch import Tensor

from kernels.registration import triton

TINY = torch.finfo(torch.float32).tiny  # no smaller scale: a division by it would give infinities
_triton = triton("fp8_cast_triton", "cast")


def fp8_cast(
    implementation: str, x: Tensor, dtype: torch.dtype, *, rows: bool, transposed: bool
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Return q in rows, q transposed (None where not wanted), and the scale."""
    if implementation == "triton":
        plain, turned, scale = _triton(x, dtype, rows, transposed)
        return plain, turned, scale
    most = torch.finfo(dtype).max
    scale = (x.abs().amax().float() / most).clamp(min=TINY)
    q = (x.float() / scale).clamp(-most, most).to(dtype)
    return q if rows else None, q.t().contiguous() if transposed else None, scale
