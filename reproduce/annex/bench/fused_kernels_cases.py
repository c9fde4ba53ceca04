"""The cases of the benchmark of fused operators: operators, shapes, implementations, and the bytes that each must move.

Shapes are those of one GPU of the paper's runs with tensor parallelism 8 and a microbatch of one sequence. The baseline
is the reference: the chain of PyTorch operators with PyTorch's own backward.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

import kernels
from kernels.layout import accumulation_dtype
from ptdp_core.config import padded_vocab
from ptdp_core.engine.groups import Axis

TENSOR_PARALLEL = 8
VOCAB = 51200
DROPOUT = 0.1
EPSILON = 1e-5
ATTENTION_BATCH = 4  # with one sequence both layouts are the same

Call = Callable[..., Tensor]


def layer_norm_formula(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer normalisation by its definition, in float32 at least, for `torch.compile` to fuse."""
    wide = x.to(accumulation_dtype(x.dtype))
    variance, mean = torch.var_mean(wide, -1, correction=0, keepdim=True)
    return ((wide - mean) * torch.rsqrt(variance + eps) * weight + bias).to(x.dtype)


class Shape(NamedTuple):
    """A model of the paper as one tensor-parallel rank sees it: sequence s, hidden h, heads a (of this rank)."""

    model: str
    s: int
    h: int
    a: int

    @property
    def scores(self) -> tuple[int, ...]:
        """The shape of the attention scores of one sequence, [1, a, s, s]."""
        return (1, self.a, self.s, self.s)


