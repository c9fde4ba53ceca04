"""The paper's closed formulas, each with its equation or section. Nothing here is fitted or simulated.

Letters as in Section 3.1. Communication volumes are in elements, as in the paper; times in seconds unless both sides
of a ratio share a unit.
"""

from functools import lru_cache
from math import sqrt

from ptdp_core.config import LayerKind, ModelConfig
from ptdp_core.layers.attention import attended
from ptdp_core.layers.blocks import LayerRun, block, end_parameters, heads_of, states_of
from ptdp_core.layers.parts import Parameter


def parameters(model: ModelConfig) -> int:
    """Parameters of the model, exactly. For a GPT, P = 12lh^2 (1 + 13/(12h) + (V + s)/(12lh)) (eq. 2).

    In general they are those of its layers and of both ends (`layers.blocks`). There is one more norm at the end, which
    equation 2 leaves out; so it is left out here for a GPT.
    """
    layers = sum([count * sum([item.elements for item in own]) for count, own in _layers(model)])
    first, last = end_parameters(model, 1)
    norm = sum([item.elements for item in last if not item.is_matrix]) if model.is_gpt else 0
    return layers + sum([item.elements for item in (*first, *last)]) - norm


def active_parameters(model: ModelConfig) -> int:
    """Those of `parameters` that a token goes through: with experts k of the E of each layer."""
    idle = [
        count * sum([item.elements - _active(model, item) for item in own if item.stacked])
        for count, own in _layers(model)
    ]
    return parameters(model) - sum(idle)


def _layers(model: ModelConfig) -> list[tuple[int, tuple[Parameter, ...]]]:
    """For each kind of layer how many there are, and the parameters of one."""
    counts = _counts(model)
    return [(counts[kind], block(model, LayerRun(), kind).parameters) for kind in model.layer_kinds]


def _counts(model: ModelConfig) -> dict[LayerKind, int]:
    """How many layers there are of each kind."""
    if len(model.layer_kinds) == 1:
        return {model.usual_kind: model.all_layers}
    held = model.kind_of_layers
    return {kind: held.count(number) for number, kind in enumerate(model.layer_kinds)}


def _active(model: ModelConfig, parameter: Parameter) -> int:
    """Elements of a parameter that a token goes through: of experts those of k."""
    return parameter.elements // model.experts * model.experts_per_token if parameter.stacked else parameter.elements


@lru_cache(maxsize=256)
def layer_weights(model: ModelConfig, kind: LayerKind | None = None) -> int:
    """Elements of the matrices of a layer that a token goes through: 12h^2 of a GPT.

    With experts these are those of k, of the shared one and of the router.
    """
    own = block(model, LayerRun(), kind or model.usual_kind).parameters
    return sum([_active(model, item) for item in own if item.is_matrix])


def flops_per_iteration(model: ModelConfig, B: int) -> int:
    """FLOPs of one iteration with full recomputation, F = 96Bslh^2 (1 + s/(6h) + V/(16lh)) (eq. 3), exactly.

    This is the FLOP count behind every teraFLOP/s in the paper. It counts GEMMs only, and the extra forward pass. For
    models other than a GPT it is the same count: 4 forward passes' worth for a layer, 3 for the logits.
    """
    return 4 * forward_flops(model, B) + logit_flops(model, B)


def model_flops_per_iteration(model: ModelConfig, B: int) -> int:
    """FLOPs of one iteration without the recomputed forward pass: 3 instead of 4 passes per layer (Appendix)."""
    return 3 * forward_flops(model, B) + logit_flops(model, B)


def hardware_flops_per_iteration(model: ModelConfig, B: int, recompute: str) -> int:
    """FLOPs that the GEMMs of one iteration execute: those of the model, and those that recomputation repeats.

    'full' repeats a layer's forward pass, which makes eq. (3), 'selective' its attention core, 'none' nothing.
    """
    core = sum([count * attention_core_flops(model, B, kind) for kind, count in _counts(model).items()])
    repeated = {"full": forward_flops(model, B), "selective": core, "none": 0}
    return model_flops_per_iteration(model, B) + repeated[recompute]


def forward_flops(model: ModelConfig, B: int) -> int:
    """FLOPs of all layers' forward pass, which may differ, and of what multi-token prediction brings together."""
    layers = sum([count * layer_forward_flops(model, B, kind) for kind, count in _counts(model).items()])
    return layers + 2 * B * model.seq * model.mtp_layers * 2 * model.hidden**2


