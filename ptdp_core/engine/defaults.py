"""Settings whose value is 'auto' are decided here, when the device is known."""

from dataclasses import replace

import torch

from kernels import select
from ptdp_core.engine.settings import Settings


def decided(settings: Settings, device: torch.device) -> Settings:
    """The settings, with every 'auto' replaced by a choice for the device.

    A GPU gets PyTorch's attention (`sdpa`) and the fastest kernels that run on it. A CPU gets the paper's attention,
    built from operators. With fused=False nothing is fused, on any device. Raises `ValueError` for kernels that cannot
    run on the device.
    """
    engine = settings.engine
    fast = device.type == "cuda" and settings.parallel.fused
    attention = ("sdpa" if fast else "operators") if engine.attention == "auto" else engine.attention
    kernels = select(settings.kernels, device).name
    return replace(settings, engine=replace(engine, attention=attention, kernels=kernels))


def set_up(device: torch.device) -> None:
    """Let a GPU that has TF32 multiply fp32 matrices in it: factors with 10 bits of mantissa, sums in fp32.

    Setting the environment variable NVIDIA_TF32_OVERRIDE=0 prevents this.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
