"""What the gate measures of this project, as plain data that base's and head's adapters (`adapter.py`) both read.

Everything is small, so that a slice, a tenth of a second, holds several iterations.
"""

from typing import Any

ADAPTER = "benchmarks.gated.adapter benchmarks.gate.adapter"  # the second is its name in trees until 1.0
MODEL = {"layers": 2, "hidden": 32, "heads": 4, "seq": 32, "vocab": 64}
SIMULATED = [  # Figure 12 at B=24 with and without interleaving, and 7.5B on 32 GPUs
    ({"layers": 96, "hidden": 12288, "heads": 96}, {"p": 12, "t": 8, "v": 4, "b": 1, "B": 24}),
    ({"layers": 96, "hidden": 12288, "heads": 96}, {"p": 12, "t": 8, "b": 1, "B": 24}),
    ({"layers": 36, "hidden": 4096, "heads": 32}, {"p": 4, "t": 4, "d": 2, "b": 1, "B": 128}),
]


def _training(ranks: int, layers: int = 2, **parallel: Any) -> dict[str, Any]:
    """Training steps with kernels=auto, which users get: on a CPU, where the gate measures, that is the reference."""
    parallel = {"b": 1, "B": 2, "recompute": "none"} | parallel
    whole = {"model": MODEL | {"layers": layers}, "parallel": parallel, "kernels": "auto"}
    # Imported before any process is forked: what is slow (torch imports `_dynamo` when the first optimizer is made),
    # and before ranks are forked what each of them would import.
    slow = {"packages": ["torch", "torch._dynamo"], "imports": ["kernels", "ptdp_core.engine.trainer"]}
    return {"kind": "training", "ranks": ranks, "iterations": 4, "adapter": ADAPTER, **slow, **whole}


def _simulator(iterations: int, cold: bool) -> dict[str, Any]:
    """Passes of the simulator over `SIMULATED`; `cold` passes find nothing in a cache."""
    workload = {"kind": "simulator", "ranks": 0, "iterations": iterations, "adapter": ADAPTER}
    return workload | {"configurations": SIMULATED, "cold": cold}


# Workloads by name: the kind of work, the number of processes besides the measuring one, the iterations of a slice, and
# further keys, which the adapter reads.
WORKLOADS: dict[str, dict[str, Any]] = {
    "pipeline_step": _training(2, p=2),
    "interleaved_step": _training(2, layers=4, p=2, v=2),
    "tensor_step": _training(2, t=2),
    "train_step": _training(1),
    "recompute_step": _training(1, recompute="full"),
    "simulator": _simulator(iterations=6, cold=False),
    "cold_simulator": _simulator(iterations=1, cold=True),
}
