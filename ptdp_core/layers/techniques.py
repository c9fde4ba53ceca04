"""Techniques: functions from a block to a block, which change what its parts compute, exchange and keep.

A block as the kinds make it has the paper's fused operators in 16 bits, and no collectives over tensor ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ptdp_core.layers.parts import Block, Part, PassCollectives, Work, over_tensor_ranks

# What recomputing a layer or its attention core (Section 3.5) adds: torch's checkpoint function, and the random states
# of the CPU, the GPU and the tracker saved; before the backward pass these saved, set and set back, the inputs
# detached, and backward called.
RECOMPUTATION_FORWARD = Work(host_calls=4)
RECOMPUTATION_BACKWARD = Work(host_calls=11)


# The parts of each module that may be computed again, by the beginnings of their names.
MODULES = {
    "core_attn": ("attention.core",),
    "layernorm": ("attention_norm", "mamba_norm", "mlp_norm"),
    "mlp": ("mlp.up", "mlp.activation", "mlp.down"),
    "moe": ("mlp.router", "mlp.latent", "mlp.dispatch", "mlp.experts", "mlp.combine", "mlp.shared"),
    "experts": ("mlp.experts",),
    "mlp_act": ("mlp.activation",),
    "moe_act": ("mlp.experts.activation",),
    "mla_up_proj": ("attention.query_norm", "attention.query", "attention.kv_norm", "attention.kv", "attention.whole"),
}


def modules_of(block: Block, modules: tuple[str, ...]) -> Block:
    """The parts of these modules alone; 'operators' are all parts without products and collectives, but the core."""

    def is_in(part: Part) -> bool:
        if part.name.endswith("_down"):  # of latents, which are kept
            return False
        computes = part.forward.gemms or part.forward.narrow_gemms or part.collectives.forward
        if "operators" in modules and not computes and part.name != "attention.core":
            return True
        return any(part.name.startswith(MODULES.get(name, ())) for name in modules)

    return Block(tuple([part for part in block.parts if is_in(part)]))


def recomputed(block: Block, modules: tuple[str, ...]) -> Block:
    """The block when these modules are computed again in its backward pass: they keep nothing.

    Only the core's result is kept, which the projection reads; others' results are computed again before they are read.
    """
    if not modules:
        return block
    names = {part.name for part in modules_of(block, modules).parts}

    def change(part: Part) -> Part:
        if part.name not in names:
            return part
        return part._replace(inside=0, output=part.output if part.name == "attention.core" else 0)

    return changed(block, change)


# What each module reads and keeps until its backward pass, if not what the part before it holds: the parts, by the
# beginnings of their names, and which of their bytes.
READ = {
    "attn_norm": (("attention_norm", "holds"),),
    "qkv_linear": (("attention_norm", "output"),),
    "core_attn": (("attention.qkv", "output"), ("attention.whole", "output"), ("attention.core", "inside")),
    "attn_proj": (("attention.core", "output"),),
    "mlp_norm": (("mlp_norm", "holds"),),
    "expert_fc1": (("mlp.dispatch", "output"),),
    "moe_act": (("mlp.experts.up", "output"),),
    "layers": (("", "holds"), ("", "inside"), ("", "output")),
}


def offloaded(block: Block, modules: tuple[str, ...]) -> Block:
    """The block when what these modules read and keep until their backward pass waits in the host's memory."""
    moved = [each for name in modules for each in READ[name]]

    def change(part: Part) -> Part:
        gone: dict[str, Any] = {held: 0 for start, held in moved if part.name.startswith(start)}
        return part._replace(**gone)

    return changed(block, change)


@dataclass(frozen=True)
class Recipe:
    """Bytes per element of a bf16 tensor that is cast to FP8: read, and written with its scales, in `kernels` kernels.

    - 'delayed': one scale a tensor, from the largest element of earlier iterations (Micikevicius et al. 2022)
    - 'tensorwise': one scale a tensor, from its own largest element, for which it is read once more
    - 'rowwise': one scale a row, and a column where a product reads it turned, as torchao has it
    - 'blockwise': an fp32 scale for 128 elements (DeepSeek-AI 2024, arXiv:2412.19437, Section 3.3)
    - 'mxfp8': a scale of 8 bits for 32 elements (OCP Microscaling Formats 1.0)
    - 'nvfp4': 4 bits, a scale of 8 bits for 16 elements and one of fp32 a tensor. It is read for the largest elements
      before and behind the Hadamard transform, to be cast, and to be transformed and cast for weight gradients, with
      stochastic rounding (NVIDIA 2025, arXiv:2509.25149, Section 4; Transformer Engine 2.8, which fuses the last two
      in later releases)
    """

    read: float
    written: float
    kernels: int
    elements: str = "fp8"

    @property
    def kept(self) -> float:
        """Bytes per element of the one copy that the weight gradient needs."""
        return self.written / 2


RECIPES = {
    "delayed": Recipe(2, 2, 1),
    "tensorwise": Recipe(4, 2, 2),
    "rowwise": Recipe(4, 2, 2),
    "blockwise": Recipe(2, 2 * (1 + 4 / 128), 1),
    "mxfp8": Recipe(2, 2 * (1 + 1 / 32), 1),
    "nvfp4": Recipe(6, 2 * (1 / 2 + 1 / 16), 3, "fp4"),
}


