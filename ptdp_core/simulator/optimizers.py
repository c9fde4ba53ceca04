"""Optimizers and the precision of what they keep: bytes a parameter, and what a step computes and gathers besides.

`OPTIMIZERS` has a row for each value of `ParallelConfig.optimizer_states`. What is not the paper's is simulated only.
"""

from typing import NamedTuple

from ptdp_core.layers.parts import Gemm

FP32_BYTES = 4
ITERATIONS = 5  # of Newton and Schulz (Jordan et al. 2024, Muon; Liu et al. 2025, arXiv:2502.16982)


class OptimizerRow(NamedTuple):
    """What an optimizer keeps of a parameter whose weight has 16 bits.

    - `moments`: how many, of `moment_bytes` each
    - `master_bytes`: of the wide weight, or of the 16 bits that the narrow one lacks of it; 0 without
    - `gradient_bytes`: in which gradients are summed and reduced; 0 as the program does
    - `orthogonal`: whether the momentum of each matrix is made orthogonal, for which it has to be whole
    """

    moments: int = 2
    moment_bytes: int = FP32_BYTES
    master_bytes: int = FP32_BYTES
    gradient_bytes: int = 0
    orthogonal: bool = False


OPTIMIZERS = {
    "adam": OptimizerRow(),
    "adam_bf16_moments": OptimizerRow(moment_bytes=2),  # DeepSeek-V3, arXiv:2412.19437, Section 3.3.1
    "adam_bf16": OptimizerRow(moment_bytes=2, master_bytes=2, gradient_bytes=2),  # Megatron-Core's precision-aware one
    "adam_fp8": OptimizerRow(moment_bytes=1, master_bytes=2, gradient_bytes=2),
    "adam_no_master": OptimizerRow(moment_bytes=2, master_bytes=0, gradient_bytes=2),
    "muon": OptimizerRow(moments=1, orthogonal=True),
}


def orthogonalisation(outputs: int, inputs: int) -> list[Gemm]:
    """The products that make a matrix orthogonal: X X^T, its square, and of both with X, in every iteration."""
    short, long = sorted((outputs, inputs))
    return [(short, short, long, 1), (short, short, short, 1), (short, long, short, 1)] * ITERATIONS
