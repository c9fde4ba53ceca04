"""What all tests need before the first of them imports a kernel."""

import os

import torch

if not torch.cuda.is_available():  # Triton's kernels run through its interpreter, which is chosen at their import
    os.environ.setdefault("TRITON_INTERPRET", "1")
