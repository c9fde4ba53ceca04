"""Features of training programs that change an iteration's cost and that the paper's code does not have.

A cluster file names those of the training program that runs there (`software`).
"""

from dataclasses import dataclass
from typing import Any

from ptdp_core.errors import ConfigurationError


@dataclass(frozen=True)
class Software:
    """The differences of a training program from Megatron-LM of 2021; by default there are none.

    - `overlapped_all_reduce`: the backward pass reduces a linear's input gradient (f, Section 2.3) while it computes
      that linear's weight gradient (Korthikanti et al. 2022)
    - `fused_accumulation`: weight gradients are added to their sum inside the GEMM (the same)
    - `fp32_gradients`: gradients are summed in fp32, 4 bytes a parameter in place of 2
    - `fp32_accumulation`: a kernel of its own adds gradients in 16 bits to a whole sum in fp32, 10 bytes a parameter in
      place of 6
    - `flash_attention_1`, `flash_attention_2`: fused attention is that of Dao et al. 2022 or of Dao 2023, not the GPU's
      fastest
    - `fused_cross_entropy`: the loss is computed from logits in the program's precision, by one kernel each way
    - `logits_in_place`: the gradient of a fused loss is written over the logits
    - `kept_casts`: with FP8 each weight of a linear stays in 16 bits, and beside it its casts, as it is and transposed
    - `fsdp`: ZeRO-3 is PyTorch's FSDP (Zhao et al. 2023, arXiv:2304.11277): it gathers a layer twice for a microbatch
      and reduces each microbatch's gradients, in the precision of gradients, layer by layer
    - `backward_post`: in the backward pass FSDP gathers a layer only when the one before it has computed its gradients
    - `deduplicated_dispatch`: a token goes once to each rank that has some of its experts, and once to each node
      (DeepEP, HybridEP), where an all-to-all sends a row for each expert
    - `overlapped_exchange`: what experts exchange hides under another microbatch's computation, which it slows down
    - `unfused_router`: a token's experts are chosen by operators one after the other, not by one kernel
    - `exchange_first`: that exchange has the higher priority (`high_priority_a2a_comm_stream`): all but its price hides
    - `overlapped_tensor_parallel`: with sequence parallelism a product and the gather before it, or the scatter behind
      it, go in t pieces, one's communication under another's product (Transformer Engine's user buffers, PyTorch's
      asynchronous tensor parallelism)
    - `overlapped_data_parallel`: gradients are reduced bucket by bucket under the last backward pass, and weights of a
      sharded optimizer gathered under the first forward pass
    - `freed_outputs`: the output of a stage is freed as soon as it is sent: its backward pass needs no value of it
    - `cuda_graphs`: an iteration's kernels are launched as CUDA graphs, which take no time of the host
    - `blocking_launches`: the host waits for each kernel (CUDA_LAUNCH_BLOCKING=1), so that its own time adds up
    """

    overlapped_all_reduce: bool = False
    fused_accumulation: bool = False
    fp32_gradients: bool = False
    fp32_accumulation: bool = False
    flash_attention_1: bool = False
    flash_attention_2: bool = False
    fused_cross_entropy: bool = False
    logits_in_place: bool = False
    kept_casts: bool = False
    fsdp: bool = False
    backward_post: bool = False
    deduplicated_dispatch: bool = False
    overlapped_exchange: bool = False
    unfused_router: bool = False
    exchange_first: bool = False
    overlapped_tensor_parallel: bool = False
    overlapped_data_parallel: bool = False
    freed_outputs: bool = False
    cuda_graphs: bool = False
    blocking_launches: bool = False


PAPER = Software()


def software_of(switches: Any) -> Software:
    """The training program with these switches on, by name. Raises ConfigurationError for anything else."""
    known = list(vars(PAPER))
    if not isinstance(switches, list) or not all(switch in known for switch in switches):
        raise ConfigurationError(f"software={switches!r}; needs a list of some of {', '.join(known)}; try []")
    return Software(**dict.fromkeys(switches, True))
