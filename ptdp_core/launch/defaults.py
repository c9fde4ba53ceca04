"""Decides the settings whose value is 'auto', once the device is known."""

from dataclasses import replace

import torch
import torch.distributed as dist

from kernels import select
from ptdp_core.config import DTYPES
from ptdp_core.engine.settings import Settings
from ptdp_core.simulator import Software, load_cluster
from ptdp_core.simulator.costs import cost_model
from ptdp_core.simulator.peak_memory import least_recomputation

GIB = 1 << 30
# The share of a GPU's memory that stays free for what the memory model does not count: the CUDA context, buffers of
# NCCL, workspaces of libraries.
MEMORY_MARGIN = 0.1
# In place of an H100's `allocator_efficiency`, the share of the memory for activations that the allocator fills:
# without fused operators (the reference's, and those of a Llama: rotary positions, SwiGLU, RMSNorm) a layer keeps up to
# 1.6 times as much as the memory model counts.
UNFUSED_EFFICIENCY = 0.6


def decided(settings: Settings, device: torch.device) -> Settings:
    """The settings with 'auto' replaced by a choice for the device; what to recompute is left to `fitted`.

    A GPU gets PyTorch's attention (`sdpa`) and the fastest kernels that run on it. A CPU gets the paper's attention,
    built from operators. With fused=False nothing is fused, on any device. Raises `ValueError` for kernels that cannot
    run on the device.
    """
    parallel, kernels = settings.parallel, select(settings.kernels, device).name
    attention = parallel.attention
    if attention == "auto":
        attention = "operators" if parallel.writes_scores or device.type != "cuda" else "sdpa"
    return replace(
        settings, parallel=replace(parallel, attention=attention), engine=replace(settings.engine, kernels=kernels)
    )


def smallest_memory(device: torch.device) -> int | None:
    """Bytes of memory of the smallest GPU of the run; None on CPUs. All ranks call this and get the same answer."""
    if device.type != "cuda":
        return None
    memory = torch.tensor(torch.cuda.get_device_properties(device).total_memory)
    if dist.is_initialized():
        dist.all_reduce(memory, op=dist.ReduceOp.MIN)  # on the host, by gloo
    return int(memory.item())


def fitted(settings: Settings, memory: int | None) -> tuple[Settings, str]:
    """The settings with recompute='auto' replaced by the least that fits GPUs of `memory` bytes, and why, for the log.

    The simulator predicts what the fullest rank needs; `MEMORY_MARGIN` of the memory stays free. On CPUs, for which
    `memory` is None, whole layers are recomputed. The reason is empty if there was nothing to decide.
    """
    training = settings.training
    if memory is None or training.parallel.recompute != "auto":
        recompute = training.parallel.recompute.replace("auto", "full")
        return replace(settings, parallel=replace(settings.parallel, recompute=recompute)), ""
    is_fused = settings.model.is_gpt and settings.kernels != "reference"
    h100 = load_cluster("h100")
    gpu = replace(
        h100,  # of which the memory model uses nothing else
        memory_bytes=memory,
        memory_reserved=MEMORY_MARGIN * memory,
        allocator_efficiency=h100.allocator_efficiency if is_fused else UNFUSED_EFFICIENCY,
        element_bytes=DTYPES[settings.engine.dtype],
    )
    training, peaks = least_recomputation(training, cost_model(gpu, training.parallel.n, Software(fp32_gradients=True)))
    needs = ", ".join(f"{recompute} needs {peak / GIB:.1f}" for recompute, peak in peaks.items())
    why = f"recompute={training.parallel.recompute}: {needs} of {gpu.usable_memory / GIB:.1f} GiB"
    return replace(settings, parallel=training.parallel), f"{why}, a GPU's {memory / GIB:.1f} less {MEMORY_MARGIN:.0%}"


def set_up(device: torch.device) -> None:
    """Let a GPU that has TF32 multiply fp32 matrices in it: factors with 10 bits of mantissa, sums in fp32.

    Setting the environment variable NVIDIA_TF32_OVERRIDE=0 prevents this.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
