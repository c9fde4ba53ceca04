"""What 'auto' means on a device."""

from dataclasses import replace

import torch

from kernels import select
from ptdp_core.engine.settings import Settings


def decided(settings: Settings, device: torch.device) -> Settings:
    """The settings with what is 'auto' decided for a device: on a GPU the fastest that it can do.

    On a CPU the paper's attention from plain operators, which is faster there than compiling is worth. With
    fused=False nothing is fused anywhere. Raises ValueError for kernels that cannot run on the device.
    """
    engine = settings.engine
    fast = device.type == "cuda" and settings.parallel.fused
    attention = ("sdpa" if fast else "operators") if engine.attention == "auto" else engine.attention
    kernels = select(settings.kernels, device).name
    return replace(settings, engine=replace(engine, attention=attention, kernels=kernels))


def set_up(device: torch.device) -> None:
    """Let a GPU multiply fp32 matrices in TF32, where it can: 10 bits of mantissa, sums in fp32.

    The environment variable NVIDIA_TF32_OVERRIDE=0 forbids it.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