def layer_forward_flops(model: ModelConfig, B: int, kind: LayerKind | None = None) -> int:
    """FLOPs of a layer's forward pass, 24Bsh^2 + 4Bs^2h for a GPT (Appendix): 2 an element of a matrix and token.

    Those of a state-space layer's scan are added, its convolution is left out.
    """
    scan = (kind or model.usual_kind).mixer == "mamba" and states_of(model).scan_flops(B * model.seq)
    return 2 * B * model.seq * layer_weights(model, kind) + attention_core_flops(model, B, kind) + scan


def attention_core_flops(model: ModelConfig, B: int, kind: LayerKind | None = None) -> int:
    """FLOPs of a layer's attention without its linears, forward: 2Bs^2h for QK^T, and as many over V (Appendix).

    They do not depend on how many heads share a key; the half that the causal mask hides is counted, as in the paper.
    """
    kind = kind or model.usual_kind
    pairs = attended(model.seq, kind.window) if kind.mixer == "attention" else 0
    heads = heads_of(model)
    return 2 * B * pairs * heads.queries * (heads.query + heads.value)


def logit_flops(model: ModelConfig, B: int) -> int:
    """FLOPs of the logit layer, forward and backward: 6BshV (Appendix), once for each token that is predicted."""
    return 6 * B * model.seq * model.hidden * model.vocab * (1 + model.mtp_layers)


def training_time(model: ModelConfig, B: int, tokens: float, n: int, flops_per_gpu: float) -> float:
    """Seconds to train on `tokens` tokens: T/(Bs) iterations of F FLOPs on n GPUs at X FLOP/s each (Section 5.1)."""
    iterations = tokens / (B * model.seq)
    return iterations * flops_per_iteration(model, B) / (n * flops_per_gpu)


def training_time_approximate(P: float, tokens: float, n: int, flops_per_gpu: float) -> float:
    """Seconds to train P parameters on T tokens, 8TP/(nX) (eq. 4), for 6h >> s, 16lh >> V + s and 12lh >> V."""
    return 8 * tokens * P / (n * flops_per_gpu)


def bubble_fraction(p: int, m: int, v: int = 1) -> float:
    """Pipeline bubble over ideal time, (p - 1)/(vm): GPipe and 1F1B with v = 1 (Section 2.2.1), interleaved (2.2.2)."""
    return (p - 1) / (v * m)


def bubble_fraction_data_parallel(n: int, d: int, b_prime: int) -> float:
    """Pipeline bubble over ideal time when t = 1: (n - d)/b', with b' = B/b (Section 3.3.1)."""
    return (n - d) / b_prime


def batch_time(b_prime: int, b: int, p: int, forward: float, backward: float) -> float:
    """Time of a batch without communication, (b'/b + p - 1)(t_f(b) + t_b(b)) with b' = B/d (eq. 1, Section 3.4)."""
    return (b_prime / b + p - 1) * (forward + backward)


def pipeline_elements(model: ModelConfig, b: int) -> int:
    """Elements sent between two consecutive devices per microbatch and direction: bsh (Section 3.2)."""
    return b * model.seq * model.hidden


def scatter_gather_elements(model: ModelConfig, b: int, t: int) -> float:
    """Elements each GPU sends with scatter/gather per microbatch and direction: bsh/t (Section 4.1)."""
    return pipeline_elements(model, b) / t


def tensor_parallel_elements(model: ModelConfig, b: int, t: int) -> float:
    """Elements each device sends per layer and microbatch for tensor parallelism: 8bsh(t - 1)/t (Section 3.2)."""
    return 8 * pipeline_elements(model, b) * (t - 1) / t


def ring_factor(k: int) -> float:
    """GpuShare of a tensor that a ring of k ranks moves in each of its two phases: (k - 1)/k (Section 3.3.1)."""
    return (k - 1) / k


def recomputation_memory(c: float, layers: int, input_bytes: float, intermediate_bytes: float) -> float:
    """Activation bytes of a stage of l layers in c recomputed blocks, the paper's checkpoints (Section 3.5).

    Each block keeps its input, and one of them has its intermediates: c A_input + (l/c) A_intermediate.
    """
    return c * input_bytes + layers / c * intermediate_bytes


def optimal_kept_inputs(layers: int, input_bytes: float, intermediate_bytes: float) -> float:
    """The c that minimises `recomputation_memory`: sqrt(l A_intermediate/A_input) (Section 3.5)."""
    return sqrt(layers * intermediate_bytes / input_bytes)
