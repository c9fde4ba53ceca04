"""The linears of transformer layers in FP8: what casting to it costs, and which products it speeds up.

The three products of each of a layer's linears (forward, input gradient, weight gradient) read FP8 and write bf16.
Attention, the embedding and the output layer stay in bf16, and so do collectives and messages: what Transformer Engine
does by default. Each tensor is cast by kernels of its own, and written twice, as it is and transposed, since the
product for the weight gradient reads it along the other dimension; a program that fuses casting into norms and
activations moves fewer bytes. Weights are taken to be kept in FP8, also twice, which are bf16's two bytes. All of this
is the same with elements of 4 bits, whose weights are kept in bf16.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.kernels import KernelModel
from ptdp_core.simulator.operators import Work


@dataclass(frozen=True)
class Recipe:
    """Bytes per element of a bf16 tensor that is cast to FP8: read, and written with its scales, in `kernels` kernels.

    - 'delayed': one scale a tensor, from the largest element of earlier iterations (Micikevicius et al. 2022)
    - 'tensorwise': one scale a tensor, from its own largest element, for which it is read once more
    - 'blockwise': an fp32 scale for 128 elements (DeepSeek-AI 2024, arXiv:2412.19437, Section 3.3)
    - 'mxfp8': a scale of 8 bits for 32 elements (OCP Microscaling Formats 1.0)
    - 'nvfp4': 4 bits, a scale of 8 bits for 16 elements and one of fp32 a tensor, for whose largest element it is read
      once more, by the kernel that also turns what weight gradients read (NVIDIA 2025, arXiv:2509.25149, Section 4)
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
    "blockwise": Recipe(2, 2 * (1 + 4 / 128), 1),
    "mxfp8": Recipe(2, 2 * (1 + 1 / 32), 1),
    "nvfp4": Recipe(4, 2 * (1 / 2 + 1 / 16), 2, "fp4"),
}


def linears_in_fp8(work: Work, count: int, recipe: Recipe) -> Work:
    """The work with its first `count` products, those of linears, as the recipe has them; without casting for them."""
    narrow = tuple((recipe.elements, gemm) for gemm in work.gemms[:count])
    return replace(work, gemms=work.gemms[count:], narrow_gemms=narrow)


def input_casting(config: TrainingConfig) -> Work:
    """The work to cast the inputs of a layer's linears in its forward pass: of a GPT 2h + (w + f)/t elements a token.

    With sequence parallelism the two h between layers are cast before they are gathered, 1/t on each rank.
    """
    linears = config.model.linears
    return _casting(config, [(linear.inputs, linear.shared == "inputs") for linear in linears])


def gradient_casting(config: TrainingConfig) -> Work:
    """The work to cast the gradients of the linears' outputs: of a GPT 2h + (c + u)/t elements a token.

    The letters are those of `operators`.
    """
    linears = config.model.linears
    return _casting(config, [(linear.outputs, linear.shared == "outputs") for linear in linears])


def _casting(config: TrainingConfig, tensors: Sequence[tuple[int, bool]]) -> Work:
    """The work to cast tensors of so many elements a token, of which a tensor rank has 1/t or, between layers, all."""
    recipe, tokens = RECIPES[config.parallel.fp8_recipe], config.local_model.seq * config.parallel.b
    between = sum(size for size, shared in tensors if not shared) / config.parallel.sequence_shards
    inside = sum(size for size, shared in tensors if shared) / config.parallel.t
    moved = (recipe.read + recipe.written) * (tokens * (between + inside))
    return Work(traffic_bytes=moved, kernels=len(tensors) * recipe.kernels)


def saved_bytes(config: TrainingConfig) -> int:
    """Bytes that a layer and microbatch keep less in FP8; 0 in bf16.

    The inputs of the MLP's and attention's first linears and of the MLP's second one are kept in FP8 in place of bf16.
    Attention keeps its result in bf16, and the projection that in FP8 beside it.
    """
    model, parallel = config.local_model, config.parallel
    if parallel.fp8_recipe == "none":
        return 0
    kept, tokens = RECIPES[parallel.fp8_recipe].kept, model.seq * parallel.b
    between = (2 if model.common_width else 1) * model.hidden / parallel.sequence_shards
    inside, own = model.common_width / parallel.t, model.attention_width / parallel.t
    return round(tokens * ((2 - kept) * (between + inside) - kept * own))


def kernels(cluster: Cluster, elements: str) -> KernelModel:
    """The times of products of 'fp8' or 'fp4' on a cluster's GPU.

    Raises ConfigurationError if its file gives none.
    """
    peak, plateau, size, example = {
        "fp8": (cluster.fp8_peak_flops, cluster.fp8_gemm_plateau, 1.0, "h100"),
        "fp4": (cluster.fp4_peak_flops, cluster.fp4_gemm_plateau, 1 / 2, "b200"),
    }[elements]
    if not peak:
        raise ConfigurationError(
            f"fp8_recipe on {cluster.name}, whose file has no {elements}_peak_flops; needs a GPU with "
            f"{elements.upper()}; try fp8_recipe='none', or the cluster {example}"
        )
    return KernelModel(replace(cluster, peak_flops=peak, gemm_plateau=plateau), operand_bytes=size)
