"""The work of a mixture of experts in a layer's MLP's place, on one GPU, for one microbatch: bytes as in `operators`.

A GPU routes T tokens, and sends k rows of h for each of them to their experts' ranks. It has E/e experts and computes
R rows with them: kT of a balanced router, times `load` on the busiest rank, each expert's filled up to `ROWS_AT_ONCE`.
Where tensor ranks share experts, T are all tokens of the microbatch, and each has 1/t of every expert's width; with
whole experts (etp = 1) T is 1/t of them. A grouped GEMM is a product of each local expert after the other, as
Transformer Engine's grouped linear launches them. `launches` counts what the host has to launch for it, once it has
read the numbers of tokens.

What all tokens go through, the shared expert's MLP, is in `operators`.
"""

from math import ceil, comb
from typing import NamedTuple

from ptdp_core.config import ModelConfig, TrainingConfig
from ptdp_core.layout import PassCollectives, expert_passes
from ptdp_core.simulator.fp8 import RECIPES, linears_in_fp8
from ptdp_core.simulator.network import Group
from ptdp_core.simulator.operators import Gemm, Work

# Kernels of grouped GEMMs take an expert's rows by 16: their loads are of 16 bytes, in FP8 as many elements.
ROWS_AT_ONCE = 16
# Calls that launch no kernel: modules of router and experts, views, autograd functions.
HOST_CALLS = 20
# Of the router: scores in fp32, softmax, the k largest, their sum, and numbers of tokens by expert.
ROUTER_KERNELS = 6


def load(config: TrainingConfig) -> float:
    """Tokens of the busiest expert-parallel rank over the mean: `expert_imbalance`, at most `capacity_factor`."""
    parallel = config.parallel
    return min(parallel.expert_imbalance, parallel.capacity_factor or parallel.expert_imbalance)


def tokens_and_rows(config: TrainingConfig) -> tuple[int, int]:
    """The tokens T that a GPU routes, and the rows R that it computes with its experts."""
    model, parallel = config.local_model, config.parallel
    tokens = model.seq * parallel.b // (parallel.t if parallel.whole_experts else 1)
    experts = model.experts // parallel.e
    each = ceil(tokens * model.experts_per_token * load(config) / (experts * ROWS_AT_ONCE))
    return tokens, experts * ROWS_AT_ONCE * each


def _grouped(config: TrainingConfig) -> tuple[int, int, int, int]:
    """The local experts, rows of each, and outputs of the first and inputs of the second linear on a GPU."""
    model, parallel = config.local_model, config.parallel
    experts, (_, rows) = model.experts // parallel.e, tokens_and_rows(config)
    width = model.expert_width // parallel.expert_tensor_ranks
    return experts, rows // experts, width * model.branches, width


def _linears(config: TrainingConfig) -> tuple[Gemm, ...]:
    """The products of both linears, of one local expert after the other."""
    experts, rows, outputs, width = _grouped(config)
    return ((rows, outputs, config.model.hidden, 1),) * experts + ((rows, config.model.hidden, width, 1),) * experts


def _moved(config: TrainingConfig) -> tuple[float, int]:
    """Bytes and kernels of a pass that bring rows into the order of experts and back, and add up those of a token.

    The rows that a GPU receives come by rank and then by expert, so that those of several experts are ordered again.
    """
    model, parallel = config.local_model, config.parallel
    tokens, rows = tokens_and_rows(config)
    again = 2 if parallel.e > 1 and model.experts > parallel.e else 0
    return 2.0 * model.hidden * (2 * rows + again * 2 * rows + rows + tokens), 3 + again


def forward(config: TrainingConfig) -> Work:
    """The router, the rows sent and ordered, and the two linears of the experts with what is between them."""
    tokens, rows = tokens_and_rows(config)
    _, _, outputs, width = _grouped(config)
    scores = 16.0 * tokens * config.model.experts
    moved, kernels = _moved(config)
    return Work(
        (*_linears(config), (tokens, config.model.experts, config.model.hidden, 1)),
        moved + 2 * rows * (outputs + width) + scores,
        kernels + 1 + ROUTER_KERNELS,
        wide_bytes=scores,
        host_calls=HOST_CALLS,
    )


def weight_gradients(config: TrainingConfig) -> Work:
    """The part of `backward` that only the optimizer waits for: the grouped GEMMs for the experts' weights."""
    return Work(tuple((n, k, rows, experts) for rows, n, k, experts in _linears(config)))


