"""A trace as Kineto writes it of two GPUs, made by hand so that its numbers are known."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

# Two stages, two microbatches, 1F1B: per rank name, begin and end of its kernels in milliseconds. A forward pass takes
# 10, a backward pass 20, a message 1 or 2 once both ends are there; one all-reduce is half hidden behind a pass.
KERNELS = (
    (
        ("PP:0F0", 0, 10), ("SendRecv", 10, 11), ("PP:0F1", 11, 15), ("AllReduce", 13, 17), ("PP:0F1", 17, 21),
        ("SendRecv", 21, 43), ("PP:0B0", 43, 63), ("SendRecv", 63, 74), ("PP:0B1", 74, 94),
        ("AllReduce", 95, 105), ("Optimizer.step#AdamW.step", 105, 110),
    ),
    (
        ("SendRecv", 0, 11), ("PP:1F0", 11, 21), ("PP:1B0", 21, 41), ("SendRecv", 41, 43), ("PP:1F1", 43, 53),
        ("PP:1B1", 53, 73), ("SendRecv", 73, 74),
        ("AllReduce", 95, 105), ("Optimizer.step#AdamW.step", 105, 110),
    ),
)  # fmt: skip


def gpu_trace(rank: int, ranges: bool, kernels: Sequence[tuple[str, int, int]] = ()) -> dict[str, Any]:
    """A trace as Kineto writes it of a GPU, with the ranges of the passes, or else only what autograd leaves."""
    kernels = kernels or KERNELS[rank]
    events: list[dict[str, Any]] = [on_host("ProfilerStep#7", "user_annotation", 0, 112_000)]
    events.append({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}})
    for number, (name, start, end) in enumerate(kernels):
        launched = 10 + 20 * number  # microseconds: the host is far ahead of its GPU
        kernel = {"SendRecv": "SendRecv", "AllReduce": "AllReduce_Sum_bf16_RING_LL"}.get(name)
        thread = 2 if "B" in name else 1  # autograd's
        about = {"correlation": number, "stream": 20 if kernel else 7}
        events.append(on_host("cudaLaunchKernel", "cuda_runtime", launched, 5, thread, {"correlation": number}))
        of_gpu = {"ph": "X", "cat": "kernel", "pid": 0, "tid": about["stream"], "args": about}
        named = f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)" if kernel else "sm90_xmma_gemm_bf16"
        events.append({**of_gpu, "name": named, "ts": 1000 * start, "dur": 1000 * (end - start)})
        again = [row[0] for row in kernels[number:]].count(name) - 1  # of a pass with two kernels
        if name.startswith("Optimizer"):
            events.append(on_host(name, "user_annotation", launched - 2, 15))
        elif not kernel and ranges:
            if name not in {event["name"] for event in events}:
                events.append(on_host(name, "user_annotation", launched - 2, 15 + 40 * again))
        elif not kernel and "F" in name:
            events.append({"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "pid": 1, "tid": 1, "ts": launched - 1})
        elif not kernel:
            function = "autograd::engine::evaluate_function: MmBackward0"
            events.append(on_host(function, "cpu_op", launched - 2, 15, 2, {"Sequence number": 100 * int(name[-1])}))
    return {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}


class Kernel(NamedTuple):
    """A kernel, begin and end in milliseconds, of a forward (F) or backward pass (B), the optimizer (O), or none ('').

    `range` is what the host asked for it in, `args` what the trace says of it.
    """

    name: str
    pass_: str
    start: float
    end: float
    range: str = ""
    args: Mapping[str, str] = MappingProxyType({})


def step_of(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """A trace of step 3 of these kernels in their order, with what autograd leaves, and no links between passes."""
    events: list[dict[str, Any]] = [on_host("ProfilerStep#3", "user_annotation", 0, 50_000)]
    for number, (name, pass_, start, end, within, args) in enumerate(kernels):
        launched, thread = 10 + 20 * number, 2 if pass_ == "B" else 1
        events.append(on_host("cudaLaunchKernel", "cuda_runtime", launched, 5, thread, {"correlation": number}))
        if pass_ == "B":
            function = "autograd::engine::evaluate_function: MmBackward0"
            events.append(on_host(function, "cpu_op", launched - 3, 16, 2, {"Sequence number": 100 - number}))
        elif pass_ == "O":
            events.append(on_host("Optimizer.step#AdamW.step", "user_annotation", launched - 3, 16))
        if within:
            events.append(on_host(within, "user_annotation", launched - 2, 14, thread))
        about = {"correlation": number, **args}
        of_gpu = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "args": about}
        events.append({**of_gpu, "ts": 1000 * start, "dur": 1000 * (end - start)})
    return {"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": events}


def on_host(name: str, category: str, start: int, length: int, thread: int = 1, args: Any = None) -> dict[str, Any]:
    event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": length}
    return event | {"args": args or {}}


def written(folder: Path, *traces: dict[str, Any]) -> list[Path]:
    """The traces as files, every second one packed."""
    paths = [folder / f"of_{number}.json" for number in range(len(traces))]
    for number, (path, trace) in enumerate(zip(paths, traces, strict=True)):
        text = json.dumps(trace).encode()
        path.write_bytes(gzip.compress(text) if number % 2 else text)
    return paths
