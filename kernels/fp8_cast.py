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


Cast = tuple[Tensor | None, Tensor | None, Tensor | None]


def fp8_cast(
    implementation: str, x: Tensor, dtype: torch.dtype, *, rows: bool, transposed: bool, into: Cast | None = None
) -> Cast:
    """Return q in rows, q transposed (None where not wanted), and the scale, in the tensors of `into` if given."""
    if implementation == "triton":
        plain, turned, scale = _triton(x, dtype, rows, transposed, into)
        return plain, turned, scale
    most = torch.finfo(dtype).max
    scale = (x.abs().amax().float() / most).clamp(min=TINY)
    q = (x.float() / scale).clamp(-most, most).to(dtype)
    made = q.contiguous() if rows else None, q.t().contiguous() if transposed else None, scale
    for old, new in zip(into or (), made, strict=False):
        if old is not None and new is not None:
            old.copy_(new)
    return into or made