def backward(config: TrainingConfig) -> Work:
    """The backward pass of `forward`."""
    tokens, rows = tokens_and_rows(config)
    _, _, outputs, width = _grouped(config)
    experts, h = config.model.experts, config.model.hidden
    scores = 16.0 * tokens * experts
    moved, kernels = _moved(config)
    inputs = tuple((rows, k, n, count) for rows, n, k, count in _linears(config))
    return Work(
        (*inputs, *weight_gradients(config).gemms, (tokens, h, experts, 1), (experts, h, tokens, 1)),
        moved + 2 * rows * (width + 2 * outputs) + scores,
        kernels + 1 + ROUTER_KERNELS,
        wide_bytes=scores,
        host_calls=HOST_CALLS,
    )


class Works(NamedTuple):
    """The work of a layer's experts by pass; that of `weight_gradients` is a part of `backward`."""

    forward: Work
    backward: Work
    weight_gradients: Work


def works(config: TrainingConfig) -> Works:
    """The work of a layer's experts in each pass, with the linears in the precision of the configuration."""
    plain = Works(forward(config), backward(config), weight_gradients(config))
    if config.parallel.fp8_recipe == "none":
        return plain
    experts, _, outputs, width = _grouped(config)
    h, recipe = config.model.hidden, RECIPES[config.parallel.fp8_recipe]
    return Works(
        linears_in_fp8(plain.forward, 2 * experts, recipe) + _cast(config, h + width),
        linears_in_fp8(plain.backward, 4 * experts, recipe) + _cast(config, h + outputs),
        linears_in_fp8(plain.weight_gradients, 2 * experts, recipe),
    )


def _cast(config: TrainingConfig, width: int) -> Work:
    """The work to cast so many elements of every row, of two tensors, to FP8."""
    recipe, (_, rows) = RECIPES[config.parallel.fp8_recipe], tokens_and_rows(config)
    return Work(traffic_bytes=(recipe.read + recipe.written) * rows * width, kernels=2 * recipe.kernels)


def passes(config: TrainingConfig) -> PassCollectives:
    """The all-to-alls of a layer's passes: dispatch and combine."""
    parallel = config.parallel
    return expert_passes(config.local_model, parallel.b, parallel.e, parallel.t if parallel.whole_experts else 1)


def launches(config: TrainingConfig) -> tuple[int, int]:
    """The kernels of a GPU's experts in a layer's forward and backward pass: products of both linears, and casts."""
    local, recipe = config.model.experts // config.parallel.e, RECIPES.get(config.parallel.fp8_recipe)
    casts = recipe.kernels if recipe else 0
    return 2 * local * (1 + casts), 2 * local * (2 + casts)


def deduplicated(model: ModelConfig, group: Group) -> tuple[float, float]:
    """Of the k rows of a token, how many are sent inside a node and to other nodes, if each goes once to a place.

    A token's k experts are any of the E, equally often. Between nodes it goes once to each node that has one of them,
    and inside once to each rank. So do DeepSeek's DeepEP and NVIDIA's HybridEP.
    """

    def places(number: int) -> float:
        """How many of so many equal places have one of a token's experts, on average."""
        without, all_of_them = model.experts - model.experts // number, comb(model.experts, model.experts_per_token)
        return number * (1 - comb(without, model.experts_per_token) / all_of_them)

    k, nodes = model.experts_per_token, group.nodes
    inside = places(group.size) / k * (group.per_node - 1) / group.per_node
    return inside, places(nodes) / k * (nodes - 1) / nodes


def kept_bytes(config: TrainingConfig) -> int:
    """Bytes that the experts of a layer keep of one microbatch for their backward pass; 0 without experts.

    Of every row the inputs of both linears, in FP8 if these are, and the first one's output; of every token the scores
    in fp32. Outputs are not kept: a token's weights multiply its rows before the second linear, as in
    Megatron-Core (`weighted_bias_swiglu_impl`), so that combining them needs no more than a sum.
    """
    if not config.model.experts:
        return 0
    tokens, rows = tokens_and_rows(config)
    _, _, outputs, width = _grouped(config)
    recipe = config.parallel.fp8_recipe
    wide = 2.0 if recipe == "none" else RECIPES[recipe].kept
    return round(rows * (wide * (config.model.hidden + width) + 2 * outputs) + 4 * tokens * config.model.experts)


def gradient_bytes(config: TrainingConfig) -> int:
    """Bytes of the gradients of all that is between the rows sent and their outputs, of a layer's microbatch."""
    if not config.model.experts:
        return 0
    _, rows = tokens_and_rows(config)
    _, _, outputs, width = _grouped(config)
    return 2 * rows * (config.model.hidden + outputs + width)


def deferred_bytes(config: TrainingConfig) -> int:
    """Bytes of the inputs and output gradients of a layer's experts, of one microbatch."""
    if not config.model.experts:
        return 0
    _, rows = tokens_and_rows(config)
    return gradient_bytes(config) + 2 * rows * config.model.hidden
