"""Layer normalisation: PyTorch's own operator in every implementation.

PyTorch's is fused already, forward and backward; `reproduce/annex/bench/fused_kernels.py` measures it beside what
`torch.compile` makes of the formula.
"""

import torch
from torch import Tensor

from kernels import checks


def layer_norm(device: torch.device, x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension of x [..., h].

    `weight` and `bias` are [h]. Raises `TypeError` or `ValueError` for other shapes and dtypes, and for eps < 0.
    """
    checks.operands(device, x, {"weight": weight, "bias": bias})
    if not eps >= 0.0:
        raise ValueError(f"eps={eps} is negative or not a number; needs eps >= 0; try 1e-5")
    return torch.layer_norm(x, (x.shape[-1],), weight, bias, eps)


def formula(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer normalisation by its definition, in float32 at least; the benchmark compiles this."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    variance, mean = torch.var_mean(x.to(wide), -1, correction=0, keepdim=True)
    return ((x.to(wide) - mean) * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)