def changed(block: Block, change: Callable[[Part], Part]) -> Block:
    """The block with each part changed."""
    return replace(block, parts=tuple([change(part) for part in block.parts]))


def tensor_parallel(block: Block, elements: int, sequence_parallel: bool) -> Block:
    """The block with the collectives of f and g (Section 2.3), of so many elements: all-reduces.

    With sequence parallelism (Korthikanti et al. 2022) the input of a column-parallel matrix is gathered before it, and
    the partial sums of a row-parallel one are reduce-scattered; their gradients go the other way. Only 1/t of a
    gathered input is kept, so that the backward pass gathers it again for the weight's gradient (`Part.again`).
    """
    reduce, gather, scatter = over_tensor_ranks(elements)

    def joined(part: Part) -> Part:
        if not (part.f or part.g):
            return part
        forward, backward = part.collectives
        if not sequence_parallel:
            calls = PassCollectives((*forward, *(reduce,) * part.g), (*(reduce,) * part.f, *backward))
        elif part.f:
            again = (gather,) if part.again else ()
            calls = PassCollectives((gather, *forward), (*again, *backward, scatter))
        else:
            calls = PassCollectives((*forward, scatter), (gather, *backward))
        return part._replace(collectives=calls)

    return replace(block, parts=tuple([joined(part) for part in block.parts]))


def adapted(block: Block, rank: int) -> Block:
    """The block whose parameters are frozen, with an adapter x A B beside each linear that all tokens go through.

    No weight's gradient is computed but the adapters', whose result is added in a kernel of its own, as their gradient
    is. What is kept stays: adapters read the inputs of linears, too.
    """

    def change(part: Part) -> Part:
        frozen = list(part.backward.gemms)
        for gemm in part.weights.gemms:
            frozen.remove(gemm)
        part = part._replace(backward=part.backward._replace(gemms=tuple(frozen)), weights=Work())
        if not trained_elements(part, rank):
            return part
        (tokens, n_out, n_in, _), *_ = part.forward.gemms
        into = ((tokens, rank, n_in, 1), (tokens, n_out, rank, 1))
        weights = Work(((rank, n_in, tokens, 1), (n_out, rank, tokens, 1)))
        back = Work(((tokens, rank, n_out, 1), (tokens, n_in, rank, 1)), 6 * tokens * n_in, 1)
        forward = part.forward + Work(into, 6 * tokens * n_out, 1)
        return part._replace(forward=forward, backward=part.backward + back + weights, weights=weights)

    return changed(block, change)


def trained_elements(part: Part, rank: int) -> int:
    """Parameters of the adapter beside a part; 0 for one that is no linear of all tokens."""
    matrices = [item for item in part.parameters if item.is_matrix and not item.stacked]
    products = part.forward.gemms or part.forward.narrow_gemms
    return sum([rank * sum(item.shape) for item in matrices]) if products else 0


def unfused(block: Block) -> Block:
    """The block without the fusions and the layout of Section 4.2: every operator by itself."""

    def apart(part: Part) -> Part:
        forward, backward = part.unfused
        if not forward.kernels + backward.kernels:
            return part
        return part._replace(forward=part.forward + forward, backward=part.backward + backward)

    return changed(block, apart)


def in_fp8(block: Block, recipe: Recipe) -> Block:
    """The linears of a layer in FP8: what casting to it costs, and which products it speeds up.

    The three products of each of a layer's linears (forward, input gradient, weight gradient) read FP8 and write bf16.
    Attention, the embedding and the output layer stay in bf16, and so do collectives and messages: what Transformer
    Engine does by default. Each tensor is cast by kernels of its own, and written twice, as it is and transposed, since
    the product for the weight gradient reads it along the other dimension; a program that fuses casting into norms and
    activations moves fewer bytes. With sequence parallelism tensors between layers are cast before they are gathered.
    Weights are taken to be kept in FP8, also twice, which are bf16's two bytes; where a program keeps bf16 beside them
    (`Software.kept_casts`), as the engine does, it casts them once a batch. With sequence parallelism the engine casts
    what is gathered, in its backward pass once more. All of this is the same with elements of 4 bits, whose weights are
    kept in bf16. Of what several linears read each keeps a cast; what something else reads, as attention's result and
    what a router reads, stays in bf16 beside them.
    """
    moved = recipe.read + recipe.written

    def narrow(work: Work, cast: float) -> Work:
        gemms = tuple([(recipe.elements, gemm) for gemm in work.gemms])
        traffic, kernels = work.traffic_bytes + moved * cast, work.kernels + (recipe.kernels if cast else 0)
        return work._replace(gemms=(), narrow_gemms=gemms, traffic_bytes=traffic, kernels=kernels)

    def change(part: Part) -> Part:
        part = part._replace(output=part.output * (part.stays + part.casts * recipe.kept / 2))
        if part.cast is None:
            return part
        forward, backward = part.cast
        return part._replace(
            forward=narrow(part.forward, forward),
            backward=narrow(part.backward, backward),
            weights=narrow(part.weights, 0.0),
        )

    return changed(block, change)
