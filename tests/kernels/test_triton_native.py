"""The Triton kernels compile for real GPUs, without one: the interpreter accepts what the compiler does not."""

import functools
import importlib.util
import json
from pathlib import Path

import pytest

import kernels
from tests.processes import python

KERNELS, HELPERS = Path(kernels.__file__).parent, {"dropout_mask_triton"}
HERE = "no Triton compiler for NVIDIA GPUs here"


@functools.cache
def compile_natively(capability, dtype):
    if importlib.util.find_spec("triton") is None or importlib.util.find_spec("triton.backends.nvidia") is None:
        pytest.skip(HERE)
    done = python("-m", "tests.kernels.native", capability, dtype, env={"TRITON_INTERPRET": "0"})
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_half_precision_moves_16_bytes_at_a_time(capability):
    """At the paper's shapes. A mask that changes within 16 bytes would make Triton load element by element."""
    compiled = compile_natively(capability, "bfloat16")
    here = {path.stem for path in KERNELS.glob("*_triton.py")} - HELPERS
    assert {name.split(".")[0] for name, _, _ in compiled} == here - ({"fp8_cast_triton"} if capability < 89 else set())
    for name, accesses, _ in compiled:
        if name.startswith("softmax_triton"):
            narrow = [access for access in accesses if not access.endswith(".v4.b32")]
            assert name.endswith("/128") or narrow == [], f"{name}: {accesses}"
        else:
            few = any(
                kernel in name for kernel in ("._sums/", "._largest/", "._totals/")
            )  # results, of which a row or a program has one
            written = set() if few else {"st.global.v4.b32"}
            assert {"ld.global.v4.b32"} | written <= accesses.keys(), name


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_nothing_spills_and_registers_leave_room_for_other_warps(capability):
    """A multiprocessor has 65,536 registers for up to 64 warps: 64 a thread let half of them run at once.

    Rows of 65 columns take most: several of them are in one program. A norm's backward pass holds three rows of sums,
    two programs of 8 warps fit; where it has 32 warps, the compiler puts a few registers aside.
    """
    for name, _, usage in compile_natively(capability, "bfloat16"):
        sums = name.startswith("add_norm_triton._backward")
        assert usage["LOCAL"] == 0, name
        assert usage["STACK"] <= (24 if sums and usage["warps"] == 32 else 0), name
        most = 120 if name.endswith("/128") and name.startswith("softmax") else 128 if sums else 64
        assert usage["REG"] <= most, name


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_every_dtype_compiles(dtype):
    compile_natively(80, dtype)
