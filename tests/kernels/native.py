"""Compiles every Triton kernel for a GPU that need not be here, as the launching code would for tensors of a dtype.

    python -m tests.kernels.native <compute capability> <dtype>

Prints JSON: for every kernel its name/columns, how often its PTX has which load or store of global memory, and what it
takes of a GPU: registers of a thread, bytes of its stack and of local memory (where spilled registers go), warps of a
program. In a process of its own: whether Triton interprets or compiles is settled when the kernels are imported.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from triton.runtime.jit import JITFunction

from kernels import (
    add_norm_triton,
    bias_gelu_triton,
    combine_triton,
    cross_entropy_triton,
    dropout_triton,
    fp8_cast_triton,
    launch,
    rotary_triton,
    softmax_triton,
    swiglu_triton,
)
from kernels.layout import accumulation_dtype

POINTERS = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.uint8: "*u8",
    torch.float8_e4m3fn: "*fp8e4nv",
}


Compiled = tuple[str, Counter[str], dict[str, int]]


def usage(cubin: bytes) -> dict[str, int]:
    """Registers, stack and local memory of the one kernel in a binary, as NVIDIA's tool says, which Triton brings."""
    tool = Path(nvidia.__path__[0]) / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        shown = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", shown)}


def compile_all(capability: int, dtype: torch.dtype) -> list[Compiled]:
    compiled: list[Compiled] = []

    def run(kernel: JITFunction, *values: Any, grid: object, warmup: bool, num_warps: int, **constants: Any) -> None:
        signature, fixed, hints = {}, {}, {}
        for place, parameter in enumerate(kernel.params):
            value = values[place] if place < len(values) else constants[parameter.name]
            if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1):
                signature[parameter.name], fixed[parameter.name] = "constexpr", value
                continue
            signature[parameter.name] = POINTERS[value.dtype] if isinstance(value, torch.Tensor) else "i32"
            if isinstance(value, torch.Tensor) or value % 16 == 0:
                hints[(place,)] = [["tt.divisibility", 16]]
        binary = compile(
            ASTSource(kernel, signature, fixed, hints),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": num_warps},
        )
        columns = constants.get("BLOCK", constants.get("COLUMNS"))
        name = f"{kernel.fn.__module__.removeprefix('kernels.')}.{kernel.fn.__name__}/{columns}"
        accesses = Counter(re.findall(r"(?:ld|st)\.global[.\w]*", binary.asm["ptx"]))
        compiled.append((name, accesses, usage(binary.asm["cubin"]) | {"warps": num_warps}))

    JITFunction.run = run
    launch.multiprocessors = lambda device: 132  # an H100's
    for s in (65, 2048, 9008):  # several rows per program, the paper's row, and one in two blocks
        scores, mask = torch.empty(1, s, s, dtype=dtype), torch.empty(1, s, s, dtype=torch.bool)
        softmax_triton.masked_forward(scores, mask, 0.1)
        softmax_triton.masked_backward(scores, scores, 0.1)
        softmax_triton.causal_forward(scores, 0.1)
        softmax_triton.causal_backward(scores, scores, 0.1)
    x, bias = torch.empty(2048, 6144, dtype=dtype), torch.empty(6144, dtype=dtype)
    seed = torch.empty(1, dtype=torch.int64)
    bias_gelu_triton.forward(x, bias)
    bias_gelu_triton.backward(x, x, bias)
    dropout_triton.dropout(x, seed, 0.1)
    dropout_triton.bias_dropout_add(x, bias, x, None, 0.0)
    dropout_triton.bias_dropout_add(x, bias, x, seed, 0.1)
    dropout_triton.bias_dropout_add_backward(x, seed, 0.1)
    logits, labels, of_rows = torch.empty(64, 6400, dtype=dtype), torch.empty(64, dtype=torch.int64), torch.empty(64)
    of_rows = of_rows.to(accumulation_dtype(dtype))
    cross_entropy_triton.sums(logits, labels, 6400, 51200)
    cross_entropy_triton.gradient(logits, labels, of_rows, of_rows, 6400, 12601)
    vectors = [torch.empty(2304, dtype=dtype) for _ in range(3)]
    for h in (256, 2304, 8192):  # several rows per program, the H100's GPT, and the longest rows
        x, (bias, weight, shift) = torch.empty(2048, h, dtype=dtype), (v.new_empty(h) for v in vectors)
        for own_bias, own_shift, residual in ((bias, shift, x), (None, None, None)):
            _, _, moments = add_norm_triton.forward(x, own_bias, residual, weight, own_shift, 1e-5)
            add_norm_triton.backward(x, x, x, weight, moments, own_bias is not None)
    pairs = torch.empty(2048, 2 * 8192, dtype=dtype)
    swiglu_triton.backward(swiglu_triton.forward(pairs), pairs)
    weights, places = torch.empty(1024, 2), torch.empty(1024, 2, dtype=torch.int64)
    for rows in (torch.empty(2048, 1024, dtype=dtype), torch.empty(2048, 7168, dtype=dtype)):
        combine_triton.backward(combine_triton.forward(rows, weights, places), rows, weights, places)
        combine_triton.forward(rows, None, places)
    heads, angle = torch.empty(2048, 8, 6, 64, dtype=dtype), torch.empty(2048, 1, 32, dtype=dtype)
    q, k = rotary_triton.forward(heads, angle, angle)
    rotary_triton.backward(q, k, k, angle, angle)
    if capability >= 89:  # older GPUs have no FP8
        fp8_cast_triton.cast(torch.empty(8192, 2304, dtype=dtype), torch.float8_e4m3fn, True, True)
    return compiled


if __name__ == "__main__":
    print(json.dumps(compile_all(int(sys.argv[1]), getattr(torch, sys.argv[2]))))
