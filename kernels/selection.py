"""Selects the implementation of the operators, by its name or by the device."""

import functools
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import add_norm
from kernels.bias_dropout_add import bias_dropout_add
from kernels.bias_gelu import bias_gelu
from kernels.causal_softmax import causal_softmax
from kernels.combine import combine
from kernels.cross_entropy import Ranks, cross_entropy
from kernels.dropout import dropout
from kernels.masked_softmax import masked_softmax
from kernels.registration import IMPLEMENTATIONS
from kernels.rotary import rotary
from kernels.swiglu import swiglu


@dataclass(frozen=True)
class Kernels:
    """The operators in one implementation, for tensors on one type of device; `select` makes it.

    All take float64, float32, bfloat16 and float16, in any strides; the fused ones compute in float32 at least. They
    return new contiguous tensors. For bad input they raise a `TypeError` or `ValueError` that names the numbers. Under
    autocast the tensors may differ in dtype; they are then promoted as PyTorch's own addition would promote them.
    """

    name: str
    device: torch.device

    def causal_softmax(self, scores: Tensor, scale: float) -> Tensor:
        """Return softmax(scale * scores) over the columns j <= i of each row i; scores and result are [..., s, s]."""
        return causal_softmax(self.name, self.device, scores, scale)

    def masked_softmax(self, scores: Tensor, mask: Tensor, scale: float) -> Tensor:
        """Return softmax(scale * scores) over the columns where `mask` is False; scores and result are [..., q, k].

        The mask is a bool tensor that broadcasts to the scores. A row that it masks throughout is 0, and so are its
        gradients.
        """
        return masked_softmax(self.name, self.device, scores, mask, scale)

    def bias_gelu(self, x: Tensor, bias: Tensor) -> Tensor:
        """Return gelu(x + bias) in its tanh form, for x [..., h] and bias [h]."""
        if torch.is_autocast_enabled(self.device.type):
            x, bias = promoted(x, bias)
        return bias_gelu(self.name, self.device, x, bias)

    def bias_dropout_add(self, x: Tensor, bias: Tensor, residual: Tensor, p: float, training: bool = True) -> Tensor:
        """Return residual + dropout(x + bias), x and residual [..., h], bias [h]; no dropout if not `training`."""
        if torch.is_autocast_enabled(self.device.type):
            x, bias, residual = promoted(x, bias, residual)
        return bias_dropout_add(self.name, self.device, x, bias, residual, p, training)

    def dropout(self, x: Tensor, p: float, training: bool = True) -> Tensor:
        """Return x [...] with elements dropped with probability p; `x` itself if not `training` or p = 0."""
        return dropout(self.name, self.device, x, p, training)

    def add_norm(
        self, x: Tensor, bias: Tensor | None, residual: Tensor | None, weight: Tensor, shift: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return residual + x + bias, or without a residual x, and its norm: without a shift RMSNorm.

        x, the residual and the results are [..., h], the others [h].
        """
        if self.name == "triton" and x.shape[-1] <= add_norm.LARGEST:
            y, normed = add_norm.fused(x, bias, residual, weight, shift, eps)
            return y, normed
        if residual is not None:
            x = residual + x if bias is None else self.bias_dropout_add(x, bias, residual, 0.0, False)
        if shift is None:
            return x, torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
        return x, torch.layer_norm(x, weight.shape, weight, shift, eps)

    def swiglu(self, x: Tensor) -> Tensor:
        """Return silu(gate) * up of pairs of columns (gate, up): [..., f] of x [..., 2f]."""
        return swiglu(self.name, x)

    def rotary(self, heads: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return turned queries [s, n*q, d] and keys [s, n, d], and values, of heads [s, n, q + 2, d].

        cos and sin [s, 1, d/2] are those of the positions' angles, in the dtype of the heads.
        """
        return rotary(self.name, heads, cos, sin)

    def combine(self, rows: Tensor, weights: Tensor | None, places: Tensor) -> Tensor:
        """Return [n, h]: for each n the sum over k of weights [n, k], or ones, times rows [p, h] at places [n, k].

        Without weights it has no gradient.
        """
        return combine(self.name, rows, weights, places)

    def cross_entropy(self, logits: Tensor, labels: Tensor, vocab: int, tp: Ranks) -> Tensor:
        """The loss of every token from logits [..., V/t] of this rank of `tp`, in the shape of `labels`.

        The logits must be contiguous, and are overwritten.
        """
        return cross_entropy(self.name, logits, labels, vocab, tp)


def promoted(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in the widest of their dtypes, as autocast wants them."""
    if not all(isinstance(x, Tensor) for x in tensors):
        return tensors
    wide = functools.reduce(torch.promote_types, (x.dtype for x in tensors))
    return tuple(x.to(wide) for x in tensors)


def select(name: str = "auto", device: torch.device | str = "cpu") -> Kernels:
    """Return the operators in implementation `name`: reference, compiled, triton or auto.

    "auto" is Triton on a GPU, or the next implementation that works there. On a CPU it is the reference, because
    compiling takes each process a minute, more than a short run can win back. Raises `ValueError`, with the reason, if
    `name` is unknown or cannot run on `device`.
    """
    device = torch.device(device)
    if name == "auto":
        preferred = reversed(IMPLEMENTATIONS) if device.type == "cuda" else ("reference",)
        name = next((candidate for candidate in preferred if why_unavailable(candidate, device) is None), "reference")
    if name not in IMPLEMENTATIONS:
        raise ValueError(f"kernels={name!r} is unknown; needs one of {', '.join(IMPLEMENTATIONS)}, auto; try auto")
    if reason := why_unavailable(name, device):
        raise ValueError(f"kernels={name!r} cannot run on device={str(device)!r}; {reason}")
    return Kernels(name, device)


def available(device: torch.device | str = "cpu") -> tuple[str, ...]:
    """The implementations that can run on `device`; `why_unavailable` has the reasons for the others."""
    return tuple(name for name in IMPLEMENTATIONS if why_unavailable(name, device) is None)


def why_unavailable(name: str, device: torch.device | str = "cpu") -> str | None:
    """Why implementation `name` cannot run on `device`, as "needs <what>; try <fix>", or None if it can."""
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        return "needs device cpu or cuda; try cpu"
    on_gpu = device.type == "cuda"
    if on_gpu:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            return "needs a GPU that PyTorch can use, and torch.cuda.is_available() is False; try cpu"
        if device.index is not None and device.index >= count:
            return f"needs an index below {count}, the number of GPUs here; try cuda:0"
    if name == "compiled" and not on_gpu:
        compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
        if shutil.which(compiler) is None:
            return f"needs a C++ compiler, and {compiler} is not on the path; try apt install g++, or reference"
    elif name in ("compiled", "triton") and importlib.util.find_spec("triton") is None:
        return "needs the package triton, which is not installed; try pip install triton, or reference"
    if name == "triton" and not on_gpu:
        if os.environ.get("TRITON_INTERPRET", "0").lower() not in ("1", "true", "yes", "on", "y"):
            return (
                "needs a GPU, or Triton's interpreter, which is for tests; try reference, or TRITON_INTERPRET=1 in "
                "the environment"
            )
    elif name == "triton":
        major, minor = torch.cuda.get_device_capability(device)
        if torch.version.hip is None and major < 7:
            return f"needs compute capability 7.0 or newer, and this GPU has {major}.{minor}; try reference"
    return None
