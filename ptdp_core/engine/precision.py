"""PyTorch's types for the precisions of `ptdp_core.config.DTYPES`."""

import torch

TORCH_DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}