def shapes(s: int) -> tuple[Shape, Shape]:
    """The two models of Section 5.8, with sequences of `s` tokens (2048 in the paper)."""
    return Shape("175B", s, 12288, 96 // TENSOR_PARALLEL), Shape("530B", s, 20480, 128 // TENSOR_PARALLEL)


@dataclass(frozen=True)
class OperatorCase:
    """One operator at one shape.

    `bytes_moved` is the least that forward and backward can read and write, where that is a useful bound. The `inputs`
    are differentiable. `calls` maps a series to its function, or to the reason why it cannot run here.
    """

    operator: str
    shape: Shape
    parameters: Mapping[str, int | float | str]
    inputs: tuple[Tensor, ...]
    calls: Mapping[str, Call | str]
    bytes_moved: Mapping[str, int]

    @property
    def key(self) -> str:
        """The name of the case in a record, such as `bias_gelu/175B`."""
        return f"{self.operator}/{self.shape.model}"


def largest_tensor(shape: Shape, dtype: torch.dtype) -> int:
    """The bytes of the largest tensor of any case."""
    return dtype.itemsize * max(shape.a * shape.s**2 * ATTENTION_BATCH, shape.s * 4 * shape.h)


def cases(shape: Shape, device: torch.device, dtype: torch.dtype) -> Iterator[OperatorCase]:
    """Yield the case of every operator at `shape`: the sizes of its inputs, its calls, the bytes forward and backward.

    A case holds its inputs, so drop it before asking for the next one.
    """
    s, h, a, element = shape.s, shape.h, shape.a, dtype.itemsize
    head = h // (a * TENSOR_PARALLEL)
    scale, inner = 1 / sqrt(head), 4 * h // TENSOR_PARALLEL
    columns = padded_vocab(VOCAB, TENSOR_PARALLEL) // TENSOR_PARALLEL
    padding = (torch.arange(s, device=device) >= s - s // 8).expand(1, 1, s, s).contiguous()  # the last eighth
    places = torch.randperm(2 * s, device=device).view(s, 2)
    labels = torch.randint(0, columns, (s, 1), device=device)
    angle = torch.arange(s, device=device).unsqueeze(-1) / 10.0 ** torch.linspace(0, 4, head // 2, device=device)
    cos, sin = (table.to(dtype).unsqueeze(1) for table in (angle.cos(), angle.sin()))
    square = a * s * s * element
    triangle = a * s * (s + 1) // 2 * element  # all of the scores and gradients that causal softmax reads
    tokens, wide, logits = s * h * element, s * inner * element, s * columns * element
    heads, scores, row, bias = s * a * head * element, shape.scores, (s, 1, h), (h,)
    norm = torch.compile(layer_norm_formula)  # not part of `kernels`, unless it were faster than PyTorch's
    layer_norm: Mapping[str, Call | str] = {
        "reference": lambda x, w, b: functional.layer_norm(x, (h,), w, b, EPSILON),
        "compiled": kernels.why_unavailable("compiled", device) or (lambda x, w, b: norm(x, w, b, EPSILON)),
    }
    of = partial(_series, device)
    rows: tuple[tuple[str, tuple[tuple[int, ...], ...], Mapping[str, Call | str], int, int], ...] = (
        ("causal_softmax", (scores,), of(lambda ops: lambda x: ops.causal_softmax(x, scale)),
         triangle + square, 2 * triangle + square),
        ("masked_softmax", (scores,), of(lambda ops: lambda x: ops.masked_softmax(x, padding, scale)),
         2 * square + s * s, 3 * square),
        ("attention_dropout", (scores,), of(lambda ops: lambda x: ops.dropout(x, DROPOUT)), 2 * square, 2 * square),
        ("bias_gelu", ((s, 1, inner), (inner,)), of(lambda ops: ops.bias_gelu), 2 * wide, 3 * wide),
        ("bias_dropout_add", (row, bias, row), of(lambda ops: lambda x, b, r: ops.bias_dropout_add(x, b, r, DROPOUT)),
         3 * tokens, 2 * tokens),
        # Of a layer without dropout; the gradient of the sum comes, too.
        ("add_norm", (row, row, bias),
         of(lambda ops: lambda x, r, w: torch.cat(ops.add_norm(x, None, r, w, None, EPSILON))), 4 * tokens, 4 * tokens),
        ("swiglu", ((s, 1, 2 * inner),), of(lambda ops: ops.swiglu), 3 * wide, 5 * wide),
        # Of two experts a token.
        ("combine", ((2 * s, h), (s, 2)), of(lambda ops: lambda x, w: ops.combine(x, w, places)),
         3 * tokens, 5 * tokens),
        # Of queries and keys; backward brings the values' gradient, too.
        ("rotary", ((s, a, 3, head),), of(lambda ops: lambda x: torch.stack(ops.rotary(x, cos, sin))),
         4 * heads, 6 * heads),
        # The gradient takes the place of the logits, which are then those of the next sample.
        ("cross_entropy", ((s, 1, columns),),
         of(lambda ops: lambda x: ops.cross_entropy(x, labels, columns, Axis("tp"))), logits, 2 * logits),
        ("layer_norm", (row, bias, bias), layer_norm, 2 * tokens, 3 * tokens),
    )  # fmt: skip
    parameters = {"s": s, "b": 1, "t": TENSOR_PARALLEL, "h": h, "heads_per_rank": a}
    for operator, sizes, calls, forward, backward in rows:
        inputs = tuple(torch.randn(size, device=device, dtype=dtype, requires_grad=True) for size in sizes)
        moved = {"forward": forward, "backward": backward}
        yield OperatorCase(operator, shape, parameters, inputs, calls, moved)
        del inputs  # before those of the next one are made


def attention(shape: Shape, device: torch.device, dtype: torch.dtype) -> OperatorCase:
    """The case of attention between its two projections, in both layouts, and as PyTorch's own newer operator.

    The inputs are queries, keys and values as one projection leaves them, in the layout of the series: [s, b, a, 3d]
    or [b, s, a, 3d]. With s first a batched product reads them where they are; with b first each has to be copied.
    """
    b, d = ATTENTION_BATCH, shape.h // (shape.a * TENSOR_PARALLEL)
    scale, ops = 1 / sqrt(d), kernels.select("auto", device)

    def s_first(qkv: Tensor) -> Tensor:
        q, k, v = qkv.view(shape.s, b * shape.a, 3, d).unbind(2)
        scores = torch.bmm(q.transpose(0, 1), k.permute(1, 2, 0)).view(b, shape.a, shape.s, shape.s)
        probs = ops.causal_softmax(scores, scale).view(-1, shape.s, shape.s)
        return torch.bmm(probs, v.transpose(0, 1)).transpose(0, 1).reshape(shape.s, b, -1)

    def b_first(qkv: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in qkv.view(b, shape.s, shape.a, 3, d).unbind(3))
        probs = ops.causal_softmax(torch.matmul(q, k.transpose(-1, -2)), scale)
        return torch.matmul(probs, v).transpose(1, 2).reshape(b, shape.s, -1)

    def fused(qkv: Tensor) -> Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in qkv.view(shape.s, b, shape.a, 3, d).unbind(3))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return context.permute(2, 0, 1, 3).reshape(shape.s, b, -1)

    qkv = torch.randn(b * shape.s, shape.a * 3 * d, device=device, dtype=dtype, requires_grad=True)
    calls: dict[str, Call | str] = {"[b, s, a, h]": b_first, "[s, b, a, h]": s_first, "sdpa": fused}
    parameters = {"s": shape.s, "b": b, "t": TENSOR_PARALLEL, "head_size": d, "heads_per_rank": shape.a}
    return OperatorCase("attention", shape, parameters, (qkv,), calls, {})


def _series(device: torch.device, of: Callable[[kernels.Kernels], Call]) -> dict[str, Call | str]:
    """The function of each implementation, the baseline first, or the reason why it cannot run."""
    series: dict[str, Call | str] = {}
    for name in kernels.IMPLEMENTATIONS:
        if name == "triton" and device.type == "cpu":
            series[name] = "needs a GPU; the times of its interpreter say nothing"
        else:
            series[name] = kernels.why_unavailable(name, device) or of(kernels.select(name, device))
    return series
