"""Parity with the serial model whichever implementation the fused operators have: part of the grid of `test_parity`.

fp64, three steps, 1e-9 relative. Without dropout: each implementation draws its own mask.
"""

import json
from typing import Any

import numpy as np
import pytest

from kernels import why_unavailable
from tests.processes import python
from tests.ptdp_core.engine import compare_cases, jobs
from tests.ptdp_core.engine.test_parity import GRID, TOLERANCE, References

CASES = [
    {"layers": 2, "b": 2, "B": 4, "recompute": "full"},
    {"p": 2, "t": 2, "v": 2, "b": 1, "B": 2, "recompute": "full"},
    {"t": 2, "b": 2, "B": 2, "layers": 2, "recompute": "selective"},
]
SMALL = [
    case
    for case in GRID
    if case["p"] * case["t"] * case["d"] <= 4 and case["attention"] == "operators" and not case["dropout"]
]
Work = list[tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    return References(tmp_path_factory.mktemp("serial"))


def check(name, cases, references):
    work = [(case | {"kernels": name}, references.path(case)) for case in cases]
    results = interpreted(work) if name == "triton" else compare_cases.compare(work)
    for case, ranks in zip(cases, results, strict=True):
        for rank, errors in enumerate(ranks):
            assert max(errors.values()) <= TOLERANCE, f"{name}, {jobs.merged(case)}: rank {rank} {errors}"


def interpreted(work):
    """In a process that has Triton's interpreter."""
    pytest.importorskip("triton")
    done = python("-m", compare_cases.__name__, json.dumps(work), env={"TRITON_INTERPRET": "1"})
    return json.loads(done.stdout)


LLAMA = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "bias": False, "kv_heads": 2}
LATER = [
    {"attention": "sdpa", "layers": 2, "b": 2, "B": 4, "recompute": "none"},
    LLAMA | {"attention": "sdpa", "hidden": 16, "layers": 2, "b": 2, "B": 4, "recompute": "full"},
    LLAMA
    | {"kv_heads": 4, "qk_norm": True, "attention": "sdpa", "layers": 1, "B": 2, "experts": 4}
    | {"experts_per_token": 2, "shared_expert_ffn_hidden": 8, "recompute": "none"},
]


@pytest.mark.parametrize("case", LATER, ids=["gpt", "llama", "experts"])
def test_a_step_with_triton_is_that_of_the_reference(case):
    """The loss, norms with the residual, rotary positions and SwiGLU, forward and backward, in three steps in fp64."""
    if reason := why_unavailable("triton"):
        pytest.skip(reason)
    ours, reference = (
        jobs.losses_and_norms(lambda: None, case | {"kernels": name}) for name in ("triton", "reference")
    )
    np.testing.assert_allclose(ours, reference, rtol=TOLERANCE)


@pytest.mark.slow
def test_triton(references):
    check("triton", CASES[:1], references)


@pytest.mark.slow
def test_triton_on_more(references):
    check("triton", [*CASES[1:], *SMALL[::12]], references)


@pytest.mark.slow
@pytest.mark.skipif(why_unavailable("compiled") is not None, reason="needs a C++ compiler")
def test_compiled(references):
    check("compiled", [*CASES, *SMALL[::24]], references)


def test_sdpa_equals_operators(references):
    """PyTorch's attention and the paper's, from the same weights: the same losses, norms, gradients and parameters."""
    case = {"t": 2, "b": 1, "B": 2, "recompute": "full"}
    operators, sdpa = (case | {"attention": attention} for attention in ("operators", "sdpa"))
    check("reference", [operators, sdpa], references)  # both against the same serial run, in fp64
