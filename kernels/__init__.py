"""The operators that the paper fuses (Section 4.2), each in three implementations behind one interface.

    from kernels import select
    kernels = select("auto", device)            # reference, compiled, triton or auto
    probs = kernels.causal_softmax(scores, scale)

    reference   eager PyTorch, one kernel per step: the paper's baseline
    compiled    the formula through torch.compile, the successor of the PyTorch JIT that the paper used
    triton      custom kernels

One file per operator, with its formula at the top, its reference, its compiled form and its registration;
Triton kernels beside it in `*_triton.py`. `selection` is the interface, `checks` what it refuses,
`dropout_mask` how dropout works without storing a mask, `registration` how functions become operators.

Depends on torch only; Triton and the compiler are imported at first use.
"""

from kernels.registration import IMPLEMENTATIONS
from kernels.selection import Kernels, available, select, why_unavailable
