"""What all tests need before the first of them imports a kernel."""

import os

import torch

if not torch.cuda.is_available():  # Triton's kernels run through its interpreter, which is chosen at their import
    os.environ.setdefault("TRITON_INTERPRET", "1")

torch.set_num_threads(1)  # as in a rank: two threads for tensors as small as here wait for each other most of the time
