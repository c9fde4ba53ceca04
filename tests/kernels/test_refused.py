"""What operators refuse, whichever implementation runs: a call, the kind of its error, and what that says."""

import math

import pytest
import torch

from kernels import select
from tests.mistakes import says

OPERATORS = select("reference")
BIAS, SOFTMAX, MASKED = OPERATORS.bias_gelu, OPERATORS.causal_softmax, OPERATORS.masked_softmax
DROPOUT, ADD = OPERATORS.dropout, OPERATORS.bias_dropout_add
X = torch.zeros(2, 4)


def zeros(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def mask(*shape, device="cpu"):
    return zeros(*shape, dtype=torch.bool, device=device)


SCORES, RESIDUAL, HALF = zeros(2, 3), zeros(2, 3), zeros(2, 3, dtype=torch.float16)
REFUSED = [
    (BIAS, (X, zeros(3)), ValueError, "bias=[3] float32 on cpu beside x=[2, 4] float32 on cpu; needs shape [4]"),
    (BIAS, (X, zeros(4, dtype=torch.float64)), TypeError, "bias=[4] float64 on cpu beside x=... needs equal dtypes"),
    (BIAS, (X, zeros(4, device="meta")), ValueError, "bias=[4] float32 on meta beside x=... on cpu; needs one device"),
    (BIAS, (X, None), TypeError, "bias=None is a NoneType; needs a tensor"),
    (SOFTMAX, (zeros(2, 3, 4), 1.0), ValueError, "scores=[2, 3, 4] float32 on cpu; needs shape [..., s, s]"),
    (SOFTMAX, (zeros(4), 1.0), ValueError, "scores=[4] float32 on cpu; needs shape"),
    (SOFTMAX, (zeros(2, 2, dtype=torch.int64), 1.0), TypeError, "scores=[2, 2] int64 on cpu; needs dtype float64"),
    (SOFTMAX, ([[0.0]], 1.0), TypeError, "scores=[[0.0]] is a list; needs a tensor"),
    (SOFTMAX, (zeros(0, 2, 2), 1.0), ValueError, "scores=[0, 2, 2] float32 on cpu; needs at least one"),
    (SOFTMAX, (zeros(2, 2, device="meta"), 1.0), ValueError, "scores=[2, 2] float32 on meta; needs device cpu"),
    (SOFTMAX, (zeros(2, 2), math.nan), ValueError, "scale=nan is not finite; needs"),
    (SOFTMAX, (zeros(2, 2), math.inf), ValueError, "scale=inf is not finite; needs"),
    (SOFTMAX, (zeros(2, 2), "1"), TypeError, "scale='1' is a str; needs a number"),
    (MASKED, (SCORES, zeros(2, 3), 1.0), TypeError, "mask=[2, 3] float32 on cpu; needs a bool tensor"),
    (MASKED, (SCORES, mask(3, 3), 1.0), ValueError, "mask=[3, 3] bool on cpu beside scores=[2, 3]...; needs a shape"),
    (MASKED, (SCORES, mask(2, 2, 3), 1.0), ValueError, "mask=[2, 2, 3] bool on cpu beside scores=...; needs a shape"),
    (MASKED, (SCORES, mask(2), 1.0), ValueError, "mask=[2] bool on cpu beside scores=[2, 3] float32...; needs a shape"),
    (MASKED, (SCORES, mask(2, 3, device="meta"), 1.0), ValueError, "mask=[2, 3] bool on meta...; needs one device"),
    (MASKED, (zeros(3), mask(3), 1.0), ValueError, "scores=[3] float32 on cpu; needs shape [..., q, k]"),
    *((DROPOUT, (X, p), ValueError, f"p={p} is not a dropout probability; needs 0 <= p < 1") for p in (-0.1, 1.0, 1.5)),
    (DROPOUT, (X, math.nan), ValueError, "p=nan is not a dropout probability; needs 0 <= p < 1"),
    (DROPOUT, (X, None), TypeError, "p=None is a NoneType; needs a number"),
    (ADD, (SCORES, zeros(3), zeros(3), 0.1, True), ValueError, "residual=[3] float32 on cpu...; needs shape [2, 3]"),
    (ADD, (SCORES, zeros(3), HALF, 0.1, True), TypeError, "residual=[2, 3] float16 on cpu...; needs equal dtypes"),
    # Even when it is not used.
    (ADD, (SCORES, zeros(3), RESIDUAL, 1.0, False), ValueError, "p=1.0 is not a dropout probability"),
]


@pytest.mark.parametrize(("operator", "arguments", "kind", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_arguments_that_do_not_fit_are_refused(operator, arguments, kind, message):
    with pytest.raises(kind) as refused:
        operator(*arguments)
    assert says(str(refused.value), message), refused.value
