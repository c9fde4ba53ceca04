"""Triton kernels that turn queries and keys between the projection's [s, n, q + 2, d] and tensors of their own."""

# mypy: disable-error-code="no-untyped-def,import-untyped,import-not-found"

import triton
import triton.language as tl
from torch import Tensor

from kernels import launch


@triton.jit
def _turn(
    heads,
    q,
    k,
    v,
    cos,
    sin,
    rows,
    groups,
    BACK: tl.constexpr,
    QUERIES: tl.constexpr,
    HALF: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row is a head: forward its queries and its key, which are turned, backward all of them, turned back."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < HALF)
    OF_GROUP: tl.constexpr = QUERIES + 2 if BACK else QUERIES + 1
    group, which = (row // OF_GROUP).to(tl.int64), row % OF_GROUP
    whole = (group * (QUERIES + 2) + which) * (2 * HALF) + column
    is_query, is_key = inside & (which < QUERIES), inside & (which == QUERIES)
    query, key = (group * QUERIES + which) * (2 * HALF) + column, group * (2 * HALF) + column
    angle = group // groups * HALF + column
    turns = is_query | is_key
    c = tl.load(cos + angle, mask=turns, other=1.0).to(WIDE)
    s = tl.load(sin + angle, mask=turns, other=0.0).to(WIDE)
    if BACK:
        is_value = inside & (which > QUERIES)
        a = tl.load(q + query, mask=is_query, other=0.0).to(WIDE) + tl.load(k + key, mask=is_key, other=0.0).to(WIDE)
        b = tl.load(q + query + HALF, mask=is_query, other=0.0).to(WIDE)
        b += tl.load(k + key + HALF, mask=is_key, other=0.0).to(WIDE)
        a += tl.load(v + key, mask=is_value, other=0.0).to(WIDE)
        b += tl.load(v + key + HALF, mask=is_value, other=0.0).to(WIDE)
        tl.store(heads + whole, a * c + b * s, mask=inside)
        tl.store(heads + whole + HALF, b * c - a * s, mask=inside)
    else:
        a = tl.load(heads + whole, mask=inside, other=0.0).to(WIDE)
        b = tl.load(heads + whole + HALF, mask=inside, other=0.0).to(WIDE)
        first, second = a * c - b * s, b * c + a * s
        tl.store(q + query, first, mask=is_query)
        tl.store(q + query + HALF, second, mask=is_query)
        tl.store(k + key, first, mask=is_key)
        tl.store(k + key + HALF, second, mask=is_key)


def forward(heads: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Queries [s, n*q, d] and keys [s, n, d], turned, of heads [s, n, q + 2, d]."""
    s, n, each, d = heads.shape
    q, k = heads.new_empty(s, n * (each - 2), d), heads.new_empty(s, n, d)
    _launch(heads.contiguous(), q, k, None, cos, sin, back=False)
    return q, k


def backward(q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradient of the heads [s, n, q + 2, d] from those of queries, keys and values."""
    s, n, d = k.shape
    heads = k.new_empty(s, n, q.size(1) // n + 2, d)
    _launch(heads, q.contiguous(), k.contiguous(), v.contiguous(), cos, sin, back=True)
    return heads


def _launch(heads: Tensor, q: Tensor, k: Tensor, v: Tensor | None, cos: Tensor, sin: Tensor, back: bool) -> None:
    s, n, each, d = heads.shape
    rows, block = s * n * (each if back else each - 1), triton.next_power_of_2(d // 2)
    height = launch.rows_per_tile(rows, 2 * block)
    with launch.on_device_of(heads):
        _turn[(triton.cdiv(rows, height),)](
            heads,
            q,
            k,
            v,
            cos,
            sin,
            rows,
            n,
            BACK=back,
            QUERIES=each - 2,
            HALF=d // 2,
            WIDE=launch.wide(heads.dtype),
            ROWS=height,
            BLOCK=block,
            num_warps=launch.warps(2 * height * block),
        )
