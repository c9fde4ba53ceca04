"""What a training program does beyond the paper's code that changes an iteration's cost: off unless asked for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Software:
    """What a training program does otherwise than Megatron-LM of 2021.

    - `overlapped_all_reduce`: the backward pass reduces a linear's input gradient (f, Section 2.3) while it computes
      that linear's weight gradient (Korthikanti et al. 2022)
    - `fused_accumulation`: weight gradients are added to their sum inside the GEMM (the same)
    - `fp32_gradients`: gradients are summed in fp32, 4 bytes a parameter in place of 2
    - `blocking_launches`: the host waits for each kernel (CUDA_LAUNCH_BLOCKING=1), so that its own time adds up
    """

    overlapped_all_reduce: bool = False
    fused_accumulation: bool = False
    fp32_gradients: bool = False
    blocking_launches: bool = False


PAPER = Software()
